//! Reads the rows to which the rows of a response refer.
mod pages;

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
    sync::Arc,
};

use domain::{
    actor::Actor,
    app::App as AppState,
    ids::{AppId, BuildId, InstallId, JobId, PrincipalId, RunId, RunnerId},
};
use projections::views::{
    apps, builds, config_versions, installs, jobs, runners, runs,
    waiting::{Contact, JobRunner},
};
use schemas::control::runners::RunnerSession;
use sqlx::PgPool;

use crate::{
    configs::{Config, published},
    problem::Problem,
    state::App,
};

type RowCache<Id, Row> = HashMap<Id, Option<Arc<Row>>>;
type LookupResult<Row> = Result<Option<Arc<Row>>, sqlx::Error>;

/// Cache of projection rows for one response.
pub(crate) struct Lookup<'a> {
    app: &'a App,
    pool: &'a PgPool,
    apps: RowCache<AppId, apps::Row>,
    builds: RowCache<BuildId, builds::Row>,
    installs: RowCache<InstallId, installs::Row>,
    jobs: RowCache<JobId, jobs::Row>,
    runners: RowCache<RunnerId, runners::Row>,
    runs: RowCache<RunId, runs::Row>,
    versions: HashMap<(AppId, u32), config_versions::Row>,
    names: HashMap<PrincipalId, String>,
    claimed_jobs: HashMap<RunnerId, Vec<JobId>>,
    build_runner: Option<Option<Arc<runners::Row>>>,
}

impl<'a> Lookup<'a> {
    /// Creates an empty cache.
    pub(crate) fn new(app: &'a App) -> Self {
        Lookup {
            app,
            pool: &app.pool,
            apps: HashMap::new(),
            builds: HashMap::new(),
            installs: HashMap::new(),
            jobs: HashMap::new(),
            runners: HashMap::new(),
            runs: HashMap::new(),
            versions: HashMap::new(),
            names: HashMap::new(),
            claimed_jobs: HashMap::new(),
            build_runner: None,
        }
    }

    /// Name of a principal, if `for_actors` has read it.
    pub(crate) fn name(&self, actor: &Actor) -> Option<String> {
        self.names.get(&principal(actor)?).cloned()
    }

    /// Returns the parsed config of a version.
    pub(crate) async fn config(&self, app: AppId, version: u32) -> Result<Arc<Config>, Problem> {
        let published = match self.versions.get(&(app, version)) {
            Some(row) => row.published.clone(),
            // The projection of versions may lag behind that of the installs.
            None => published(&self.app.engine.load::<AppState>(app).await?, version)?.clone(),
        };
        self.app.configs.get(self.pool, &published).await
    }

    pub(crate) async fn app(&mut self, id: AppId) -> LookupResult<apps::Row> {
        cached_or_read(&mut self.apps, id, apps::app(self.pool, id)).await
    }

    pub(crate) async fn build(&mut self, id: BuildId) -> LookupResult<builds::Row> {
        cached_or_read(&mut self.builds, id, builds::build(self.pool, id)).await
    }

    pub(crate) async fn install(&mut self, id: InstallId) -> LookupResult<installs::Row> {
        cached_or_read(&mut self.installs, id, installs::install(self.pool, id)).await
    }

    pub(crate) async fn job(&mut self, id: JobId) -> LookupResult<jobs::Row> {
        cached_or_read(&mut self.jobs, id, jobs::job(self.pool, id)).await
    }

    pub(crate) async fn runner(&mut self, id: RunnerId) -> LookupResult<runners::Row> {
        cached_or_read(&mut self.runners, id, runners::runner(self.pool, id)).await
    }

    /// Contact state of a runner, if this server holds its session.
    pub(crate) fn contact(&self, runner: RunnerId) -> Option<Contact> {
        self.app.dispatch.contact(runner)
    }

    /// Session of a runner, if this server holds it.
    pub(crate) fn session(&self, runner: RunnerId) -> Option<RunnerSession> {
        self.app.dispatch.described_session(runner)
    }

    /// Runner that a job waits for, with its contact state.
    pub(crate) fn with_contact<'r>(&self, row: &'r runners::Row) -> JobRunner<'r> {
        JobRunner { row, contact: self.contact(row.runner) }
    }

    /// Returns `true` if a job's runner is out of contact, but not long enough for the job to count
    /// as disconnected.
    pub(crate) fn is_suspect(&self, job: JobId) -> bool {
        self.app.dispatch.is_suspect(job)
    }

    pub(crate) async fn run(&mut self, id: RunId) -> LookupResult<runs::Row> {
        cached_or_read(&mut self.runs, id, runs::run(self.pool, id)).await
    }

    /// Jobs of a run, by id.
    pub(crate) async fn jobs_of(
        &self,
        run: RunId,
    ) -> Result<BTreeMap<JobId, jobs::Row>, sqlx::Error> {
        let rows = jobs::of_run(self.pool, run).await?;
        Ok(rows.into_iter().map(|row| (row.job, row)).collect())
    }

    /// Jobs that the runner has claimed and not finished.
    pub(crate) async fn claimed_jobs(&mut self, runner: RunnerId) -> Result<&[JobId], sqlx::Error> {
        if !self.claimed_jobs.contains_key(&runner) {
            self.read_claimed_jobs(vec![runner]).await?;
        }
        Ok(self.claimed_jobs.get(&runner).map(Vec::as_slice).unwrap_or_default())
    }

    async fn read_claimed_jobs(&mut self, runners: Vec<RunnerId>) -> Result<(), sqlx::Error> {
        if runners.is_empty() {
            return Ok(());
        }
        let jobs = jobs::held_by(self.pool, &runners).await?;
        self.claimed_jobs.extend(runners.into_iter().map(|runner| (runner, Vec::new())));
        for job in jobs {
            let holder = job.held().map(|attempt| attempt.runner);
            if let Some(of) = holder.and_then(|runner| self.claimed_jobs.get_mut(&runner)) {
                of.push(job.job);
            }
        }
        Ok(())
    }

    /// Returns a build runner that accepts work. If there is none, returns any build runner, to
    /// show why it accepts none.
    pub(crate) async fn build_runner(&mut self) -> LookupResult<runners::Row> {
        if let Some(known) = &self.build_runner {
            return Ok(known.clone());
        }
        let mut all = runners::of_builds(self.pool).await?;
        let fit = all.iter().position(|row| row.state.takes_work()).unwrap_or(0);
        let found = (!all.is_empty()).then(|| Arc::new(all.swap_remove(fit)));
        Ok(self.build_runner.insert(found).clone())
    }
}

fn principal(actor: &Actor) -> Option<PrincipalId> {
    match actor {
        Actor::Principal(id) => Some(*id),
        Actor::Runner(_) | Actor::Policy(_) | Actor::Timer(_) | Actor::System => None,
    }
}

async fn cached_or_read<Id: Copy + Eq + Hash, Row>(
    known: &mut RowCache<Id, Row>,
    id: Id,
    read: impl Future<Output = Result<Option<Row>, sqlx::Error>>,
) -> LookupResult<Row> {
    if let Some(row) = known.get(&id) {
        return Ok(row.clone());
    }
    let row = read.await?.map(Arc::new);
    known.insert(id, row.clone());
    Ok(row)
}
