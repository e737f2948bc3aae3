//! One job for each call: a build that failed is asked for again. The answer comes when that is durable; a policy then
//! puts the job into the queue, and that is waited for, too.
use std::{sync::Arc, time::Instant};

use event_log::testing::measure::Run;
use schemas::runner::Outcome;

use crate::{
    builds::Builds,
    crew::{Crew, Doing},
    database::Database,
    serving::Serving,
};

/// Runners who fail what was queued. Each may make 200 reports at once, and then 20 a second.
const RUNNERS: usize = 64;
const SLOTS: u32 = 4;

pub struct Enqueue {
    builds: Builds,
    crew: Crew,
    began: Instant,
    /// How many builds have failed so far.
    failed: i64,
}

impl Enqueue {
    /// So many builds that have failed.
    pub async fn prepare(database: &Database, serving: &Serving, builds: usize) -> Enqueue {
        let people = serving.people();
        let crew = Crew::enrol(&people, &serving.runner, RUNNERS, SLOTS).await;
        let builds = Builds::sync(&people, builds).await;
        let mut enqueue = Enqueue { builds, crew, began: Instant::now(), failed: 0 };
        enqueue.until_queued(database).await;
        enqueue.fail(database).await;
        enqueue
    }

    /// All of them once more, so many at once.
    pub async fn ask(&mut self, callers: usize) -> Run {
        self.began = Instant::now();
        let calls = self.builds.retry(callers).await;
        Run { events: calls.len(), whole: self.began.elapsed(), calls }
    }

    /// Until the jobs of [`Enqueue::ask`] are in the queue, from when the first of them was asked for.
    pub async fn queued(&mut self, database: &Database) -> Run {
        self.until_queued(database).await;
        Run { events: self.builds.number(), whole: self.began.elapsed(), calls: Vec::new() }
    }

    /// Work all of them off, and wait until each build has failed.
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
