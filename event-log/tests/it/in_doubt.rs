//! Connections that break during an append: every result stays correct.
use crate::support;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use event_log::{
    AppendError, Appended, EventLog, Options,
    testing::{
        Database,
        proxy::{Fault, Proxy},
    },
};
use support::{
    check_responses, commit, count, database, event, pause, server, stream, verified_events,
    with_key,
};

/// Opens a log whose connection to the database can be broken.
async fn log_behind_proxy(proxy: &Proxy, database: &Database) -> EventLog {
    let pool = event_log::connect(&proxy.url(&database.url), 2).await.unwrap();
    let timeout = Duration::from_secs(2);
    let options = Options { poll_interval: None, query_timeout: timeout, ..Options::default() };
    let log = EventLog::open(pool, options).await.unwrap();
    log.append(commit("warm", 0, 1)).await.unwrap();
    log
}

type AppendResult = Result<Appended, AppendError>;

/// Appends a batch of three commits, one of which conflicts.
async fn append_batch(log: &EventLog, name: &str) -> (AppendResult, AppendResult, AppendResult) {
    let (a, b) = (format!("a{name}"), format!("b{name}"));
    tokio::join!(
        log.append(with_key(&a, 1, commit(&a, 0, 2))),
        log.append(commit(&b, 0, 1)),
        log.append(commit("warm", 0, 1)),
    )
}

async fn check_fault(arm: impl Fn(&Proxy)) {
    let database = database().await;
    let proxy = Proxy::before(&database.url);
    let log = log_behind_proxy(&proxy, &database).await;
    // After these batches, the database has prepared the statement, so a batch takes one exchange.
    for name in ["-warm1", "-warm2"] {
        let (a, b, stale) = append_batch(&log, name).await;
        assert!(a.is_ok() && b.is_ok() && stale.is_err());
    }
    arm(&proxy);
    let (a, b, stale) = append_batch(&log, "").await;
    assert_eq!(proxy.hits(), 1);
    assert!(matches!(stale, Err(AppendError::Conflict { .. })), "{stale:?}");
    let (a, b) = (a.unwrap(), b.unwrap());
    let after = log.append(commit("b", 1, 1)).await.unwrap();
    assert_eq!((a.first, b.first, after.first), (8, 10, 11));
    pause(30).await;
    let (_, events) = verified_events(&database).await;
    assert_eq!(events.len(), 11);
    let of = |id: &str| events.iter().filter(|event| event.stream == stream(id)).count();
    assert_eq!((of("a"), of("b"), of("warm")), (2, 2, 1));
    assert_eq!(events[b.first as usize - 1].commit_no, b.commit_no);
    assert_eq!(count(&database, "select fence from log_head").await, 1);
}

#[tokio::test]
async fn lost_request_is_sent_again() {
    check_fault(|proxy| proxy.arm(Fault::RequestLost)).await;
}

#[tokio::test]
async fn truncated_request_is_sent_again() {
    check_fault(|proxy| proxy.arm(Fault::RequestTorn)).await;
}

#[tokio::test]
async fn request_with_a_lost_response_is_not_executed_twice() {
    check_fault(|proxy| proxy.arm(Fault::ReplyLost)).await;
}

/// The operating system takes a quarter of an hour to report a lost network connection.
#[tokio::test]
async fn request_on_a_silent_connection_is_resolved_on_another() {
    check_fault(|proxy| proxy.arm(Fault::SilentBefore)).await;
    check_fault(|proxy| proxy.arm(Fault::SilentAfter)).await;
}

/// A lock timeout or a deadlock means that nothing was written, so the commit is not in doubt.
#[tokio::test]
async fn lock_timeout_and_deadlock_are_retried() {
    let database = database().await;
    let options = Options { query_timeout: Duration::from_millis(500), ..Options::default() };
    let hasty = database.log_with(options).await.unwrap();
    let mut tx = database.pool.begin().await.unwrap();
    sqlx::raw_sql("lock table log_stream in access exclusive mode")
        .execute(&mut *tx)
        .await
        .unwrap();
    let release = async {
        pause(900).await;
        tx.commit().await.unwrap();
    };
    let (appended, ()) = tokio::join!(hasty.append(commit("a", 0, 1)), release);
    assert_eq!(appended.unwrap().first, 1);

    // The query timeout of this server is longer than Postgres takes to detect a deadlock and to
    // end one of the transactions.
    let patient = server(&database).await;
    patient.append(commit("a", 1, 1)).await.unwrap();
    let mut tx = database.pool.begin().await.unwrap();
    sqlx::raw_sql("select 1 from log_head for update").execute(&mut *tx).await.unwrap();
    let cross = async {
        pause(200).await;
        sqlx::raw_sql("lock table log_stream in access exclusive mode")
            .execute(&mut *tx)
            .await
            .unwrap();
        tx.commit().await.unwrap();
    };
    let (appended, ()) = tokio::join!(patient.append(commit("a", 2, 1)), cross);
    assert_eq!(appended.unwrap().first, 3);
    assert_eq!(verified_events(&database).await.0.size, 3);
    assert_eq!(count(&database, "select fence from log_head").await, 0);
}

