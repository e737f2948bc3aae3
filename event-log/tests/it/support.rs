//! Common parts of the tests of the log.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    dead_code,
    reason = "a helper may fail its test, and not every test uses each"
)]
pub mod counter;

use std::{collections::BTreeMap, time::Duration};

use domain::actor::Actor;
use event_log::{
    AppendError, Appended, Commit, EventLog, IdempotencyKey, Meta, NewEvent, Options, StoredEvent,
    StreamId, Write,
    testing::{Database, fresh_database},
    verify::{Verified, verify},
};

pub async fn database() -> Database {
    fresh_database().await.unwrap()
}

/// Opens another server on a database.
pub async fn server(database: &Database) -> EventLog {
    database.log().await.unwrap()
}

/// Opens a server that does not poll for the writes of other servers.
pub async fn server_without_polling(database: &Database) -> EventLog {
    let options = Options { poll_interval: None, ..Options::default() };
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
        customer: None,
    }
}

pub fn meta() -> Meta {
    Meta::new(Actor::System, "cmd")
}

pub fn write(id: &str, expected: u64, events: u64) -> Write {
    Write { stream: stream(id), expected, events: (0..events).map(event).collect() }
}

/// A commit of events for one stream.
pub fn commit(id: &str, expected: u64, events: u64) -> Commit {
    Commit::of(meta(), vec![write(id, expected, events)])
}

/// The commit with an idempotency key.
pub fn with_key(key: &str, request: u8, mut commit: Commit) -> Commit {
    let response = Some(serde_json::json!({ "key": key }));
    let (principal, key) = ("prn_1".into(), key.into());
    commit.key = Some(IdempotencyKey { principal, key, request_hash: [request; 32], response });
    commit
}

/// Verifies and reads the whole log.
pub async fn verified_events(database: &Database) -> (Verified, Vec<StoredEvent>) {
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

/// Results of appends by the number in their only event.
pub type Responses = BTreeMap<u64, Result<Appended, AppendError>>;

/// Checks that the log is intact and has no unexpected numbers, and that each acknowledged number
/// is in it once at the reported position. Returns the number of written and of rejected numbers.
pub async fn check_responses(database: &Database, responses: &Responses) -> (usize, usize) {
    let (_, events) = verified_events(database).await;
    let mut found = BTreeMap::new();
    for event in &events {
        let payload: serde_json::Value = serde_json::from_str(&event.payload).unwrap();
        let number = payload["n"].as_u64().unwrap();
        assert_eq!(found.insert(number, event.position), None, "{number} was written twice");
    }
    let (mut written, mut rejected) = (0, 0);
    for (number, response) in responses {
        match response {
            Ok(appended) => {
                assert_eq!(found.get(number), Some(&appended.first), "{number} was acknowledged");
                written += 1;
            }
            Err(AppendError::Conflict { .. } | AppendError::Database(_)) => {
                assert_eq!(found.get(number), None, "{number} was refused");
                rejected += 1;
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(written, events.len());
    (written, rejected)
}

pub async fn pause(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}
