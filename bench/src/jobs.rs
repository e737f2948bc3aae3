//! Jobs from the queue to their end, beside job queues on the same Postgres.
//!
//! ```text
//! Stead          a server in this process; jobs are queued by its own use case, then everything goes over HTTP:
//!                poll, claim, start, one log chunk, end: five durable writes, and the history is kept
//! Stead, builds  the queueing over HTTP, too: a build that failed is asked for again; the config version, the build,
//!                its job and its failure are written besides, the last two by policies
//! others         graphile-worker and pg-boss in a Node of their own: queue, fetch, delete or mark; no HTTP, no history
//! claims         from the acknowledged queue to the claim's answer, one job at a time, beside a bare commit
//! ```
//! `together`: queued one by one while they are worked at. `drained`: all are in the queue before the clock starts.
mod cells;
mod others;
mod ours;

use event_log::testing::measure::{Conditions, Figure, Meter, Quantiles, Report};
use serde_json::json;

use self::{
    cells::{CELLS, Mode, RATIOS, Who},
    ours::Ours,
};
use crate::{
    command_line::{Ask, Place, argument, block_on, understand},
    database::Database,
    load::claims::{self, Claims},
};

const USAGE: &str = "stead-bench-jobs [--quick] [--json] [--rounds N] [--seconds N] [--npm DIR]";

/// DIR is where `bench/npm` was installed.
pub fn main() {
    understand(USAGE);
    block_on(run(Ask::read()));
}

async fn run(ask: Ask) {
    let place = Place::new();
    let database = Database::start(&place.of("cluster")).await;
    let modules = argument("--npm").map(std::path::PathBuf::from);
    if modules.is_none() {
        eprintln!("SKIPPED: graphile-worker and pg-boss, without --npm DIR");
    }
    let (jobs, samples) = (ask.much(200, 8_000), ask.much(100, 5_000));
    let data = place.of("server");
    let Claims { queued, commits, .. } = claims::measure(&database, &data, samples).await;
    let mut ours = Ours::start(&database, &data, ask.much(50, 1_000)).await;
    let mut report = Report::of("jobs", RATIOS);
    for round in 1..=ask.rounds {
        eprintln!("round {round} of {}", ask.rounds);
        // Both modes of one of the others are one run of its Node.
        let mut drained = None;
        for cell in CELLS {
            let meter = Meter::start(database.cluster.pid().unwrap(), &[]);
            let run = match (cell.who, &modules, cell.mode) {
                (Who::Stead, _, Mode::Together) => ours.together(jobs).await,
                (Who::Stead, _, Mode::Drained) => ours.drained(jobs).await,
                (Who::Builds, _, _) => ours.builds(&database).await,
                (Who::Other(..), None, _) => continue,
                (Who::Other(other, how), Some(modules), Mode::Together) => {
                    let both = others::run(&database, modules, other, how, jobs, ask.period).await;
                    drained = Some(both.drained);
                    both.together
                }
                (Who::Other(..), Some(_), Mode::Drained) => drained.take().unwrap(),
            };
            report.add(cell, Figure::of(run, meter.stop()));
        }
    }
    let conditions = Conditions::of(database.root(), ask.rounds, ask.period).await;
    ours.stop().await;
    database.stop().await;
    let (claim, commit) = (Quantiles::of(queued), Quantiles::of(commits));
    let ratio = claim.p50 / commit.p50;
    if ask.json {
        let mut json = report.json(&conditions);
        json["claim"] = json!({
            "queued_to_claimed": claim.json(), "bare_commit": commit.json(), "p50_in_commits": ratio,
        });
        println!("{json:#}");
    } else {
        println!("{}", report.markdown(&conditions));
        println!("| what | samples | p50 ms | p99 ms | max ms |\n|---|---|---|---|---|");
        print!("{}", claim.row("queue acknowledged → claim answered"));
        println!("{}", commit.row("bare one-row commit, in turns"));
        println!("p50 of a claim in bare commits: {ratio:.1}");
    }
}
