//! Measures rebuilds of projections and the verification of the log, on a private Postgres
//! with fsync, in release:
//!
//!     cargo bench -p projections --bench rebuild -- --events 1000000
//!
//! The log has complete runs, as a server records them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a benchmark that fails has no result")]
#![allow(clippy::disallowed_methods, reason = "measurements create ids and start tasks themselves")]
mod swap;

use std::time::Instant;

use event_log::{
    Options,
    testing::{Cluster, fresh_in},
    verify::{Reported, VerifyOptions, verify_in},
};
use measure::{History, cluster_settings};
use projections::{Progress, rebuild_all, rollback, verify};
use sqlx::PgPool;

/// The allocator of the server.
#[global_allocator]
static MEMORY: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() {
    let events = argument("--events", 200_000);
    let runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = { runtime }.enable_all().worker_threads(2).build().unwrap();
    runtime.block_on(run(events));
}

async fn run(count: u64) {
    let directory = std::env::temp_dir().join(format!("stead-bench-views-{}", std::process::id()));
    let cluster = Cluster::start(&directory, cluster_settings()).await.unwrap();
    let database = fresh_in(&cluster).await.unwrap();
    let pool = &database.pool;
    let log = database.log_with(Options::default()).await.unwrap();
    let written_in = timed(async { History::of(None).fill(&log, count).await });
    let took = written_in.await;
    let events = log.position();
    eprintln!("{events} events written at {:.0}/s", events as f64 / took);
    projections::projector::prepare(pool).await.unwrap();
    sqlx::raw_sql("vacuum analyze").execute(pool).await.unwrap();
    let per_second = |took: f64| events as f64 / took;
    println!(
        "| operation on {events} events | s | events/s | events per CPU second of this process |"
    );
    println!("|---|---|---|---|");
    for (at_once, reports) in [(1, false), (2, false), (1, true), (2, true)] {
        let before = processor();
        let mut reported = None;
        let took = timed(async {
            let parts = VerifyOptions { concurrency: at_once, reports, ..VerifyOptions::default() };
            reported = Some(verify_in(pool, 0, parts, |_| {}).await.unwrap().reported);
        });
        let took = took.await;
        let own = per_second(processor() - before);
        let Reported { tally, wrong } = reported.unwrap();
        assert_eq!((wrong, tally.unsigned), (vec![], 0));
        let what = match reports {
            true => format!("chain, tree and {} runner signatures verified", tally.signed),
            false => "chain and tree verified".to_owned(),
        };
        println!(
            "| {what}, {at_once} concurrent | {took:.1} | {:.0} | {own:.0} |",
            per_second(took)
        );
    }
    let mut connection = pool.acquire().await.unwrap();
    let all: Vec<_> =
        projections::list(&mut connection).await.unwrap().iter().map(|one| one.name).collect();
    drop(connection);
    for name in ["installs", "runs", "jobs", "job_queue"] {
        measure_rebuild(pool, &[name], 1, events).await;
    }
    for parallel in [1, 2, 4] {
        measure_rebuild(pool, &all, parallel, events).await;
    }
    let took = timed(async {
        rollback(pool, "jobs", |_| {}).await.unwrap();
    })
    .await;
    println!("| rollback of jobs | {took:.1} | | |");
    let took = timed(async {
        for name in &all {
            let verified = verify(pool, name, |_| {}).await.unwrap();
            assert_eq!(verified.differences, [], "{name}");
        }
    })
    .await;
    println!("| all projections compared, one at a time | {took:.1} | {:.0} | |", per_second(took));
    swap::measure(&database).await;
    pool.close().await;
    cluster.remove().unwrap();
}

async fn measure_rebuild(pool: &PgPool, names: &[&str], parallel: u32, events: u64) {
    let (began, before) = (Instant::now(), processor());
    let mut replayed = 0.0;
    rebuild_all(pool, names, parallel, |progress| {
        if progress == Progress::Swapping && replayed == 0.0 {
            replayed = began.elapsed().as_secs_f64();
        }
    })
    .await
    .unwrap();
    let took = began.elapsed().as_secs_f64();
    let what = if names.len() == 1 { names[0].into() } else { format!("all {}", names.len()) };
    let (own, per_second) = (events as f64 / (processor() - before), events as f64 / took);
    println!(
        "| {what} rebuilt, {parallel} workers (events applied in {replayed:.1} s) | {took:.1} | {per_second:.0} | {own:.0} |"
    );
}

/// CPU seconds of this process, without Postgres. Other processes do not affect this figure.
fn processor() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let ticks = stat.rsplit(')').next().unwrap().split_whitespace().skip(11).take(2);
    ticks.map(|ticks| ticks.parse::<f64>().unwrap()).sum::<f64>() / 100.0
}

async fn timed(future: impl Future<Output = ()>) -> f64 {
    let began = Instant::now();
    future.await;
    began.elapsed().as_secs_f64()
}

fn argument(name: &str, otherwise: u64) -> u64 {
    let mut arguments = std::env::args().skip_while(|argument| argument != name).skip(1);
    arguments.next().and_then(|value| value.parse().ok()).unwrap_or(otherwise)
}
