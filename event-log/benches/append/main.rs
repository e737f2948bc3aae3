//! How fast is an append, measured against what Postgres does with one row per transaction, with rows in bulk, and
//! against other event stores on Postgres? In one run, on one private Postgres with fsync, in turns:
//!
//!     cargo bench -p event-log --features testing --bench append -- --rounds 5 --seconds 3
//!
//! Ours does per event: stream guard, idempotency key, chain, tree, a synchronous view; every twentieth command
//! is refused as a conflict and does not count. Theirs do none of that. Rows are counted afterwards.
//!
//! `--npm DIR` names a directory where `bench/npm` was installed; without it emmett-postgresql and message-db are
//! left out, and said to be. `--only CALLERS` compares one number of callers with INSERT. `--json` for programs.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a benchmark that fails has no result"
)]
mod cells;
mod copy;
mod emmett;
mod message_db;
mod ours;
mod postgres_es;

use std::{path::PathBuf, time::Duration};

use event_log::testing::{
    Cluster, Database, fresh_in,
    measure::{Conditions, Figure, Meter, Report, Run, cluster_settings, pgbench, spread},
};

use cells::{CELLS, Cell, RATIOS};

/// As in the program that serves.
#[global_allocator]
static MEMORY: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() {
    let ask = Ask {
        rounds: number("--rounds", 5),
        period: Duration::from_secs(number("--seconds", 3)),
        only: number("--only", 0) as usize,
        modules: argument("--npm").map(PathBuf::from),
        json: std::env::args().any(|argument| argument == "--json"),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = { runtime }.enable_all().worker_threads(2).build().unwrap();
    runtime.block_on(run(ask));
}

/// What the command line asks for.
struct Ask {
    rounds: u64,
    period: Duration,
    /// Only so many callers, against INSERT.
    only: usize,
    /// Where the competitors from npm are.
    modules: Option<PathBuf>,
    json: bool,
}

async fn run(ask: Ask) {
    let directory = std::env::temp_dir().join(format!("stead-bench-{}", std::process::id()));
    let cluster = Cluster::start(&directory, &cluster_settings()).await.unwrap();
    if ask.modules.is_none() && ask.only == 0 {
        eprintln!("SKIPPED: emmett-postgresql and message-db, without --npm DIR");
    }
    let (mut report, mut verified) = (Report::of("events", RATIOS), Vec::new());
    let mut conditions = None;
    for round in 1..=ask.rounds {
        eprintln!("round {round} of {}", ask.rounds);
        // A database of its own per round: no round pays for the rows of another.
        let database = fresh_in(&cluster).await.unwrap();
        verified.push(one_round(&ask, &cluster, &database, &mut report).await);
        conditions = Some(Conditions::of(&database.pool, ask.rounds, ask.period).await);
        database.pool.close().await;
    }
    cluster.remove().unwrap();
    let conditions = conditions.expect("--rounds is 1 at least");
    if ask.json {
        let mut json = report.json(&conditions);
        json["verified_events_per_second"] = verified.into();
        println!("{json:#}");
    } else {
        println!("{}", report.markdown(&conditions));
        let verified = spread(verified.into_iter(), 0);
        println!("The log verified after each round: {verified} events/s.");
    }
}

/// All contenders once. How many events of ours were verified a second afterwards.
async fn one_round(
    ask: &Ask,
    cluster: &Cluster,
    database: &Database,
    report: &mut Report<Cell>,
) -> f64 {
    let period = ask.period;
    pgbench::prepare(&database.pool).await;
    postgres_es::prepare(&database.pool).await;
    let ours = ours::Ours::open(database).await;
    let cells = match (ask.only, &ask.modules) {
        (0, None) => CELLS.iter().copied().filter(|cell| !cell.is_of_npm()).collect(),
        (0, Some(_)) => CELLS.to_vec(),
        (only, _) => vec![Cell::Insert(only), Cell::Stead(only)],
    };
    if let Some(modules) = ask.modules.as_ref().filter(|_| ask.only == 0) {
        message_db::install(cluster, database, modules);
    }
    for cell in cells {
        let meter = Meter::start(cluster.pid().unwrap(), &[]);
        let run: Run = match cell {
            Cell::Insert(n) => pgbench::insert(cluster, &database.pool, n, period).await,
            Cell::Stead(n) => ours.run(n, period).await,
            Cell::PostgresEs(n) => postgres_es::run(database, n, period).await,
            Cell::MessageDb(n) => message_db::run(cluster, database, n, period).await,
            Cell::Emmett(n) => emmett::run(database, ask.modules.clone().unwrap(), n, period).await,
            Cell::CopyIn => copy::bring(database, period).await,
            Cell::CopyOut => copy::take(database).await,
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
