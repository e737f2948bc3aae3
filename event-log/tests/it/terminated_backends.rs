//! Backends that are terminated at a defined point: during the statement, before its commit, and
//! before the response to the commit.
use crate::support;

use std::time::Duration;

use event_log::{
    EventLog, Options,
    testing::{Cluster, Database, fresh_in, settings},
};
use sqlx::PgPool;
use support::{Responses, check_responses, commit, count, database, event, pause, run};

/// Opens a log with a query timeout of 20 s, so that a test can terminate its backend while it
/// waits.
async fn open_log(database: &Database) -> EventLog {
    let timeout = Duration::from_secs(20);
    let options = Options { poll_interval: None, query_timeout: timeout, ..Options::default() };
    database.log_with(options).await.unwrap()
}

/// Appends these numbers concurrently, each to its own stream.
async fn append(log: &EventLog, numbers: std::ops::Range<u64>) -> Responses {
    let each = numbers.map(|number| async move {
        let mut one = commit(&number.to_string(), 0, 1);
        one.writes[0].events[0] = event(number);
        (number, log.append(one).await)
    });
    futures::future::join_all(each).await.into_iter().collect()
}

/// Terminates the appending backend as soon as it waits for this event.
async fn terminate_waiting(pool: &PgPool, event: &str) {
    let end = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
               where datname = current_database() and pid <> pg_backend_pid() \
               and query like 'with%' and state = 'active' and wait_event = $1";
    for _ in 0..1_000 {
        let ended: i64 = sqlx::query_scalar(end).bind(event).fetch_one(pool).await.unwrap();
        if ended > 0 {
            assert_eq!(ended, 1);
            return;
        }
        pause(5).await;
    }
    panic!("no backend waited for {event}");
}

#[tokio::test]
async fn backend_terminated_in_its_statement_writes_nothing_and_the_batch_is_retried() {
    let database = database().await;
    let log = open_log(&database).await;
    let mut responses = append(&log, 0..5).await;
    let mut tx = database.pool.begin().await.unwrap();
    let lock = "lock table log_stream in access exclusive mode";
    sqlx::raw_sql(lock).execute(&mut *tx).await.unwrap();
    let nemesis = async {
        terminate_waiting(&database.pool, "relation").await;
        tx.rollback().await.unwrap();
    };
    let (during, ()) = tokio::join!(append(&log, 5..25), nemesis);
    responses.extend(during);
    assert_eq!(check_responses(&database, &responses).await, (25, 0));
}

#[tokio::test]
async fn backend_terminated_before_its_commit_writes_nothing() {
    let database = database().await;
    let log = open_log(&database).await;
    let mut responses = append(&log, 0..5).await;
    // A deferred trigger runs after the statement and before the commit.
    run(
        &database,
        "create function stead.late() returns trigger language plpgsql as \
         $$ begin perform pg_sleep(60); return null; end $$; \
         create constraint trigger late after insert on log_event deferrable initially deferred \
         for each row execute function stead.late()",
    )
    .await;
    let nemesis = async {
        terminate_waiting(&database.pool, "PgSleep").await;
        // The retried batch may already be running.
        let end = "select pg_terminate_backend(pid) from pg_stat_activity \
                   where datname = current_database() and wait_event = 'PgSleep'";
        pause(50).await;
        run(&database, end).await;
        for _ in 0..200 {
            run(&database, end).await;
            let drop = "set lock_timeout = '20ms'; drop trigger late on log_event";
            if sqlx::raw_sql(drop).execute(&database.pool).await.is_ok() {
                return;
            }
        }
        panic!("the trigger is still there");
    };
    let (during, ()) = tokio::join!(append(&log, 5..25), nemesis);
    responses.extend(during);
    let (written, rejected) = check_responses(&database, &responses).await;
    assert_eq!(written + rejected, 25);
    let after = append(&log, 25..30).await;
    assert!(after.values().all(Result::is_ok), "{after:?}");
    responses.extend(after);
    check_responses(&database, &responses).await;
}

/// Waits until commits wait for the replica. A backend shows the new setting before the checkpointer
/// has enabled these waits, so the setting itself proves nothing.
async fn wait_for_waiting_commits(database: &Database) {
    let mut connection = database.pool.acquire().await.unwrap().detach();
    let commits = async {
        loop {
            // Takes no lock, which this backend would hold until its commit ends.
            let write = "select pg_logical_emit_message(true, 'probe', '')";
            sqlx::raw_sql(write).execute(&mut connection).await.unwrap();
        }
    };
    let waiting = "select count(*) from pg_stat_activity where wait_event = 'SyncRep'";
    let wait = async {
        while count(database, waiting).await == 0 {
            pause(5).await;
        }
    };
    futures::future::select(Box::pin(commits), Box::pin(wait)).await;
}

/// A commit that waits for a replica is on disk, but not acknowledged yet.
#[tokio::test]
async fn batch_is_not_retried_if_the_backend_was_terminated_after_its_commit() {
    let dir = tempfile::Builder::new().prefix("stead-sync-").tempdir().unwrap();
    let settings = settings(false, &["max_connections=40"]);
    let cluster = Cluster::start(dir.path(), settings).await.unwrap();
    let database = fresh_in(&cluster).await.unwrap();
    let log = open_log(&database).await;
    let mut responses = append(&log, 0..5).await;
    run(&database, "alter system set synchronous_standby_names = 'nobody'").await;
    run(&database, "select pg_reload_conf()").await;
    wait_for_waiting_commits(&database).await;
    let nemesis = async {
        terminate_waiting(&database.pool, "SyncRep").await;
        run(&database, "alter system reset synchronous_standby_names").await;
        run(&database, "select pg_reload_conf()").await;
    };
    let (during, ()) = tokio::join!(append(&log, 5..25), nemesis);
    responses.extend(during);
    assert_eq!(check_responses(&database, &responses).await, (25, 0));
    // The writer queried the outcome once.
    assert_eq!(count(&database, "select fence from log_head").await, 1);
    drop(log);
    cluster.stop().unwrap();
}
