//! Rebuilds of several projections with several workers, killed at any point, and rollbacks.
use crate::support;

use std::time::Duration;

use event_log::testing::Database;
use projections::{Progress, Projections, RebuildError, rebuild, rebuild_all, rollback, verify};
use support::{Noise, assert_verified, database, names, open};

const LONG: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_workers_rebuild_all_projections_under_load() {
    let database = database().await;
    let log = open(&database).await;
    let views = Projections::start(&log).await.unwrap();
    let mut noise = Noise::new(50);
    noise.write(&log, 150).await;
    let names = names(&database.pool).await;
    let mut reported = vec![];
    let writing = noise.write(&log, 100);
    let rebuilding = rebuild_all(&database.pool, &names, 3, |progress| reported.push(progress));
    let ((), rebuilt) = tokio::join!(writing, rebuilding);
    assert_eq!(rebuilt.unwrap().iter().map(|one| one.name).collect::<Vec<_>>(), names);
    views.wait_for(log.position(), LONG).await.unwrap();
    assert_verified(&database.pool).await;
    // The workers' consumer rows are deleted, and every index exists.
    let left = "select count(*) from log_consumer where shard >= 1";
    assert_eq!(sqlx::query_scalar::<_, i64>(left).fetch_one(&database.pool).await.unwrap(), 0);
    let indexes = "select count(*) from pg_indexes where tablename = $1";
    for name in names {
        let count = async |table: String| {
            let query = sqlx::query_scalar::<_, i64>(indexes).bind(table);
            query.fetch_one(&database.pool).await.unwrap()
        };
        let (now, before) = (
            count(format!("projection_{name}")).await,
            count(format!("projection_{name}_previous")).await,
        );
        assert_eq!(now, before, "{name}");
    }
    let swaps = reported.iter().filter(|one| **one == Progress::Swapping).count();
    assert_eq!(swaps, 15);
}

#[tokio::test]
async fn killed_workers_continue_and_apply_every_event_once() {
    let database = database().await;
    let log = open(&database).await;
    Projections::start(&log).await.unwrap();
    let mut noise = Noise::new(51);
    noise.write(&log, 300).await;
    let names = names(&database.pool).await;
    for pause in [0, 5, 15, 40, 80] {
        let (pool, names) = (database.pool.clone(), names.clone());
        let task = tokio::spawn(async move {
            rebuild_all(&pool, &names, 2, |progress| {
                assert!(progress != Progress::Swapping, "killed here");
            })
            .await
            .map(|_| ())
        });
        tokio::time::sleep(Duration::from_millis(pause)).await;
        task.abort();
        let _ = task.await;
        noise.write(&log, 5).await;
    }
    // More workers are requested than the rebuild began with. It continues with its original
    // number.
    rebuild_all(&database.pool, &names, 5, |_| {}).await.unwrap();
    for name in names {
        assert_eq!(verify(&database.pool, name, |_| {}).await.unwrap().differences, [], "{name}");
    }
}

