//! Stead: a server in this process, runners over loopback.
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use api::server::Server;
use measure::Run;
use schemas::runner::Outcome;

use crate::{
    builds::Builds,
    database::Database,
    runner_pool::{JobResult, RunnerPool, Worked},
    server,
};

/// Number of runners. Each one may make 200 calls about jobs at once, and then 20 per second. With
/// this number, no runner waits for its limit.
const RUNNERS: usize = 256;
const SLOTS: u32 = 8;
/// Number of concurrent callers that queue jobs, as for the other contenders.
const CALLERS: usize = 16;
/// Log chunk of a short job.
const CHUNK: &str =
    r#"{"n":1,"t":1204,"s":"o","p":"run","m":"Nothing to do. Everything is as it should be."}"#;

pub struct Ours {
    server: Server,
    runner_pool: RunnerPool,
    builds: Builds,
    /// Number of failed builds so far.
    failed: i64,
}

impl Ours {
    /// Starts a server and its runners, and prepares this number of failed builds.
    pub async fn start(database: &Database, data: &Path, builds: usize) -> Ours {
        let server = server::start(database, data).await;
        let client = server::client(&server);
        let mut runner_pool =
            RunnerPool::enrol(&client, &server.ready.runner, RUNNERS, SLOTS).await;
        let builds = Builds::sync(&client, builds).await;
        runner_pool.work(builds.number(), &job_result(Outcome::Failed)).await;
        let failed = builds.number() as i64;
        until_failed(database, failed).await;
        Ours { server, runner_pool, builds, failed }
    }

    /// Queues jobs with [`CALLERS`] concurrent callers while the runners work.
    pub async fn together(&mut self, jobs: usize) -> Run {
        let start = Instant::now();
        let job_result = job_result(Outcome::Succeeded);
        let (worked, ()) =
            tokio::join!(self.runner_pool.work(jobs, &job_result), queue(&self.server, jobs));
        run(start, worked.until, worked)
    }

    /// Queues all jobs before the runners start to work.
    pub async fn drained(&mut self, jobs: usize) -> Run {
        queue(&self.server, jobs).await;
        let start = Instant::now();
        let worked = self.runner_pool.work(jobs, &job_result(Outcome::Succeeded)).await;
        run(start, worked.until, worked)
    }

    /// Retries builds over HTTP while the runners work, until all builds have failed again.
    pub async fn builds(&mut self, database: &Database) -> Run {
        let (start, jobs) = (Instant::now(), self.builds.number());
        let job_result = job_result(Outcome::Failed);
        self.failed += jobs as i64;
        let (worked, _, ended) = tokio::join!(
            self.runner_pool.work(jobs, &job_result),
            self.builds.retry(CALLERS),
            until_failed(database, self.failed)
        );
        run(start, ended, worked)
    }

    pub async fn stop(self) {
        self.server.stop().await;
    }
}

fn run(start: Instant, end: Instant, worked: Worked) -> Run {
    Run { events: worked.calls.len(), whole: end - start, calls: worked.calls }
}

/// Time at which this number of builds had failed.
async fn until_failed(database: &Database, expected: i64) -> Instant {
    let failed = "select count(*) from stead.projection_builds where state = 'failed'";
    database.until(failed, expected).await;
    Instant::now()
}

fn job_result(outcome: Outcome) -> JobResult {
    JobResult { outcome, log: format!("{CHUNK}\n").into_bytes().into() }
}

async fn queue(server: &Server, jobs: usize) {
    let next = Arc::new(AtomicUsize::new(0));
    let callers = (0..CALLERS).map(|_| {
        let (app, next) = (server.app.clone(), Arc::clone(&next));
        tokio::spawn(async move {
            while next.fetch_add(1, Ordering::Relaxed) < jobs {
                server::queue(&app).await;
            }
        })
    });
    futures::future::join_all(callers).await.into_iter().for_each(Result::unwrap);
}
