//! Two servers on one database.
use crate::support;

use std::{sync::Arc, time::Duration};

use domain::decider::Decider;
use event_log::{AppendError, Commit, EventLog};
use support::{
    commit,
    counter::{Counter, CounterCommand, CounterError},
    database, meta, run, server, server_without_polling, verified_events,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_servers_keep_the_log_dense_and_one_wins_each_stream() {
    let database = database().await;
    let logs = [
        server_without_polling(&database).await,
        server_without_polling(&database).await,
        server_without_polling(&database).await,
    ];
    let mut calls = Vec::new();
    for round in 0..30 {
        for log in &logs {
            for id in 0..8 {
                let (log, id) = (log.clone(), format!("{round}-{id}"));
                calls.push(tokio::spawn(async move { log.append(commit(&id, 0, 2)).await }));
            }
        }
    }
    let (mut won, mut lost) = (0, 0);
    for call in calls {
        match call.await.unwrap() {
            Ok(_) => won += 1,
            Err(AppendError::Conflict { .. }) => lost += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!((won, lost), (240, 480));
    assert_eq!(verified_events(&database).await.0.size, 480);
}

#[tokio::test]
async fn server_with_a_stale_head_reads_it_and_writes() {
    let database = database().await;
    let (one, two) =
        (server_without_polling(&database).await, server_without_polling(&database).await);
    for n in 0..5 {
        one.append(commit("a", n, 1)).await.unwrap();
    }
    let mut tail = two.tail();
    assert_eq!(two.position(), 0);
    assert_eq!(two.append(commit("b", 0, 1)).await.unwrap().first, 6);
    // The second server receives the events of the first one in order.
    let others = tail.recv().await.unwrap();
    assert_eq!(others.iter().map(|event| event.position).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    assert_eq!(tail.recv().await.unwrap()[0].position, 6);
    assert_eq!(verified_events(&database).await.0.root, two.head().root);
}

#[tokio::test]
async fn idle_server_follows_the_head() {
    let database = database().await;
    let (one, two) = (server(&database).await, server(&database).await);
    one.append(commit("a", 0, 3)).await.unwrap();
    tokio::time::timeout(Duration::from_secs(5), two.wait_for(3)).await.unwrap().unwrap();
    assert_eq!(two.head(), one.head());
}

#[tokio::test]
async fn raised_epoch_is_adopted() {
    let database = database().await;
    let log = server_without_polling(&database).await;
    run(&database, "update log_head set epoch = 9").await;
    log.append(commit("a", 0, 1)).await.unwrap();
    assert_eq!((log.epoch(), log.head().epoch), (9, 9));
}

#[tokio::test]
async fn a_cached_state_is_not_older_than_the_known_position() {
    let database = database().await;
    let (one, two) = (server(&database).await, server(&database).await);
    let follow = async || {
        let known = two.wait_for(one.position());
        tokio::time::timeout(Duration::from_secs(5), known).await.unwrap().unwrap();
        let version = two.load::<Counter>("c").await.unwrap().version;
        assert_eq!(version, one.load::<Counter>("c").await.unwrap().version);
        version
    };
    handle(&one, CounterCommand::Add(2)).await.unwrap();
    let before = follow().await;
    handle(&one, CounterCommand::Close).await.unwrap();
    assert!(follow().await > before);
}

async fn handle(
    log: &EventLog,
    command: CounterCommand,
) -> Result<usize, (AppendError, Option<CounterError>)> {
    let mut counter = log.load::<Counter>("c").await.unwrap();
    let decided = counter.state.decide(command, log.clock().now());
    let (events, refusal) = match decided {
        Ok(events) => (events, None),
        Err(refusal) => (Vec::new(), Some(refusal)),
    };
    // A rejection, or a decision without events, is valid only for the current state.
    let write = counter.write(&events).unwrap();
    let count = events.len();
    log.append(Commit::of(meta(), vec![write])).await.map_err(|error| (error, refusal))?;
    counter.evolve(events);
    log.cache_state(&counter);
    Ok(count)
}

#[tokio::test]
async fn decision_without_events_needs_a_current_state() {
    let database = database().await;
    let (one, two) =
        (server_without_polling(&database).await, server_without_polling(&database).await);
    handle(&one, CounterCommand::Add(2)).await.unwrap();
    two.reload::<Counter>("c").await.unwrap();
    handle(&one, CounterCommand::Close).await.unwrap();
    assert_eq!(handle(&one, CounterCommand::Close).await.unwrap(), 0);
    // The second server still has the state before the close.
    let (error, _) = handle(&two, CounterCommand::Add(1)).await.unwrap_err();
    assert!(matches!(error, AppendError::Conflict { .. }));
    let counter = two.reload::<Counter>("c").await.unwrap();
    assert_eq!((counter.version, counter.state.value, counter.state.closed), (2, 2, true));
    assert_eq!(handle(&two, CounterCommand::Close).await.unwrap(), 0);
    assert_eq!(two.load_as_of::<Counter>("c", 1).await.unwrap().version, 1);
    assert!(Arc::ptr_eq(&two.load::<Counter>("c").await.unwrap().state, &counter.state));
}

/// A database that is restored while a server runs has another history after the restored position.
#[tokio::test]
async fn cached_states_of_a_lost_history_are_removed() {
    let database = database().await;
    let one = server_without_polling(&database).await;
    for _ in 0..7 {
        handle(&one, CounterCommand::Add(1)).await.unwrap();
    }
    let backup = "create table saved_event as select * from log_event; \
         create table saved_stream as select * from log_stream; \
         create table saved_head as select * from log_head";
    run(&database, backup).await;
    handle(&one, CounterCommand::Add(10)).await.unwrap();
    handle(&one, CounterCommand::Add(10)).await.unwrap();
    let restore = "delete from log_event; insert into log_event select * from saved_event; \
         delete from log_stream; insert into log_stream select * from saved_stream; \
         delete from log_head; insert into log_head select * from saved_head; \
         update log_head set epoch = epoch + 1";
    run(&database, restore).await;
    // Another server appends one event more than the first server has read.
    let two = server_without_polling(&database).await;
    for _ in 0..3 {
        handle(&two, CounterCommand::Add(100)).await.unwrap();
    }
    // The first server appends to another stream and detects that the log is different.
    one.append(commit("x", 0, 1)).await.unwrap();
    handle(&one, CounterCommand::Add(1_000)).await.unwrap();
    let counter = one.load::<Counter>("c").await.unwrap();
    assert_eq!((counter.version, counter.state.value), (11, 1_307));
    verified_events(&database).await;
}

/// The server can prove the last event of a head as soon as it reports that head.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn head_can_be_proven_immediately() {
    let database = database().await;
    let log = server(&database).await;
    let writer = tokio::spawn({
        let log = log.clone();
        async move {
            for n in 0..300 {
                log.append(commit("a", n, 1)).await.unwrap();
            }
        }
    });
    let mut last = 0;
    while !writer.is_finished() {
        let head = log.head();
        if head.size > last {
            last = head.size;
            log.inclusion(head.size, head.size).await.unwrap();
        }
        tokio::task::yield_now().await;
    }
    writer.await.unwrap();
}

/// Takes the locks in the order of a rebuild: the tables, then the head. Then increments the
/// fencing counter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_acknowledged_event_is_lost_during_rebuild_locks() {
    let database = database().await;
    let log = server_without_polling(&database).await;
    let writers = (0..8).map(|writer| {
        let log = log.clone();
        tokio::spawn(async move {
            for n in 0..60 {
                log.append(commit(&writer.to_string(), n, 1)).await.unwrap();
            }
        })
    });
    let writers = futures::future::join_all(writers);
    let swaps = async {
        let (mut done, mut late) = (0, 0);
        while done < 10 && late < 1_000 {
            let mut tx = database.pool.begin().await.unwrap();
            sqlx::raw_sql("set local lock_timeout = '40ms'").execute(&mut *tx).await.unwrap();
            let locked =
                sqlx::raw_sql("lock table log_stream, log_command").execute(&mut *tx).await;
            if locked.is_err() {
                // The locks are released, so the test tries again.
                late += 1;
                continue;
            }
            sqlx::raw_sql("update log_head set fence = fence + 1").execute(&mut *tx).await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
            tx.commit().await.unwrap();
            done += 1;
        }
        done
    };
    let (writers, swaps) = tokio::join!(writers, swaps);
    writers.into_iter().for_each(|writer| writer.unwrap());
    assert_eq!((swaps, verified_events(&database).await.0.size), (10, 480));
}

#[tokio::test]
async fn time_is_resolved_to_a_position() {
    let database = database().await;
    let log = server(&database).await;
    let mut times = Vec::new();
    for n in 0..20 {
        times.push(log.append(commit("a", n, 1)).await.unwrap().recorded_at);
    }
    for (n, time) in (1..).zip(&times) {
        let at = log.position_at(*time).await.unwrap();
        assert!(at >= n && times[at as usize - 1] == *time);
        let before = log.position_at(*time - chrono::TimeDelta::microseconds(1)).await.unwrap();
        assert!(before < n);
    }
    let late = *times.last().unwrap() + chrono::TimeDelta::days(1);
    assert_eq!(log.position_at(late).await.unwrap(), 20);
}
