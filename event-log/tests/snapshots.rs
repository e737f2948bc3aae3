//! A state that was kept is the state that the events make; and whatever is wrong with it, the events count.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may fail the test")]
mod support;

use std::{fs, path::Path};

use domain::{
    access::Access, app::App, build::Build, component::Component, decider::Decider,
    enrolment::Enrolment, install::Install, job::Job, name::Name, run::Run, runner::Runner,
    subject::Subject,
};
use event_log::{Commit, EventLog, testing::Database};
use sqlx::Row;
use support::{
    alone, commit, count,
    counter::{Counter, CounterEvent},
    database, meta, pause, run, server,
};

/// Add one so many times.
async fn add(log: &EventLog, times: usize) {
    let mut counter = log.load::<Counter>("c").await.unwrap();
    let events = vec![CounterEvent::Added { by: 1 }; times];
    let write = counter.write(&events).unwrap();
    log.append(Commit::of(meta(), vec![write])).await.unwrap();
    counter.evolve(events);
    log.remember(&counter);
}

/// The sequence of the snapshot, once it is there: it is kept after the answer.
async fn kept(database: &Database, at_least: i64) -> i64 {
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
async fn a_state_is_kept_every_200_events_and_only_what_follows_is_read() {
    let database = database().await;
    let log = server(&database).await;
    add(&log, 150).await;
    add(&log, 45).await;
    assert_eq!(count(&database, "select count(*) from log_snapshot").await, 0);
    add(&log, 10).await;
    assert_eq!(kept(&database, 200).await, 205);
    add(&log, 40).await;
    let known = log.load::<Counter>("c").await.unwrap();
    // A server that starts takes it and the tail: what was changed in it shows.
    run(&database, "update log_snapshot set state = replace(convert_from(state, 'UTF8'), '205', '1205')::bytea").await;
    let other = alone(&database).await.load::<Counter>("c").await.unwrap();
    assert_eq!((other.version, other.state.value), (known.version, known.state.value + 1_000));
}

#[tokio::test]
async fn a_snapshot_that_cannot_be_right_is_as_good_as_none() {
    for spoil in [
        "delete from log_snapshot",
        "update log_snapshot set state = 'no state', sequence = 205",
        "update log_snapshot set schema_hash = sha256('other code')",
        "update log_snapshot set codec = 9",
        "update log_snapshot set sequence = 9000",
    ] {
        let database = database().await;
        add(&server(&database).await, 205).await;
        kept(&database, 200).await;
        run(&database, spoil).await;
        let log = alone(&database).await;
        let counter = log.load::<Counter>("c").await.unwrap();
        assert_eq!((counter.version, counter.state.value), (205, 205), "{spoil}");
        // And a right one is kept again.
        for _ in 0..200 {
            let right = "select count(*) from log_snapshot where sequence = 205 and codec = 1 \
                 and convert_from(state, 'UTF8') like '{%'";
            if count(&database, right).await == 1 {
                break;
            }
            pause(25).await;
        }
        let row =
            sqlx::query("select sequence, codec, convert_from(state, 'UTF8') from log_snapshot");
        let row = row.fetch_one(&database.pool).await.unwrap();
        let state: Counter = serde_json::from_str(row.get(2)).unwrap();
        assert_eq!(
            (row.get::<i64, _>(0), row.get::<i16, _>(1), state.value),
            (205, 1, 205),
            "{spoil}"
        );
    }
}

#[tokio::test]
async fn a_long_stream_is_read_page_by_page() {
    let database = database().await;
    let log = server(&database).await;
    for _ in 0..3 {
        add(&log, 1_000).await;
    }
    run(&database, "delete from log_snapshot").await;
    let other = alone(&database).await;
    assert_eq!(other.load::<Counter>("c").await.unwrap().state.value, 3_000);
    assert_eq!(other.load_as_of::<Counter>("c", 2_500).await.unwrap().version, 2_500);
    other.append(commit("x", 0, 1)).await.unwrap();
    assert_eq!(other.load_as_of::<Counter>("c", 3_001).await.unwrap().version, 3_000);
}

/// fold(all) = fold(state kept somewhere in the middle, and the tail), for every aggregate, through the snapshot's
/// own format.
#[test]
fn no_aggregate_loses_anything_in_a_snapshot() {
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
        // Whatever order facts come in, a state takes them: from each one on, forwards and backwards.
        let (forwards, count) = (events.clone(), events.len());
        events.reverse();
        let all: Vec<D::Event> = [forwards.clone(), events, forwards].concat();
        let fold = |mut state: D, events: &[D::Event]| {
            events.iter().for_each(|event| state.evolve(event.clone()));
            state
        };
        let said = |state: &D| serde_json::to_value(state).unwrap();
        for start in 0..count {
            let whole = fold(D::default(), &all[start..]);
            for middle in start..all.len() {
                let bytes = serde_json::to_vec(&fold(D::default(), &all[start..middle])).unwrap();
                let again = fold(serde_json::from_slice(&bytes).unwrap(), &all[middle..]);
                assert_eq!(said(&again), said(&whole), "{} {start} {middle}", D::NAME);
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
