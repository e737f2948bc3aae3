//! One job per call: a retry of a failed build. The response comes when the command is durable. The
//! benchmark also measures the time until a policy has queued the job.
use std::{sync::Arc, time::Instant};

use measure::Run;
use schemas::runner::Outcome;

use crate::{
    builds::Builds,
    database::Database,
    runner_pool::{JobResult, RunnerPool},
    server_process::ServerProcess,
};

/// Number of runners that fail queued jobs. Each may send 200 reports at once, and then 20 per
/// second.
const RUNNERS: usize = 64;
const SLOTS: u32 = 4;

pub struct Enqueue {
    builds: Builds,
    runner_pool: RunnerPool,
    began: Instant,
    /// Number of failed builds so far.
    failed: i64,
}

impl Enqueue {
    /// Prepares this number of failed builds.
    pub async fn prepare(database: &Database, serving: &ServerProcess, builds: usize) -> Enqueue {
        let client = serving.client();
        let runner_pool = RunnerPool::enrol(&client, &serving.runner, RUNNERS, SLOTS).await;
        let builds = Builds::sync(&client, builds).await;
        let mut enqueue = Enqueue { builds, runner_pool, began: Instant::now(), failed: 0 };
        enqueue.until_queued(database).await;
        enqueue.fail(database).await;
        enqueue
    }

    /// Retries all builds with this number of concurrent callers.
    pub async fn request(&mut self, callers: usize) -> Run {
        self.began = Instant::now();
        let calls = self.builds.retry(callers).await;
        Run { events: calls.len(), whole: self.began.elapsed(), calls }
    }

    /// Waits until the jobs of [`Enqueue::request`] are queued. The time starts with the first
    /// request.
    pub async fn queued(&mut self, database: &Database) -> Run {
        self.until_queued(database).await;
        Run { events: self.builds.number(), whole: self.began.elapsed(), calls: Vec::new() }
    }

    /// Runs all jobs, and waits until each build has failed.
    pub async fn fail(&mut self, database: &Database) {
        let result = JobResult { outcome: Outcome::Failed, log: Arc::new([]) };
        self.runner_pool.work(self.builds.number(), &result).await;
        self.failed += self.builds.number() as i64;
        let failed = "select count(*) from stead.projection_builds where state = 'failed'";
        database.until(failed, self.failed).await;
    }

    async fn until_queued(&self, database: &Database) {
        let waiting = "select count(*) from stead.projection_job_queue where waiting";
        database.until(waiting, self.builds.number() as i64).await;
    }
}
