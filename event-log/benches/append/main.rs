//! How fast is an append, measured against what Postgres does with one row per transaction and against stock
//! postgres-es? In one run, on one private Postgres with fsync, in turns:
//!
//!     cargo bench -p event-log --features testing --bench append -- --rounds 5 --seconds 3
//!
//! Ours does per event: stream guard, idempotency key, chain, tree, a synchronous view; every twentieth command
//! is refused as a conflict and does not count. Theirs do none of that. Rows are counted afterwards.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a benchmark that fails has no result")]
mod ours;
mod raw;
mod report;
mod stock;

use std::time::Duration;

use event_log::testing::{Cluster, Settings, fresh_in};

use report::{Cell, Report};

/// What one commit must at least hold, as in the anchors.
pub const PAYLOAD_BYTES: usize = 300;

fn main() {
    let (rounds, seconds) = (argument("--rounds", 5), argument("--seconds", 3));
    let runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = { runtime }.enable_all().worker_threads(2).build().unwrap();
    runtime.block_on(run(rounds, Duration::from_secs(seconds)));
}

async fn run(rounds: u64, period: Duration) {
    let directory = std::env::temp_dir().join(format!("stead-bench-{}", std::process::id()));
    let more =
        ["shared_buffers=1GB", "max_wal_size=8GB", "wal_buffers=16MB", "synchronous_commit=on"];
    let settings = Settings { fsync: true, more: more.map(String::from).to_vec() };
    let cluster = Cluster::start(&directory, &settings).await.unwrap();
    let mut report = Report::default();
    for round in 1..=rounds {
        eprintln!("round {round} of {rounds}");
        // A database of its own per round: no round pays for the rows of another.
        let database = fresh_in(&cluster).await.unwrap();
        raw::prepare(&database.pool).await;
        stock::prepare(&database.pool).await;
        let ours = ours::Ours::open(&database).await;
        let only = argument("--only", 0) as usize;
        if only > 0 {
            report.add(Cell::Raw(only), raw::run(&cluster, &database, only, period).await);
            report.add(Cell::Ours(only), ours.run(only, period).await);
            continue;
        }
        for callers in [1, 16, 64] {
            report.add(Cell::Raw(callers), raw::run(&cluster, &database, callers, period).await);
            report.add(Cell::Ours(callers), ours.run(callers, period).await);
        }
        report.add(Cell::Stock(64), stock::run(&database, 64, period).await);
        report.add(Cell::Ours(256), ours.run(256, period).await);
        ours.check(&database).await;
        database.pool.close().await;
    }
    cluster.remove().unwrap();
    println!("{}", report.markdown(rounds, period));
}

fn argument(name: &str, otherwise: u64) -> u64 {
    let mut arguments = std::env::args().skip_while(|argument| argument != name).skip(1);
    arguments.next().and_then(|value| value.parse().ok()).unwrap_or(otherwise)
}

/// A JSON object of [`PAYLOAD_BYTES`] with the tag that events have.
pub fn payload(number: u64) -> String {
    let start = format!(r#"{{"type":"queued","number":{number},"manifest":""#);
    let fill = PAYLOAD_BYTES - start.len() - 2;
    format!(r#"{start}{}"}}"#, "a".repeat(fill))
}
