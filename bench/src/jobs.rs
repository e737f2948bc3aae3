//! Jobs from the queue to their end, compared with job queues on the same Postgres.
//!
//! ```text
//! Stead          a server in this process; its own use case queues the jobs; the rest goes over HTTP: poll, claim,
//!                start, one log chunk, end; that is five durable writes, and the history is stored
//! Stead, builds  also queues over HTTP, by a retry of a failed build; this also writes the config version, the build,
//!                its job and its failure, the last two by policies
//! others         graphile-worker and pg-boss in their own Node process: queue, fetch, delete or mark; no HTTP, no history
//! claims         time from the acknowledged queue request to the response of the claim, one job at a time, compared
//!                with a bare commit
//! ```
//! `together`: jobs are queued one by one while workers run. `drained`: all jobs are queued
//! before the clock starts.
mod cells;
mod competitors;
mod stead;

use measure::{Conditions, Figure, Meter, Quantiles, Report};
use serde_json::json;

use self::{
    cells::{CELLS, Mode, Queue, RATIOS},
    stead::Ours,
};
use crate::{
    command_line::{BenchOptions, WorkDir, argument, block_on, check_arguments},
    database::Database,
    load::claims::{self, Claims},
};

const USAGE: &str = "stead-bench-jobs [--quick] [--json] [--rounds N] [--seconds N] [--npm DIR]";

/// Entry point of `scripts/bench jobs`. DIR is the directory in which `bench/npm` was installed.
pub fn main() {
    check_arguments(USAGE);
    block_on(run(BenchOptions::read()));
}

async fn run(options: BenchOptions) {
    let work_dir = WorkDir::new();
    let database = Database::start(&work_dir.of("cluster")).await;
    let modules = argument("--npm").map(std::path::PathBuf::from);
    if modules.is_none() {
        eprintln!("SKIPPED: graphile-worker and pg-boss; use --npm DIR");
    }
    let (jobs, samples) = (options.choose(200, 8_000), options.choose(100, 5_000));
    let data = work_dir.of("server");
    let Claims { queued, commits, .. } = claims::measure(&database, &data, samples).await;
    let mut ours = Ours::start(&database, &data, options.choose(50, 1_000)).await;
    let mut report = Report::of("jobs", RATIOS);
    for round in 1..=options.rounds {
        eprintln!("round {round} of {}", options.rounds);
        // One Node process measures both modes of a contender.
        let mut drained = None;
        for cell in CELLS {
            let meter = Meter::start(database.cluster.pid().unwrap(), &[]);
            let run = match (cell.queue, &modules, cell.mode) {
                (Queue::Stead, _, Mode::Together) => ours.together(jobs).await,
                (Queue::Stead, _, Mode::Drained) => ours.drained(jobs).await,
                (Queue::Builds, _, _) => ours.builds(&database).await,
                (Queue::Other(..), None, _) => continue,
                (Queue::Other(other, tuning), Some(modules), Mode::Together) => {
                    let both =
                        competitors::run(&database, modules, other, tuning, jobs, options.period)
                            .await;
                    drained = Some(both.drained);
                    both.together
                }
                (Queue::Other(..), Some(_), Mode::Drained) => drained.take().unwrap(),
            };
            report.add(cell, Figure::of(run, meter.stop()));
        }
    }
    let conditions = Conditions::of(database.root(), options.rounds, options.period).await;
    ours.stop().await;
    database.stop().await;
    let (claim, commit) = (Quantiles::of(queued), Quantiles::of(commits));
    let ratio = claim.p50 / commit.p50;
    if options.json {
        let mut json = report.json(&conditions);
        json["claim"] = json!({
            "queued_to_claimed": claim.json(), "bare_commit": commit.json(), "p50_in_commits": ratio,
        });
        println!("{json:#}");
    } else {
        println!("{}", report.markdown(&conditions));
        println!("| what | samples | p50 ms | p99 ms | max ms |\n|---|---|---|---|---|");
        print!("{}", claim.row("job queued (acknowledged) → response to the claim"));
        println!("{}", commit.row("bare one-row commit, in turns"));
        println!("p50 of a claim in bare commits: {ratio:.1}");
    }
}
