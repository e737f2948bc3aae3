//! What an answer about one thing says of others: each is read once per answer, and for a page of a list
//! all of a kind in one statement.
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt::Display,
    hash::Hash,
    sync::Arc,
};

use domain::{
    build::State,
    ids::{AppId, BuildId, InstallId, JobId, RunId, RunnerId},
};
use projections::{
    Projection,
    views::{
        apps::{self, Apps},
        builds::{self, Builds},
        installs::{self, Installs},
        jobs::{self, Jobs},
        runners::{self, Runners},
        runs::{self, Runs},
    },
};
use sqlx::PgPool;

use crate::state::App;

type Known<Id, Row> = HashMap<Id, Option<Arc<Row>>>;
type Found<Row> = Result<Option<Arc<Row>>, sqlx::Error>;
type Read = Result<(), sqlx::Error>;

/// Rows of views, as far as they were asked for.
pub struct Lookup<'a> {
    app: &'a App,
    pool: &'a PgPool,
    apps: Known<AppId, apps::Row>,
    builds: Known<BuildId, builds::Row>,
    installs: Known<InstallId, installs::Row>,
    jobs: Known<JobId, jobs::Row>,
    runners: Known<RunnerId, runners::Row>,
    runs: Known<RunId, runs::Row>,
    held: HashMap<RunnerId, Vec<JobId>>,
    build_runner: Option<Option<Arc<runners::Row>>>,
}

impl<'a> Lookup<'a> {
    /// Nothing is read yet.
    pub fn new(app: &'a App) -> Self {
        Lookup {
            app,
            pool: &app.pool,
            apps: HashMap::new(),
            builds: HashMap::new(),
            installs: HashMap::new(),
            jobs: HashMap::new(),
            runners: HashMap::new(),
            runs: HashMap::new(),
            held: HashMap::new(),
            build_runner: None,
        }
    }

    /// Read at once what a page of builds asks for one by one.
    pub async fn for_builds(&mut self, rows: &[builds::Row]) -> Read {
        fill::<Apps, _>(self.pool, &mut self.apps, rows.iter().map(|row| row.order.app)).await?;
        let jobs = rows.iter().filter_map(|row| match row.state {
            State::Building { job } => Some(job),
            State::Unborn | State::Requested | State::Succeeded { .. } | State::Failed { .. } => {
                None
            }
        });
        fill::<Jobs, _>(self.pool, &mut self.jobs, jobs).await
    }

    /// Read at once what a page of runs asks for one by one.
    pub async fn for_runs(&mut self, rows: &[runs::Row]) -> Read {
        let installs = rows.iter().filter_map(|row| Some(row.state.request.as_ref()?.install));
        fill::<Installs, _>(self.pool, &mut self.installs, installs).await
    }

    /// Read at once what a page of runners asks for one by one.
    pub async fn for_runners(&mut self, rows: &[runners::Row]) -> Read {
        let installs = rows.iter().filter_map(runners::Row::install);
        fill::<Installs, _>(self.pool, &mut self.installs, installs).await?;
        self.read_held(rows.iter().map(|row| row.runner).collect()).await
    }

    /// Read at once what a page of jobs asks for one by one.
    pub async fn for_jobs(&mut self, rows: &[jobs::Row]) -> Read {
        let builds = rows.iter().filter_map(jobs::Row::build);
        fill::<Builds, _>(self.pool, &mut self.builds, builds).await?;
        let runs = rows.iter().filter_map(|row| Some(row.step()?.0));
        fill::<Runs, _>(self.pool, &mut self.runs, runs).await?;
        // Only of what is not over is said what it waits for.
        let open = rows.iter().filter(|row| row.ended_at.is_none());
        let installs = open.filter_map(jobs::Row::install);
        fill::<Installs, _>(self.pool, &mut self.installs, installs).await?;
        let known = self.installs.values().flatten();
        let runners: Vec<_> = known.filter_map(|install| install.runner()).collect();
        fill::<Runners, _>(self.pool, &mut self.runners, runners.iter().copied()).await?;
        self.read_held(runners).await
    }

    /// An app.
    pub async fn app(&mut self, id: AppId) -> Found<apps::Row> {
        known(&mut self.apps, id, apps::app(self.pool, id)).await
    }

