//! Measures the time that appends stop while the tables of an inline projection are swapped.
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use domain::actor::Actor;
use event_log::{Commit, EventLog, Meta, NewEvent, Options, StreamId, Write, testing::Database};
use projections::{Progress, rebuild_all};
use ulid::Ulid;

/// Number of concurrent callers that append all the time.
const CALLERS: usize = 16;
/// Number of rebuilds.
const SWAPS: usize = 10;

/// Payload of the appended events.
const QUEUED: &str = include_str!("../../../schemas/events/job.queued/1.example.json");

/// Time of each acknowledgement.
type Acknowledged = Arc<Mutex<Vec<Instant>>>;

/// Rebuilds a projection repeatedly while other tasks append job events, which update it inline.
pub async fn measure(database: &Database) {
    let options =
        Options { inline_projections: projections::inline_projections(), ..Options::default() };
    let log = database.log_with(options).await.unwrap();
    let (times, stopped) = (Acknowledged::default(), Arc::new(AtomicBool::new(false)));
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| tokio::spawn(append(log.clone(), times.clone(), stopped.clone())))
        .collect();
    let mut windows = vec![];
    for _ in 0..SWAPS {
        let mut began = None;
        rebuild_all(&database.pool, &["job_queue"], 1, |progress| {
            if progress == Progress::Swapping {
                began.get_or_insert_with(Instant::now);
            }
        })
        .await
        .unwrap();
        windows.push((began.unwrap(), Instant::now()));
    }
    stopped.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.await.unwrap();
    }
    let mut times = std::mem::take(&mut *times.lock().unwrap());
    times.sort();
    let gaps: Vec<_> = times.windows(2).map(|pair| (pair[0], pair[1])).collect();
    let overlaps = |gap: &(Instant, Instant), window: &(Instant, Instant)| {
        gap.1 >= window.0 && gap.0 <= window.1
    };
    let mut pauses: Vec<f64> = windows
        .iter()
        .map(|window| longest(gaps.iter().filter(|gap| overlaps(gap, window))))
        .collect();
    pauses.sort_by(f64::total_cmp);
    let otherwise = gaps.iter().filter(|gap| !windows.iter().any(|window| overlaps(gap, window)));
    println!(
        "\nA projection was swapped {SWAPS} times while {CALLERS} callers appended {} events: the longest time without an acknowledgement was {:.1} ms around a swap (median {:.1} ms), and {:.1} ms otherwise.",
        times.len(),
        pauses[SWAPS - 1],
        pauses[SWAPS / 2],
        longest(otherwise)
    );
}

fn longest<'a>(gaps: impl Iterator<Item = &'a (Instant, Instant)>) -> f64 {
    let longest = gaps.map(|(from, to)| to.duration_since(*from)).max();
    longest.unwrap_or(Duration::ZERO).as_secs_f64() * 1e3
}

async fn append(log: EventLog, times: Acknowledged, stopped: Arc<AtomicBool>) {
    let payload: String = QUEUED.lines().map(str::trim_start).collect();
    let event_type = "job.queued".into();
    let queued = NewEvent { event_type, event_version: "1".into(), payload, customer: None };
    while !stopped.load(Ordering::Relaxed) {
        let stream = StreamId::new("job", format!("job_{}", Ulid::new()));
        let write = Write { stream, expected: 0, events: vec![queued.clone()] };
        let commit = Commit::of(Meta::new(Actor::System, Ulid::new().to_string()), vec![write]);
        log.append(commit).await.unwrap();
        times.lock().unwrap().push(Instant::now());
    }
}
