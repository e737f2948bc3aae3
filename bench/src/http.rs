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
    command_line::{BenchOptions, WorkDir, block_on, check_arguments},
    database::Database,
    server_process::ServerProcess,
};

const USAGE: &str = "stead-bench-http [--quick] [--json] [--rounds N] [--seconds N]";

/// Entry point of `scripts/bench http`.
pub fn main() {
    check_arguments(USAGE);
    block_on(run(BenchOptions::read()));
}

async fn run(options: BenchOptions) {
    let work_dir = WorkDir::new();
    let database = Database::start(&work_dir.of("cluster")).await;
    let serving = ServerProcess::start(&database, &work_dir.of("server"), None).await;
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
    eprintln!("  creating apps whose build has failed");
    let mut enqueue = Enqueue::prepare(&database, &serving, options.choose(100, 2_000)).await;
    let mut report = Report::of("commands", RATIOS);
    for round in 1..=options.rounds {
        eprintln!("round {round} of {}", options.rounds);
        for cell in CELLS.into_iter().filter(|cell| anchored || !cell.is_of_pgbench()) {
            let meter = Meter::start(database.cluster.pid().unwrap(), &[serving.pid()]);
            let run = match cell {
                Cell::Insert(callers) => {
                    let (cluster, pool) = (&database.cluster, database.anchor());
                    pgbench::insert(cluster, pool, callers, options.period).await
                }
                Cell::Command(callers) => {
                    commands::run(&database, &serving.client(), callers, false, options.period)
                        .await
                }
                Cell::Keyed(callers) => {
                    commands::run(&database, &serving.client(), callers, true, options.period).await
                }
                Cell::Acknowledged(callers) => enqueue.request(callers).await,
                Cell::Queued(_) => enqueue.queued(&database).await,
            };
            report.add(cell, Figure::of(run, meter.stop()));
        }
        enqueue.fail(&database).await;
    }
    let conditions = Conditions::of(database.root(), options.rounds, options.period).await;
    drop(serving);
    database.stop().await;
    match options.json {
        true => println!("{:#}", report.json(&conditions)),
        false => println!("{}", report.markdown(&conditions)),
    }
}
