//! Cost of ten thousand runners on one server, and delivery of work to each of them.
//!
//! ```text
//! alone     `stead serve` as a separate process without runners: statements, memory, processor time
//! parked    the same with a long poll of each runner open
//! storm     a second server, in this process, queues one job per runner; each job is claimed once
//! restart   the first server is killed and started again; ends when each runner polls again
//! ```
//!
//! Runners call from addresses all over 127/8, because each address has only 28,000 ports. This
//! process and the server need a file descriptor for each runner.
mod report;

use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    path::Path,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use domain::ids::JobId;
use futures::{StreamExt as _, stream};
use tokio::{
    sync::mpsc::{self, UnboundedReceiver},
    task::JoinSet,
};

use crate::{
    agent::{Agent, MANY_SLOTS, RETRY_LATER_RESPONSES},
    command_line::{WorkDir, argument, block_on, check_arguments, has},
    database::Database,
    server,
    server_process::ServerProcess,
    wire::Wire,
};
use report::{Report, Window};

#[derive(Debug, Clone, Copy)]
pub struct Options {
    runners: usize,
    /// Time in seconds for which statements and processor time are counted.
    window_s: u64,
    json: bool,
}

const USAGE: &str = "stead-bench-fleet [--runners N] [--quick] [--json]";

/// Entry point of `scripts/bench fleet`.
pub fn main() {
    check_arguments(USAGE);
    let (otherwise, window_s) = if has("--quick") { (500, 10) } else { (10_000, 60) };
    let runners =
        argument("--runners").map_or(otherwise, |n| n.parse().expect("--runners must be a number"));
    block_on(run(Options { runners, window_s, json: has("--json") }));
}

async fn run(options: Options) {
    let work_dir = WorkDir::new();
    let [cluster, first, second] = ["cluster", "first", "second"].map(|name| work_dir.of(name));
    let database = Database::start(&cluster).await;
    let serving = ServerProcess::start(&database, &first, None).await;
    same_keys(&first, &second);
    let other = server::start(&database, &second).await;

    eprintln!("  {} tokens", options.runners);
    let mut tokens = server::tokens(&other.app, options.runners + 1).await;
    // One runner enrols first, so that one-time costs of the server do not count as the cost of a
    // runner.
    drop(Agent::enrol(&serving.runner, &tokens.pop().unwrap()).await);
    tokio::time::sleep(Duration::from_secs(3)).await;
    eprintln!("  counting statements and processor time without runners");
    let alone = window(&database, &serving, options).await;

    eprintln!("  enrolling");
    let began = Instant::now();
    let agents =
        stream::iter(tokens.iter().enumerate()).map(|(number, token)| {
            let runner = &serving.runner;
            async move {
                Agent::enrol_over(Wire::from_to(address(number), runner), token, MANY_SLOTS).await
            }
        });
    let agents: Vec<Agent> = agents.buffer_unordered(32).collect().await;
    let enrolled = began.elapsed();
    let (mut fleet, mut claimed) = at_work(agents);
    until_parked(&serving, options.runners).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    eprintln!("  counting statements and processor time with all runners");
    let crowded = window(&database, &serving, options).await;

    eprintln!("  storm");
    let storm = storm(&other.app, &mut claimed, options.runners).await;

    eprintln!("  restart");
    let addresses = serving.addresses();
    let began = Instant::now();
    serving.kill();
    let serving = ServerProcess::start(&database, &first, Some(addresses)).await;
    let ready = began.elapsed();
    until_parked(&serving, options.runners).await;
    let restart = report::Restart { ready, parked: began.elapsed() };

    fleet.shutdown().await;
    other.stop().await;
    drop(serving);
    let settings = database.settings().await;
    database.stop().await;
    let report =
        Report { runners: options.runners, settings, enrolled, alone, crowded, storm, restart };
    match options.json {
        true => println!("{:#}", report.json()),
        false => println!("{}", report.markdown()),
    }
}

/// Copies the keys: two servers on one database sign with the same keys.
fn same_keys(first: &Path, second: &Path) {
    let (from, to) = (first.join("keys"), second.join("keys"));
    let copied = std::process::Command::new("cp").arg("-a").args([from, to]).status().unwrap();
    assert!(copied.success());
}

/// Source address of a runner. 250 runners share one address.
fn address(number: usize) -> Ipv4Addr {
    let (third, fourth) = (number / 250 + 1, number % 250 + 1);
    Ipv4Addr::new(127, 1, u8::try_from(third).unwrap(), u8::try_from(fourth).unwrap())
}

/// Starts all runners, which poll, claim jobs and finish them. The receiver gets the time of each
/// claim.
fn at_work(agents: Vec<Agent>) -> (JoinSet<()>, UnboundedReceiver<(JobId, Instant)>) {
    let (claims, claimed) = mpsc::unbounded_channel();
    let mut fleet = JoinSet::new();
    for mut agent in agents {
        let claims = claims.clone();
        fleet.spawn(async move {
            loop {
                for job in agent.poll_on().await {
                    if let Some(execution) = agent.claim(job).await {
                        let claimed = Instant::now();
                        agent.finish(job, execution).await;
                        // Sent last, because the receiver may kill the server after the last claim.
                        let _sent = claims.send((job, claimed));
                    }
                }
            }
        });
    }
    (fleet, claimed)
}

/// Queues one job per runner as fast as possible, at a server without runners.
async fn storm(
    app: &api::App,
    claimed: &mut UnboundedReceiver<(JobId, Instant)>,
    jobs: usize,
) -> report::Storm {
    let began = Instant::now();
    let app = Arc::new(app.clone());
    let queueing = tokio::spawn(async move {
        let queued = stream::iter(0..jobs).map(|_| {
            let app = Arc::clone(&app);
            async move { (server::queue(&app).await, Instant::now()) }
        });
        queued.buffer_unordered(64).collect::<BTreeMap<JobId, Instant>>().await
    });
    let mut times = BTreeMap::new();
    while times.len() < jobs {
        let next = tokio::time::timeout(Duration::from_secs(60), claimed.recv()).await;
        let Ok(Some((job, at))) = next else {
            panic!("{} of {jobs} jobs were claimed, then none for a minute", times.len());
        };
        assert!(times.insert(job, at).is_none(), "{job} was claimed twice");
    }
    let all_claimed = began.elapsed();
    let queued = queueing.await.unwrap();
    let all_queued = queued.values().max().unwrap().duration_since(began);
    let waits = queued.iter().map(|(job, at)| times[job].saturating_duration_since(*at));
    let asked_to_wait = RETRY_LATER_RESPONSES.swap(0, Ordering::Relaxed);
    report::Storm { jobs, all_queued, all_claimed, asked_to_wait, waits: waits.collect() }
}

async fn window(database: &Database, server: &ServerProcess, options: Options) -> Window {
    database.reset().await;
    let (statements, processor) = (database.statements().await, server.processor());
    let began = Instant::now();
    tokio::time::sleep(Duration::from_secs(options.window_s)).await;
    let seconds = began.elapsed().as_secs_f64();
    Window {
        unit: database.unit(),
        statements_a_minute: (database.statements().await - statements) as f64 * 60.0 / seconds,
        processor: (server.processor() - processor).as_secs_f64() / seconds,
        resident: server.resident(),
    }
}

async fn until_parked(server: &ServerProcess, number: usize) {
    let began = Instant::now();
    while server.parked().await != number as u64 {
        let late = began.elapsed() > Duration::from_secs(300);
        assert!(
            !late,
            "timeout: {} of {number} runners have an open long poll",
            server.parked().await
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
