//! A snapshot equals the state that the events produce. Every invalid snapshot is ignored.
use crate::support;

use std::{fs, path::Path};

use domain::{
    access::Access, app::App, build::Build, component::Component, decider::Decider,
    enrolment::Enrolment, install::Install, job::Job, name::Name, run::Run, runner::Runner,
    subject::Subject,
};
use event_log::{Commit, EventLog, StreamId, snapshot, testing::Database};
use sqlx::Row;
use support::{
    commit, count,
    counter::{Counter, CounterEvent},
    database, meta, pause, run, server, server_without_polling,
};

/// Appends `times` events that each add one to the counter, and caches the resulting state.
async fn add(log: &EventLog, times: usize) {
    let mut counter = log.load::<Counter>("c").await.unwrap();
    let events = vec![CounterEvent::Added { by: 1 }; times];
    let write = counter.write(&events).unwrap();
    log.append(Commit::of(meta(), vec![write])).await.unwrap();
    counter.evolve(events);
    log.cache_state(&counter);
}

/// Waits for a snapshot and returns its sequence. The server stores a snapshot after the
/// acknowledgement.
async fn wait_for_snapshot(database: &Database, at_least: i64) -> i64 {
    for _ in 0..200 {
        let sql =
            "select coalesce(max(sequence), 0) from log_snapshot where aggregate_type = 'counter'";
        let sequence = count(database, sql).await;
        if sequence >= at_least {
            return sequence;
        }
        pause(25).await;
    }
    panic!("no snapshot is kept");
}

#[tokio::test]
async fn stream_with_a_too_low_version_is_read_to_its_end() {
    let database = database().await;
    let log = server(&database).await;
    add(&log, 150).await;
    add(&log, 45).await;
    add(&log, 10).await;
    wait_for_snapshot(&database, 200).await;
    for damage in ["update log_stream set version = 3", "delete from log_stream"] {
        sqlx::query(damage).execute(&database.pool).await.unwrap();
        let read = server_without_polling(&database).await.load::<Counter>("c").await.unwrap();
        assert_eq!((read.version, read.state.value), (205, 205), "{damage}");
    }
}

#[tokio::test]
async fn snapshot_is_stored_every_200_events_and_only_later_events_are_read() {
    let database = database().await;
    let log = server(&database).await;
    add(&log, 150).await;
    add(&log, 45).await;
    assert_eq!(count(&database, "select count(*) from log_snapshot").await, 0);
    add(&log, 10).await;
    assert_eq!(wait_for_snapshot(&database, 200).await, 205);
    add(&log, 40).await;
    let known = log.load::<Counter>("c").await.unwrap();
    // A new server reads the snapshot and the later events, as the changed value shows.
    replace_snapshot(&database, &encoded_snapshot("c", 205, 1_205)).await;
    let other = server_without_polling(&database).await.load::<Counter>("c").await.unwrap();
    assert_eq!((other.version, other.state.value), (known.version, known.state.value + 1_000));
}

/// A snapshot of this value, as the server stores it.
fn encoded_snapshot(id: &str, version: u64, value: u64) -> Vec<u8> {
    let counter = Counter { value, ..Counter::default() };
    snapshot::encode(&StreamId::new("counter", id), version, &counter).unwrap()
}

async fn replace_snapshot(database: &Database, state: &[u8]) {
    let sql = "update log_snapshot set state = $1";
    sqlx::query(sql).bind(state).execute(&database.pool).await.unwrap();
}

#[tokio::test]
async fn invalid_snapshot_is_ignored() {
    let set = |state: &[u8]| format!("update log_snapshot set state = '\\x{}'", hex::encode(state));
    let right = encoded_snapshot("c", 205, 205);
    let last = right.len() - 1;
    let changed = |at: usize| {
        let mut bytes = right.clone();
        bytes[at] ^= 1;
        set(&bytes)
    };
    for spoil in [
        "delete from log_snapshot".to_owned(),
        "update log_snapshot set state = 'no state', sequence = 205".to_owned(),
        "update log_snapshot set schema_hash = sha256('other code')".to_owned(),
        "update log_snapshot set codec = 9".to_owned(),
        "update log_snapshot set sequence = 9000".to_owned(),
        // Snapshot in JSON, the encoding of an earlier version.
        r#"update log_snapshot set codec = 1, state = '{"value":7,"closed":false}'"#.to_owned(),
        // Snapshots that are truncated, changed or too long, or belong to another stream or
        // version.
        set(&right[..last]),
        set(&[]),
        changed(0),
        changed(last - 1),
        set(&[&right[..], &[0]].concat()),
        set(&encoded_snapshot("d", 205, 7)),
        set(&encoded_snapshot("c", 204, 7)),
    ] {
        let spoil = &*spoil;
        let database = database().await;
        add(&server(&database).await, 205).await;
        wait_for_snapshot(&database, 200).await;
        run(&database, spoil).await;
        let log = server_without_polling(&database).await;
        let counter = log.load::<Counter>("c").await.unwrap();
        assert_eq!((counter.version, counter.state.value), (205, 205), "{spoil}");
        // A valid snapshot is stored again.
        for _ in 0..200 {
            let again =
                "select count(*) from log_snapshot where sequence = 205 and codec = 3 and state = ";
            if count(&database, &format!("{again}'\\x{}'", hex::encode(&right))).await == 1 {
                break;
            }
            pause(25).await;
        }
        let row = sqlx::query("select sequence, codec, state from log_snapshot");
        let row = row.fetch_one(&database.pool).await.unwrap();
        let stored = (row.get::<i64, _>(0), row.get::<i16, _>(1), row.get::<Vec<u8>, _>(2));
        assert_eq!(stored, (205, 3, right.clone()), "{spoil}");
    }
}