/// A delayed request counts if it arrives before the fencing counter is incremented. The appender
/// must then find that the batch was committed. A request that arrives after the increment must
/// write nothing, even if it arrives before the batch is sent again.
#[tokio::test]
async fn late_request_is_executed_before_the_fence_only() {
    const ROUNDS: u64 = 24;
    let database = database().await;
    let proxy = Proxy::before(&database.url);
    let log = log_behind_proxy(&proxy, &database).await;
    for round in 0..ROUNDS {
        // After each break, the new connection has to prepare the statement again.
        let (a, b, _) = append_batch(&log, &format!("-{round}-before")).await;
        assert!(a.is_ok() && b.is_ok());
        proxy.arm_late(Duration::from_micros(round * 500));
        let (a, b, stale) = append_batch(&log, &format!("-{round}")).await;
        assert!(a.is_ok() && b.is_ok(), "{round}: {a:?} {b:?}");
        assert!(matches!(stale, Err(AppendError::Conflict { .. })), "{stale:?}");
    }
    assert_eq!(u64::from(proxy.hits()), ROUNDS);
    pause(30).await;
    assert_eq!(verified_events(&database).await.0.size, 1 + ROUNDS * 6);
}

/// The batch wrote only a key, so no event shows whether it was committed.
#[tokio::test]
async fn batch_without_events_is_resolved_too() {
    for fault in [Fault::RequestLost, Fault::ReplyLost, Fault::RequestLate] {
        let database = database().await;
        let proxy = Proxy::before(&database.url);
        let log = log_behind_proxy(&proxy, &database).await;
        log.append(with_key("first", 1, commit("warm", 1, 0))).await.unwrap();
        log.append(with_key("second", 1, commit("warm", 1, 0))).await.unwrap();
        proxy.arm(fault);
        log.append(with_key("third", 1, commit("warm", 1, 0))).await.unwrap();
        assert_eq!(count(&database, "select count(*) from log_command").await, 3);
        assert_eq!(proxy.hits(), 1);
    }
}

/// Runs two servers and many callers, while a task terminates the servers' connections
/// continuously.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_is_dense_and_every_response_true_despite_faults() {
    const CALLERS: u64 = 12;
    const EACH: u64 = 40;
    let database = database().await;
    let logs = [server(&database).await, server(&database).await];
    let stop = Arc::new(AtomicBool::new(false));
    let nemesis = {
        let (pool, stop) = (database.pool.clone(), stop.clone());
        tokio::spawn(async move {
            let mut killed = 0i64;
            while !stop.load(Ordering::SeqCst) {
                let kill = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
                     where datname = current_database() and query like 'with%' and pid <> pg_backend_pid()";
                killed += sqlx::query_scalar::<_, i64>(kill).fetch_one(&pool).await.unwrap_or(0);
                pause(3 + killed.cast_unsigned() % 11).await;
            }
            killed
        })
    };
    let callers = (0..CALLERS).map(|caller| {
        let log = logs[caller as usize % 2].clone();
        tokio::spawn(async move {
            let mut responses = Vec::new();
            for n in 0..EACH {
                let number = caller * EACH + n;
                // Every fifth commit uses the shared stream.
                let shared = number.is_multiple_of(5);
                let mut one = commit(&number.to_string(), 0, 1);
                if shared {
                    one.writes[0].stream = stream("shared");
                    one.writes[0].expected = log.version(&stream("shared")).await.unwrap_or(0);
                }
                one.writes[0].events[0] = event(number);
                responses.push((number, log.append(one).await));
            }
            responses
        })
    });
    let mut responses = BTreeMap::new();
    for caller in futures::future::join_all(callers).await {
        responses.extend(caller.unwrap());
    }
    stop.store(true, Ordering::SeqCst);
    let killed = nemesis.await.unwrap();
    let (written, rejected) = check_responses(&database, &responses).await;
    assert!(killed > 2, "only {killed} connections were ended");
    assert!(written > 300, "{written} written, {rejected} refused");
}
