//! Measures appends against single-row transactions, against bulk rows, and against other
//! event stores on Postgres. All of them run alternately, on one private Postgres with fsync:
//!
//!     cargo bench -p event-log --features testing --bench append -- --rounds 5 --seconds 3
//!
//! Each append of Stead includes: stream guard, idempotency key, chain, tree and an inline
//! projection. One command in twenty is rejected as a conflict and does not count. The other
//! systems have no conflicts, keys, chain, tree or projection. The benchmark counts the rows
//! afterwards.
//!
//! `--npm DIR` names a directory where `bench/npm` was installed. Without it,
//! emmett-postgresql and message-db are skipped, with a message. `--only CALLERS` compares
//! one number of callers with INSERT. `--json` prints JSON.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a benchmark that fails has no result"
)]
#![allow(clippy::disallowed_methods, reason = "measurements create ids and start tasks themselves")]
mod cells;
mod copy;
mod emmett;
mod message_db;
mod ours;
mod postgres_es;

use std::{path::PathBuf, time::Duration};

use event_log::testing::{Cluster, Database, fresh_in};
use measure::{Conditions, Figure, Meter, Report, Run, cluster_settings, pgbench, spread};

use cells::{CELLS, Cell, RATIOS};

/// The allocator that the server also uses.
#[global_allocator]
static MEMORY: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() {
    let params = RoundParams {
        rounds: number("--rounds", 5),
        period: Duration::from_secs(number("--seconds", 3)),
        only: number("--only", 0) as usize,
        modules: argument("--npm").map(PathBuf::from),
        json: std::env::args().any(|argument| argument == "--json"),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = { runtime }.enable_all().worker_threads(2).build().unwrap();
    runtime.block_on(run(params));
}

struct RoundParams {
    rounds: u64,
    period: Duration,
    /// Number of callers to compare with INSERT; 0 runs all cases.
    only: usize,
    /// Directory with the packages from npm.
    modules: Option<PathBuf>,
    json: bool,
}

async fn run(params: RoundParams) {
    let directory = std::env::temp_dir().join(format!("stead-bench-{}", std::process::id()));
    let cluster = Cluster::start(&directory, cluster_settings()).await.unwrap();
    if params.modules.is_none() && params.only == 0 {
        eprintln!("SKIPPED: emmett-postgresql and message-db, without --npm DIR");
    }
    let (mut report, mut verified) = (Report::of("events", RATIOS), Vec::new());
    let mut conditions = None;
    for round in 1..=params.rounds {
        eprintln!("round {round} of {}", params.rounds);
        // Each round has its own database, so that rows of an earlier round do not slow down its
        // appends.
        let database = fresh_in(&cluster).await.unwrap();
        verified.push(one_round(&params, &cluster, &database, &mut report).await);
        conditions = Some(Conditions::of(&database.pool, params.rounds, params.period).await);
        database.pool.close().await;
    }
    cluster.remove().unwrap();
    let conditions = conditions.expect("--rounds must be at least 1");
    if params.json {
        let mut json = report.json(&conditions);
        json["verified_events_per_second"] = verified.into();
        println!("{json:#}");
    } else {
        println!("{}", report.markdown(&conditions));
        let verified = spread(verified.into_iter(), 0);
        println!("The log verified after each round: {verified} events/s.");
    }
}

/// Runs each case once. Returns the number of Stead events verified per second afterwards.
async fn one_round(
    params: &RoundParams,
    cluster: &Cluster,
    database: &Database,
    report: &mut Report<Cell>,
) -> f64 {
    let period = params.period;
    pgbench::prepare(&database.pool).await;
    postgres_es::prepare(&database.pool).await;
    let ours = ours::SteadLog::open(database).await;
    let cells = match (params.only, &params.modules) {
        (0, None) => CELLS.iter().copied().filter(|cell| !cell.is_of_npm()).collect(),
        (0, Some(_)) => CELLS.to_vec(),
        (only, _) => vec![Cell::Insert(only), Cell::Stead(only)],
    };
    if let Some(modules) = params.modules.as_ref().filter(|_| params.only == 0) {
        message_db::install(cluster, database, modules);
    }
    for cell in cells {
        let meter = Meter::start(cluster.pid().unwrap(), &[]);
        let run: Run = match cell {
            Cell::Insert(n) => pgbench::insert(cluster, &database.pool, n, period).await,
            Cell::Stead(n) => ours.run(n, period).await,
            Cell::PostgresEs(n) => postgres_es::run(database, n, period).await,
            Cell::MessageDb(n) => message_db::run(cluster, database, n, period).await,
            Cell::Emmett(n) => {
                emmett::run(database, params.modules.clone().unwrap(), n, period).await
            }
            Cell::CopyIn => copy::copy_in(database, period).await,
            Cell::CopyOut => copy::copy_out(database).await,
        };
        report.add(cell, Figure::of(run, meter.stop()));
    }
    ours.check(database).await
}

fn argument(name: &str) -> Option<String> {
    std::env::args().skip_while(|argument| argument != name).nth(1)
}

fn number(name: &str, otherwise: u64) -> u64 {
    argument(name).and_then(|value| value.parse().ok()).unwrap_or(otherwise)
}
