//! Cost of waiting runners: statements, and memory of a server in a separate process.
use std::{path::Path, time::Duration};

use tokio::task::JoinSet;

use super::Options;
use crate::{
    agent::MANY_SLOTS, database::Database, runner_pool::RunnerPool, server_process::ServerProcess,
};

/// Statements of one period with their counts.
pub struct Window {
    pub a_minute: f64,
    pub busiest: Vec<(String, i64)>,
}

pub struct Parked {
    pub unit: &'static str,
    pub alone: Window,
    pub crowded: Window,
    /// Resident memory of the server in bytes: without runners, and with an open long poll of each
    /// runner.
    pub memory: (u64, u64),
}

pub async fn measure(database: &Database, data: &Path, options: Options) -> Parked {
    let server = ServerProcess::start(database, data, None).await;
    // One runner enrols first, so that one-time costs of the server do not count as the cost of a
    // runner.
    drop(RunnerPool::enrol(&server.client(), &server.runner, 1, MANY_SLOTS).await);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let before = server.resident();
    eprintln!("  counting database statements without runners");
    let alone = window(database, options.window_s).await;
    let runners = options.runners - 1;
    let runner_pool =
        RunnerPool::enrol(&server.client(), &server.runner, runners, MANY_SLOTS).await;
    let number = runners as u64;
    let mut polls = JoinSet::new();
    for mut agent in runner_pool.agents() {
        polls.spawn(async move {
            loop {
                assert!(agent.poll().await.is_empty(), "no job must be offered");
            }
        });
    }
    until_parked(&server, number).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    eprintln!("  counting database statements with {number} runners");
    let crowded = window(database, options.window_s).await;
    let after = server.resident();
    assert_eq!(server.parked().await, number, "every runner must still have an open long poll");
    polls.shutdown().await;
    Parked { unit: database.unit(), alone, crowded, memory: (before, after) }
}

async fn window(database: &Database, seconds: u64) -> Window {
    database.reset().await;
    let before = database.statements().await;
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let after = database.statements().await;
    let a_minute = (after - before) as f64 * 60.0 / seconds as f64;
    Window { a_minute, busiest: database.busiest().await }
}

async fn until_parked(server: &ServerProcess, number: u64) {
    for _ in 0..300 {
        if server.parked().await == number {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("timeout: {} of {number} runners have an open long poll", server.parked().await);
}