    /// A build.
    pub async fn build(&mut self, id: BuildId) -> Found<builds::Row> {
        known(&mut self.builds, id, builds::build(self.pool, id)).await
    }

    /// An install.
    pub async fn install(&mut self, id: InstallId) -> Found<installs::Row> {
        known(&mut self.installs, id, installs::install(self.pool, id)).await
    }

    /// A job.
    pub async fn job(&mut self, id: JobId) -> Found<jobs::Row> {
        known(&mut self.jobs, id, jobs::job(self.pool, id)).await
    }

    /// A runner.
    pub async fn runner(&mut self, id: RunnerId) -> Found<runners::Row> {
        known(&mut self.runners, id, runners::runner(self.pool, id)).await
    }

    /// Whether a runner is heard of, as far as this server knows: it knows of those whose session it holds.
    pub fn is_online(&self, runner: RunnerId) -> Option<bool> {
        let desk = self.app.dispatch.desk();
        let known = desk.roster.get(runner)?;
        let is_parked = known.session.as_ref()?.is_parked();
        Some(is_parked || known.heard.elapsed() < self.app.dispatch.timing().suspect)
    }

    /// Whether nothing was heard of a job for long enough to say so, and not yet long enough to act.
    pub fn is_suspect(&self, job: JobId) -> bool {
        self.app.dispatch.is_suspect(job)
    }

    /// A run.
    pub async fn run(&mut self, id: RunId) -> Found<runs::Row> {
        known(&mut self.runs, id, runs::run(self.pool, id)).await
    }

    /// The jobs of a run, by id.
    pub async fn jobs_of(&self, run: RunId) -> Result<BTreeMap<JobId, jobs::Row>, sqlx::Error> {
        let rows = jobs::of_run(self.pool, run).await?;
        Ok(rows.into_iter().map(|row| (row.job, row)).collect())
    }

    /// The jobs that a runner holds now.
    pub async fn held(&mut self, runner: RunnerId) -> Result<&[JobId], sqlx::Error> {
        if !self.held.contains_key(&runner) {
            self.read_held(vec![runner]).await?;
        }
        Ok(self.held.get(&runner).map(Vec::as_slice).unwrap_or_default())
    }

    async fn read_held(&mut self, runners: Vec<RunnerId>) -> Read {
        if runners.is_empty() {
            return Ok(());
        }
        let jobs = jobs::held_by(self.pool, &runners).await?;
        self.held.extend(runners.into_iter().map(|runner| (runner, Vec::new())));
        for job in jobs {
            let holder = job.held().map(|attempt| attempt.runner);
            if let Some(of) = holder.and_then(|runner| self.held.get_mut(&runner)) {
                of.push(job.job);
            }
        }
        Ok(())
    }

    /// A build runner that takes work; else any, to say what is the matter with it.
    pub async fn build_runner(&mut self) -> Found<runners::Row> {
        if let Some(known) = &self.build_runner {
            return Ok(known.clone());
        }
        let mut all = runners::of_builds(self.pool).await?;
        let fit = all.iter().position(|row| row.state.takes_work()).unwrap_or(0);
        let found = (!all.is_empty()).then(|| Arc::new(all.swap_remove(fit)));
        Ok(self.build_runner.insert(found).clone())
    }
}

/// Read at once those that are not known yet.
async fn fill<P: Projection, Id: Copy + Eq + Hash + Display>(
    pool: &PgPool,
    known: &mut Known<Id, P::Row>,
    ids: impl IntoIterator<Item = Id>,
) -> Read {
    let wanted: HashSet<Id> = ids.into_iter().filter(|id| !known.contains_key(id)).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let keys = wanted.iter().map(Id::to_string).collect();
    let mut rows = projections::many::<P>(pool, keys).await?;
    known.extend(wanted.into_iter().map(|id| (id, rows.remove(&id.to_string()).map(Arc::new))));
    Ok(())
}

async fn known<Id: Copy + Eq + Hash, Row>(
    known: &mut Known<Id, Row>,
    id: Id,
    read: impl Future<Output = Result<Option<Row>, sqlx::Error>>,
) -> Found<Row> {
    if let Some(row) = known.get(&id) {
        return Ok(row.clone());
    }
    let row = read.await?.map(Arc::new);
    known.insert(id, row.clone());
    Ok(row)
}
