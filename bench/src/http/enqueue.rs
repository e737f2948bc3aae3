//! One job per call: a retry of a failed build. The response comes when the command is durable. A
//! policy then queues the job, and the time until then is measured, too.
use std::{sync::Arc, time::Instant};

use measure::Run;
use schemas::runner::Outcome;

use crate::{
    builds::Builds,
    database::Database,
    runner_pool::{Doing, RunnerPool},
    server_process::ServerProcess,
};

/// Number of runners that fail queued jobs. Each may send 200 reports at once, and then 20 per
/// second.
const RUNNERS: usize = 64;
const SLOTS: u32 = 4;

pub struct Enqueue {
    builds: Builds,
    crew: RunnerPool,
    began: Instant,
    /// Number of failed builds so far.
    failed: i64,
}

impl Enqueue {
    /// Prepares this number of failed builds.
    pub async fn prepare(database: &Database, serving: &ServerProcess, builds: usize) -> Enqueue {
        let people = serving.people();
        let crew = RunnerPool::enrol(&people, &serving.runner, RUNNERS, SLOTS).await;
        let builds = Builds::sync(&people, builds).await;
        let mut enqueue = Enqueue { builds, crew, began: Instant::now(), failed: 0 };
        enqueue.until_queued(database).await;
        enqueue.fail(database).await;
        enqueue
    }

    /// Retries all builds with this number of concurrent callers.
    pub async fn ask(&mut self, callers: usize) -> Run {
        self.began = Instant::now();
        let calls = self.builds.retry(callers).await;
        Run { events: calls.len(), whole: self.began.elapsed(), calls }
    }

    /// Waits until the jobs of [`Enqueue::ask`] are queued. The time starts with the first request.
    pub async fn queued(&mut self, database: &Database) -> Run {
        self.until_queued(database).await;
        Run { events: self.builds.number(), whole: self.began.elapsed(), calls: Vec::new() }
    }

    /// Runs all jobs, and waits until each build has failed.
    pub async fn fail(&mut self, database: &Database) {
        let doing = Doing { outcome: Outcome::Failed, log: Arc::new([]) };
        self.crew.work(self.builds.number(), &doing).await;
        self.failed += self.builds.number() as i64;
        let failed = "select count(*) from stead.projection_builds where state = 'failed'";
        database.until(failed, self.failed).await;
    }

    async fn until_queued(&self, database: &Database) {
        let waiting = "select count(*) from stead.projection_job_queue where waiting";
        database.until(waiting, self.builds.number() as i64).await;
    }
}