#[tokio::test]
async fn a_rollback_restores_the_previous_rows_and_updates_them() {
    let database = database().await;
    let log = open(&database).await;
    let views = Projections::start(&log).await.unwrap();
    let mut noise = Noise::new(52);
    noise.write(&log, 100).await;
    views.wait_for(log.position(), LONG).await.unwrap();
    for name in ["jobs", "job_queue"] {
        let error = rollback(&database.pool, name, |_| {}).await.unwrap_err();
        assert!(matches!(error, RebuildError::NoPreviousRows(_)), "{error}");
        rebuild(&database.pool, name, |_| {}).await.unwrap();
        insert_wrong_row(&database, name).await;
        noise.write(&log, 40).await;
        views.wait_for(log.position(), LONG).await.unwrap();
        // when the projection is rolled back
        let rolled_back = rollback(&database.pool, name, |_| {}).await.unwrap();
        assert!(rolled_back.position >= log.position());
        assert_eq!(verify(&database.pool, name, |_| {}).await.unwrap().differences, [], "{name}");
        // and rolled back again: the rows that were live before the first rollback are live again
        noise.write(&log, 20).await;
        views.wait_for(log.position(), LONG).await.unwrap();
        rollback(&database.pool, name, |_| {}).await.unwrap();
        let differences = verify(&database.pool, name, |_| {}).await.unwrap().differences;
        assert_eq!(differences.len(), 1, "{name}: {differences:?}");
        noise.write(&log, 20).await;
        views.wait_for(log.position(), LONG).await.unwrap();
        rebuild(&database.pool, name, |_| {}).await.unwrap();
        assert_eq!(verify(&database.pool, name, |_| {}).await.unwrap().differences, [], "{name}");
    }
    assert_verified(&database.pool).await;
    let set_other_version =
        "update log_consumer set version = 0 where name = 'jobs' and shard = -1";
    sqlx::raw_sql(set_other_version).execute(&database.pool).await.unwrap();
    let error = rollback(&database.pool, "jobs", |_| {}).await.unwrap_err().to_string();
    assert!(error.contains("version 0"), "{error}");
}

#[tokio::test]
async fn only_a_rollback_continues_a_killed_rollback() {
    let database = database().await;
    let log = open(&database).await;
    let views = Projections::start(&log).await.unwrap();
    let mut noise = Noise::new(53);
    noise.write(&log, 100).await;
    views.wait_for(log.position(), LONG).await.unwrap();
    let count_differences =
        async |name: &str| verify(&database.pool, name, |_| {}).await.unwrap().differences.len();
    for name in ["jobs", "job_queue"] {
        // The previous rows have one row too many.
        insert_wrong_row(&database, name).await;
        rebuild(&database.pool, name, |_| {}).await.unwrap();
        assert_eq!(count_differences(name).await, 0, "{name}");
        // given a rollback that was killed before its swap, when it is repeated
        kill_rollback(&database, name).await;
        rollback(&database.pool, name, |_| {}).await.unwrap();
        assert_eq!(count_differences(name).await, 1, "{name}");
        // and when a rebuild runs instead, from the first event
        rebuild(&database.pool, name, |_| {}).await.unwrap();
        assert_eq!(count_differences(name).await, 0, "{name}");
        kill_rollback(&database, name).await;
        noise.write(&log, 20).await;
        views.wait_for(log.position(), LONG).await.unwrap();
        // The rollback counts as active until its lease expires.
        let error = rebuild(&database.pool, name, |_| {}).await.unwrap_err();
        assert!(matches!(error, RebuildError::Busy(_)), "{error}");
        let expire_leases = "update log_consumer set lease_until = now() where shard >= 1";
        sqlx::raw_sql(expire_leases).execute(&database.pool).await.unwrap();
        rebuild(&database.pool, name, |_| {}).await.unwrap();
        assert_eq!(count_differences(name).await, 0, "{name}");
    }
}

/// Runs a rollback that is killed directly before the swap.
async fn kill_rollback(database: &Database, name: &'static str) {
    let pool = database.pool.clone();
    let task = tokio::spawn(async move {
        let panic_at_swap = |progress| assert!(progress != Progress::Swapping, "killed here");
        drop(rollback(&pool, name, panic_at_swap).await);
    });
    assert!(task.await.unwrap_err().is_panic());
}

/// Inserts a row without a stream, as an incorrect rebuild may leave. No event corrects it.
async fn insert_wrong_row(database: &Database, name: &str) {
    let insert = format!(
        "insert into projection_{name} select r.* from (select * from projection_{name} limit 1) v, \
         jsonb_populate_record(null::projection_{name}, to_jsonb(v) || '{{\"key\":\"mistake\"}}') r"
    );
    sqlx::raw_sql(&insert).execute(&database.pool).await.unwrap();
}
