//! Loads an install with a long history, from its first event or from its snapshot.
use std::{
    fmt::Write as _,
    time::{Duration, Instant},
};

use domain::{
    actor::Actor,
    decider::Decider as _,
    install::{Install, InstallCommand},
};
use event_log::{Commit, EventLog, Meta};
use measure::Quantiles;
use serde_json::{Value, json};
use sqlx::Executor as _;
use ulid::Ulid;

use super::growing_log::GrowingLog;
use crate::database::Database;

/// Number of events of the short stream.
const SHORT: u64 = 100;
/// Number of loads of each stream.
const TIMES: usize = 7;

/// Times of loading and of handling a command.
pub struct Streams(Vec<(u64, Measurement)>);

struct Measurement {
    /// Time to load the install without a snapshot, by a server with empty caches.
    without_snapshot: Quantiles,
    with_snapshot: Quantiles,
    /// Time to load the install from its snapshot, handle a command and append.
    handled: Quantiles,
}

/// Measures a stream of this length and a short one.
pub async fn measure(database: &Database, grown: &mut GrowingLog, long: u64) -> Streams {
    let mut all = Vec::new();
    for events in [SHORT, long] {
        eprintln!("a stream of {events} events");
        let log = grown.log().await;
        let install = grown.history().one_install(&log, events).await;
        drop(log);
        let (mut without, mut with, mut handled) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..TIMES {
            database.root().execute("delete from stead.log_snapshot").await.unwrap();
            without.push(load(&grown.log().await, &install).await);
            // A snapshot of a long stream is written after the first load, in the background.
            let snapshots = i64::from(events >= long);
            database.until("select count(*) from stead.log_snapshot", snapshots).await;
            with.push(load(&grown.log().await, &install).await);
            handled.push(handle_command(&grown.log().await, &install).await);
        }
        let [without_snapshot, with_snapshot, handled] =
            [without, with, handled].map(Quantiles::of);
        all.push((events, Measurement { without_snapshot, with_snapshot, handled }));
    }
    Streams(all)
}

async fn load(log: &EventLog, install: &str) -> Duration {
    let began = Instant::now();
    let loaded = log.load::<Install>(install).await.unwrap();
    let took = began.elapsed();
    assert!(loaded.version >= SHORT);
    took
}

async fn handle_command(log: &EventLog, install: &str) -> Duration {
    let began = Instant::now();
    let loaded = log.load::<Install>(install).await.unwrap();
    let command = InstallCommand::SetAutoApprove {
        auto_approve: !loaded.state.auto_approve,
        by: Actor::System,
        reason: None,
    };
    let domain_events = loaded.state.decide(command, log.clock().now()).unwrap();
    assert_eq!(domain_events.len(), 1);
    let write = loaded.write(&domain_events).unwrap();
    let meta = Meta::new(Actor::System, Ulid::new().to_string());
    log.append(Commit::of(meta, vec![write])).await.unwrap();
    began.elapsed()
}

impl Streams {
    pub fn markdown(&self) -> String {
        let mut text =
            "| events in the stream | loaded without a snapshot, ms | with its snapshot | command handled |\n\
                        |---|---|---|---|\n"
                .to_string();
        for (events, Measurement { without_snapshot, with_snapshot, handled }) in &self.0 {
            let _ = write!(text, "| {events} |");
            for Quantiles { p50, most, .. } in [without_snapshot, with_snapshot, handled] {
                let _ = write!(text, " {p50:.2} [{most:.2}] |");
            }
            text.push('\n');
        }
        text
    }

    pub fn json(&self) -> Value {
        let all = self.0.iter().map(|(events, measurement)| {
            json!({
                "events": events, "loaded_without_snapshot": measurement.without_snapshot.json(),
                "loaded_with_snapshot": measurement.with_snapshot.json(), "handled": measurement.handled.json(),
            })
        });
        all.collect()
    }
}
