//! Job queues from npm, each in its own Node process.
use std::{path::Path, process::Command, time::Duration};

use measure::Run;
use serde::Deserialize;
use sqlx::Executor as _;

use super::cells::{Other, Tuning};
use crate::database::Database;

/// Results of both modes.
pub struct Both {
    pub together: Run,
    pub drained: Run,
}

#[derive(Deserialize)]
struct Output {
    together: Finished,
    drained: Finished,
}

/// Number of jobs and their time in µs.
#[derive(Deserialize)]
struct Finished {
    jobs: usize,
    whole: f64,
}

impl Finished {
    fn run(&self) -> Run {
        let whole = Duration::from_secs_f64(self.whole / 1e6);
        Run { events: self.jobs, whole, calls: Vec::new() }
    }
}

/// Runs this job queue in a temporary database.
pub async fn run(
    database: &Database,
    modules: &Path,
    other: Other,
    tuning: Tuning,
    jobs: usize,
    period: Duration,
) -> Both {
    let postgres = database.anchor();
    postgres.execute("create database other").await.unwrap();
    let mut node = Command::new("node");
    node.arg(modules.join(other.script())).arg(database.cluster.url("other"));
    // The slowest job queue finishes twelve jobs per second. Its script stops at this limit, and
    // reports the number of finished jobs.
    let seconds = period.as_secs() * 3;
    node.args([tuning.name(), &jobs.to_string(), &seconds.to_string()]);
    let done = tokio::task::spawn_blocking(move || node.output()).await.unwrap().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let output: Output = serde_json::from_slice(&done.stdout).unwrap();
    postgres.execute("drop database other with (force)").await.unwrap();
    Both { together: output.together.run(), drained: output.drained.run() }
}
