//! How fast are views made again, and how fast is the log verified? On a private Postgres with fsync, in release:
//!
//!     cargo bench -p projections --bench rebuild -- --events 1000000
//!
//! The log is of runs as they happen: an install admits a run, the run is planned, its plan job and its apply job are
//! queued, claimed, worked at and sealed, and somebody approves in between. Payloads are the kept examples.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a benchmark that fails has no result")]
use std::{collections::BTreeMap, path::Path, time::Instant};

use domain::actor::Actor;
use event_log::{
    Commit, EventLog, Meta, NewEvent, Options, StreamId, Write,
    testing::{Cluster, Settings, fresh_in},
    verify::{Parts, verify_in},
};
use projections::{Progress, rebuild_all, rollback, verify};
use sqlx::PgPool;
use ulid::Ulid;

/// What one run leaves in the log: streams, and what happened to each, in this order.
const INSTALL: &[&str] = &[
    "install.run_admitted",
    "install.component_reserved",
    "install.component_deployed",
    "install.component_released",
    "install.run_closed",
];
const RUN: &[&str] = &[
    "run.requested",
    "run.planned",
    "run.step_started",
    "run.plan_produced",
    "run.approval_requested",
    "run.approved",
    "run.apply_started",
    "run.step_succeeded",
    "run.finished",
];
const JOB: &[&str] = &[
    "job.queued",
    "job.claimed",
    "job.started",
    "job.phase_entered",
    "job.phase_entered",
    "job.plan_produced",
    "job.succeeded",
    "job.log_sealed",
];
/// How many installs there are.
const INSTALLS: u64 = 1_000;
/// How many runs are written at once.
const TOGETHER: u64 = 30;

fn main() {
    let events = argument("--events", 200_000);
    let runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = { runtime }.enable_all().worker_threads(2).build().unwrap();
    runtime.block_on(run(events));
}

async fn run(wanted: u64) {
    let directory = std::env::temp_dir().join(format!("stead-bench-views-{}", std::process::id()));
    let more =
        ["shared_buffers=1GB", "max_wal_size=8GB", "wal_buffers=16MB", "synchronous_commit=on"];
    let settings = Settings { fsync: true, more: more.map(String::from).to_vec() };
    let cluster = Cluster::start(&directory, &settings).await.unwrap();
    let database = fresh_in(&cluster).await.unwrap();
    let pool = &database.pool;
    let log = database.log_with(Options::default()).await.unwrap();
    fill(&log, wanted).await;
    let events = log.position();
    projections::projector::ready(pool).await.unwrap();
    sqlx::raw_sql("vacuum analyze").execute(pool).await.unwrap();
    let per_second = |took: f64| events as f64 / took;
    println!("| what, of {events} events | s | events/s | events/s of our own processor time |");
    println!("|---|---|---|---|");
    for at_once in [1, 2] {
        let before = processor();
        let took = timed(async {
            verify_in(pool, 0, Parts { at_once, ..Parts::default() }, |_| {}).await.unwrap();
        });
        let took = took.await;
        let own = per_second(processor() - before);
        println!(
            "| log verified, {at_once} at once | {took:.1} | {:.0} | {own:.0} |",
            per_second(took)
        );
    }
    let mut connection = pool.acquire().await.unwrap();
    let all: Vec<_> =
        projections::list(&mut connection).await.unwrap().iter().map(|one| one.name).collect();
    drop(connection);
    for name in ["installs", "runs", "jobs", "job_queue"] {
        again(pool, &[name], 1, events).await;
    }
    for parallel in [1, 2, 4] {
        again(pool, &all, parallel, events).await;
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
    println!("| all compared, one after the other | {took:.1} | {:.0} | |", per_second(took));
    pool.close().await;
    cluster.remove().unwrap();
}

async fn again(pool: &PgPool, names: &[&str], parallel: u32, events: u64) {
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
        "| {what} made again, {parallel} workers (folded in {replayed:.1}) | {took:.1} | {per_second:.0} | {own:.0} |"
    );
}

/// The seconds that this process, without Postgres, was on a processor: what others on the machine do not slow down.
fn processor() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let ticks = stat.rsplit(')').next().unwrap().split_whitespace().skip(11).take(2);
    ticks.map(|ticks| ticks.parse::<f64>().unwrap()).sum::<f64>() / 100.0
}

async fn timed(doing: impl Future<Output = ()>) -> f64 {
    let began = Instant::now();
    doing.await;
    began.elapsed().as_secs_f64()
}

/// Write so many events, a few runs in a commit.
async fn fill(log: &EventLog, wanted: u64) {
    let began = Instant::now();
    let examples = examples();
    let mut installs: BTreeMap<u64, u64> = BTreeMap::new();
    let mut number = 0;
    while log.position() < wanted {
        let mut writes = vec![];
        for _ in 0..TOGETHER {
            let install = number % INSTALLS;
            number += 1;
            let version = installs.entry(install).or_default();
            let mut events = vec![];
            if *version == 0 {
                events.push(examples["install.created"].clone());
            }
            events.extend(INSTALL.iter().map(|name| examples[*name].clone()));
            let count = events.len() as u64;
            let id = Ulid(u128::from(install) + 1);
            writes.push(Write {
                stream: StreamId::new("install", format!("ins_{id}")),
                expected: *version,
                events,
            });
            *version += count;
            for (kind, prefix, names) in
                [("run", "run_", RUN), ("job", "job_", JOB), ("job", "job_", JOB)]
            {
                let stream = StreamId::new(kind, format!("{prefix}{}", Ulid::new()));
                let events = names.iter().map(|name| examples[*name].clone()).collect();
                writes.push(Write { stream, expected: 0, events });
            }
        }
        log.append(Commit::of(Meta::new(Actor::System, Ulid::new().to_string()), writes))
            .await
            .unwrap();
    }
    let took = began.elapsed().as_secs_f64();
    eprintln!("{} events written at {:.0}/s", log.position(), log.position() as f64 / took);
}

fn examples() -> BTreeMap<String, NewEvent> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../schemas/events");
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_string();
        let text = std::fs::read_to_string(path.join("1.example.json")).unwrap();
        let payload: String = text.lines().map(str::trim_start).collect();
        let event = NewEvent {
            event_type: name.clone().into(),
            event_version: "1".into(),
            payload,
            customer: None,
        };
        all.insert(name, event);
    }
    all
}

fn argument(name: &str, otherwise: u64) -> u64 {
    let mut arguments = std::env::args().skip_while(|argument| argument != name).skip(1);
    arguments.next().and_then(|value| value.parse().ok()).unwrap_or(otherwise)
}
