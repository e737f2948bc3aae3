//! What an answer about one thing says of others: each is read once per answer.
use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
    sync::Arc,
};

use domain::ids::{AppId, BuildId, InstallId, JobId, RunId, RunnerId};
use projections::views::{apps, builds, installs, jobs, runners, runs};
use sqlx::PgPool;

use crate::state::App;

type Known<Id, Row> = HashMap<Id, Option<Arc<Row>>>;
type Found<Row> = Result<Option<Arc<Row>>, sqlx::Error>;

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
        }
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
    pub async fn held(&self, runner: RunnerId) -> Result<Vec<jobs::Row>, sqlx::Error> {
        jobs::held_by(self.pool, runner).await
    }

    /// A build runner that takes work; else any, to say what is the matter with it.
    pub async fn build_runner(&self) -> Result<Option<runners::Row>, sqlx::Error> {
        let mut all = runners::of_builds(self.pool).await?;
        let fit = all.iter().position(|row| row.state.takes_work()).unwrap_or(0);
        Ok(if all.is_empty() { None } else { Some(all.swap_remove(fit)) })
    }
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
