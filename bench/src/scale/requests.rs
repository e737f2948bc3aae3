//! Operations whose cost must not grow with history.
use std::{
    path::Path,
    time::{Duration, Instant},
};

use crate::{
    agent::{Agent, MANY_SLOTS},
    api_client::ApiClient,
    command_line::BenchOptions,
    database::Database,
    http::commands,
    load::claims::{self, Claims},
    runner_pool::RunnerPool,
    server_process::ServerProcess,
};

use super::table::Table;

/// Measured reads: pages of projections, with and without filters, and of the log.
const PAGES: [&str; 15] = [
    "/v1/apps",
    "/v1/apps/shop-0/versions",
    "/v1/builds",
    "/v1/installs",
    "/v1/installs/ins_00000000000000000000000008",
    "/v1/runs",
    "/v1/runs?state=succeeded",
    "/v1/runs?install=ins_00000000000000000000000008",
    "/v1/jobs",
    "/v1/jobs?state=succeeded",
    "/v1/jobs?install=ins_00000000000000000000000008",
    "/v1/runners",
    "/v1/tokens",
    "/v1/audit/events?after=500",
    "/v1/audit/checkpoint",
];

pub async fn measure(database: &Database, data: &Path, options: BenchOptions, table: &mut Table) {
    let starts = options.choose(2, 7);
    table.times("`stead serve` until it is ready", starts_of(database, data, starts).await);
    let serving = ServerProcess::start(database, data, None).await;
    let client = serving.client();
    for callers in [1, 64] {
        let run = commands::run(database, &client, callers, false, options.period).await;
        if callers == 1 {
            table.times("command over HTTP → one event, 1 caller", run.calls);
        } else {
            let rate = run.events as f64 / run.whole.as_secs_f64();
            table.figure("command over HTTP → one event, 64 callers", "events/s", rate);
        }
    }
    for path in PAGES {
        table.times(&format!("GET {path}"), pages(&client, path, options.choose(5, 50)).await);
    }
    let runner_pool = RunnerPool::enrol(&client, &serving.runner, 1, MANY_SLOTS).await;
    let agent = runner_pool.agents().remove(0);
    table.times("poll that does not wait", polls(agent, options.choose(5, 50)).await);
    drop(serving);
    let Claims { queued, commits, .. } =
        claims::measure(database, data, options.choose(50, 500)).await;
    table.times("job queued (acknowledged) → response to the claim", queued);
    table.times("a bare one-row commit, in turns with it", commits);
}

async fn starts_of(database: &Database, data: &Path, number: usize) -> Vec<Duration> {
    let mut times = Vec::new();
    for _ in 0..number {
        let began = Instant::now();
        let serving = ServerProcess::start(database, data, None).await;
        times.push(began.elapsed());
        drop(serving);
    }
    times
}

async fn pages(client: &ApiClient, path: &str, number: usize) -> Vec<Duration> {
    let (mut wire, mut times) = (client.wire(), Vec::new());
    // The first request opens the connection.
    for _ in 0..=number {
        let request = client.get(path);
        let began = Instant::now();
        let response = wire.send(request).await.unwrap();
        times.push(began.elapsed());
        assert!(response.status.is_success(), "{path}: {:?}", response.body);
    }
    times.split_off(1)
}

async fn polls(mut agent: Agent, number: usize) -> Vec<Duration> {
    let mut times = Vec::new();
    for _ in 0..number {
        let began = Instant::now();
        let jobs = agent.poll_for(0).await;
        times.push(began.elapsed());
        assert!(jobs.is_empty(), "no job must be offered");
    }
    times
}
