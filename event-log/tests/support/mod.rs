//! What the tests of the log have in common.
#![allow(
    clippy::unwrap_used,
    dead_code,
    reason = "a helper may fail its test, and not every test uses each"
)]
pub mod counter;
pub mod proxy;

use std::time::Duration;

use domain::actor::Actor;
use event_log::{
    CommandKey, Commit, EventLog, Meta, NewEvent, Options, Stored, StreamId, Write,
    testing::{Database, fresh_database},
    verify::{Verified, verify},
};

pub async fn database() -> Database {
    fresh_database().await.unwrap()
}

/// A second server on a database.
pub async fn server(database: &Database) -> EventLog {
    database.log().await.unwrap()
}

/// One that learns of others only when it must.
pub async fn alone(database: &Database) -> EventLog {
    let options = Options { watch_others: None, ..Options::default() };
    database.log_with(options).await.unwrap()
}

pub fn stream(id: &str) -> StreamId {
    StreamId::new("job", id)
}

pub fn event(n: u64) -> NewEvent {
    NewEvent {
        event_type: "job.queued".into(),
        event_version: "1".into(),
        payload: format!(r#"{{"type":"queued","n":{n}}}"#),
    }
}

pub fn meta() -> Meta {
    Meta::new(Actor::System, "cmd")
}

pub fn write(id: &str, expected: u64, events: u64) -> Write {
    Write { stream: stream(id), expected, events: (0..events).map(event).collect() }
}

/// Events for one stream.
pub fn commit(id: &str, expected: u64, events: u64) -> Commit {
    Commit::of(meta(), vec![write(id, expected, events)])
}

/// The same under an idempotency key.
pub fn keyed(key: &str, request: u8, mut commit: Commit) -> Commit {
    let answer = Some(serde_json::json!({ "key": key }));
    let (principal, key) = ("prn_1".into(), key.into());
    commit.key = Some(CommandKey { principal, key, request_hash: [request; 32], answer });
    commit
}

/// The whole log, which must be what it says it is.
pub async fn checked(database: &Database) -> (Verified, Vec<Stored>) {
    let verified = verify(&database.pool, 0, |_| {}).await.unwrap();
    let events = event_log::read::read(&database.pool, 0, 1_000_000).await.unwrap();
    assert_eq!(events.len() as u64, verified.size);
    (verified, events)
}

pub async fn count(database: &Database, sql: &str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(&database.pool).await.unwrap()
}

pub async fn run(database: &Database, sql: &str) -> u64 {
    sqlx::raw_sql(sql).execute(&database.pool).await.unwrap().rows_affected()
}

/// A moment for others.
pub async fn pause(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}