/// Flips every bit, and truncates at every byte.
#[test]
fn changed_bytes_are_not_a_valid_snapshot() {
    let stream = StreamId::new("counter", "c");
    let right = encoded_snapshot("c", 205, 205);
    let read = |bytes: &[u8]| snapshot::decode::<Counter>(&stream, 205, bytes);
    assert_eq!(read(&right).unwrap().value, 205);
    for bit in 0..right.len() * 8 {
        let mut other = right.clone();
        other[bit / 8] ^= 1 << (bit % 8);
        assert!(read(&other).is_err(), "{bit}");
    }
    for cut in 0..right.len() {
        assert!(read(&right[..cut]).is_err(), "{cut}");
    }
}

#[tokio::test]
async fn long_stream_is_read_page_by_page() {
    let database = database().await;
    let log = server(&database).await;
    for _ in 0..3 {
        add(&log, 1_000).await;
    }
    run(&database, "delete from log_snapshot").await;
    let other = server_without_polling(&database).await;
    assert_eq!(other.load::<Counter>("c").await.unwrap().state.value, 3_000);
    assert_eq!(other.load_as_of::<Counter>("c", 2_500).await.unwrap().version, 2_500);
    other.append(commit("x", 0, 1)).await.unwrap();
    assert_eq!(other.load_as_of::<Counter>("c", 3_001).await.unwrap().version, 3_000);
}

/// For every aggregate, a state from a decoded snapshot and the later events must equal the state
/// from all events.
#[test]
fn snapshot_of_every_aggregate_is_lossless() {
    fn check<D: Decider>() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../schemas/events");
        let mut events: Vec<D::Event> = Vec::new();
        let mut names: Vec<_> =
            fs::read_dir(directory).unwrap().map(|one| one.unwrap().path()).collect();
        names.sort();
        let ours = format!("{}.", D::NAME);
        for path in names {
            let is_ours = path.file_name().unwrap().to_str().unwrap().starts_with(&ours);
            if is_ours {
                let text = fs::read_to_string(path.join("1.example.json")).unwrap();
                events.push(serde_json::from_str(&text).unwrap());
            }
        }
        assert!(!events.is_empty(), "{}", D::NAME);
        // A state accepts events in any order. The test applies the events forwards, backwards and
        // forwards again, from each start.
        let (forwards, count) = (events.clone(), events.len());
        events.reverse();
        let all: Vec<D::Event> = [forwards.clone(), events, forwards].concat();
        let fold = |mut state: D, events: &[D::Event]| {
            events.iter().for_each(|event| state.evolve(event.clone()));
            state
        };
        let stream = StreamId::of::<D>("x");
        let json = |state: &D| serde_json::to_value(state).unwrap();
        for start in 0..count {
            let expected = fold(D::default(), &all[start..]);
            for middle in start..all.len() {
                let restored = fold(D::default(), &all[start..middle]);
                let bytes = snapshot::encode(&stream, middle as u64, &restored).unwrap();
                let read = snapshot::decode(&stream, middle as u64, &bytes).unwrap();
                let again = fold(read, &all[middle..]);
                assert_eq!(json(&again), json(&expected), "{} {start} {middle}", D::NAME);
            }
        }
    }
    check::<Access>();
    check::<App>();
    check::<Build>();
    check::<Component>();
    check::<Enrolment>();
    check::<Install>();
    check::<Job>();
    check::<Name>();
    check::<Run>();
    check::<Runner>();
    check::<Subject>();
}
