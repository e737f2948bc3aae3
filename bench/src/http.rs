//! Commands over HTTP, compared with single-row transactions in Postgres.
//!
//! ```text
//! commands   `stead serve` as a separate process; 64 callers with the owner's token, each on its own persistent
//!            connection; each command creates one event in a new stream (an enrolment token)
//! jobs       16 callers; each command retries a failed build, which creates one job in the queue
//! INSERT     pgbench on the same Postgres with the same number of connections
//! ```
mod cells;
pub(crate) mod commands;
mod enqueue;

use measure::{Conditions, Figure, Meter, Report, pgbench};

use self::{
    cells::{CELLS, Cell, RATIOS},
    enqueue::Enqueue,
};
use crate::{
    command_line::{BenchOptions, WorkDir, block_on, understand},
    database::Database,
    server_process::ServerProcess,
};

const USAGE: &str = "stead-bench-http [--quick] [--json] [--rounds N] [--seconds N]";

/// `scripts/bench http`
pub fn main() {
    understand(USAGE);
    block_on(run(BenchOptions::read()));
}

async fn run(ask: BenchOptions) {
    let place = WorkDir::new();
    let database = Database::start(&place.of("cluster")).await;
    let serving = ServerProcess::start(&database, &place.of("server"), None).await;
    let anchored = match pgbench::missing(&database.cluster) {
        None => {
            pgbench::prepare(database.anchor()).await;
            true
        }
        Some(why) => {
            eprintln!("SKIPPED: {why}; there is no baseline");
            false
        }
    };
    eprintln!("  apps whose build has failed");
    let mut enqueue = Enqueue::prepare(&database, &serving, ask.much(100, 2_000)).await;
    let mut report = Report::of("commands", RATIOS);
    for round in 1..=ask.rounds {
        eprintln!("round {round} of {}", ask.rounds);
        for cell in CELLS.into_iter().filter(|cell| anchored || !cell.is_of_pgbench()) {
            let meter = Meter::start(database.cluster.pid().unwrap(), &[serving.pid()]);
            let run = match cell {
                Cell::Insert(callers) => {
                    let (cluster, pool) = (&database.cluster, database.anchor());
                    pgbench::insert(cluster, pool, callers, ask.period).await
                }
                Cell::Command(callers) => {
                    commands::run(&database, &serving.people(), callers, false, ask.period).await
                }
                Cell::Keyed(callers) => {
                    commands::run(&database, &serving.people(), callers, true, ask.period).await
                }
                Cell::Asked(callers) => enqueue.ask(callers).await,
                Cell::Queued(_) => enqueue.queued(&database).await,
            };
            report.add(cell, Figure::of(run, meter.stop()));
        }
        enqueue.fail(&database).await;
    }
    let conditions = Conditions::of(database.root(), ask.rounds, ask.period).await;
    drop(serving);
    database.stop().await;
    match ask.json {
        true => println!("{:#}", report.json(&conditions)),
        false => println!("{}", report.markdown(&conditions)),
    }
}
