#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may fail the test")]
#[path = "../../tests/it/support.rs"]
mod support;

use support::{Noise, database, open};

use std::time::Duration;

use event_log::Source;
use sqlx::PgPool;

use super::{AppliedPage, RebuildError, ShadowBuild, scan::scan};
use crate::{
    Projections, catalogue::view, projector::prepare, rebuild, rollback, swap::swap, verify,
};

const LONG: Duration = Duration::from_secs(30);

#[tokio::test]
async fn two_rebuilds_of_one_projection_share_the_table_but_not_their_caches() {
    let database = database().await;
    let log = open(&database).await;
    Projections::start(&log).await.unwrap();
    Noise::new(20).write(&log, 120).await;
    let build = || {
        let mut build = ShadowBuild::of(view("jobs").unwrap(), &Source::from(&database.pool));
        build.by = 7;
        build
    };
    let mut builds = [build(), build()];
    for one in &mut builds {
        one.begin(&database.pool, 3).await.unwrap();
    }
    // The rebuilds alternate, so that each skips every second page.
    for turn in 0.. {
        let mut tx = database.pool.begin().await.unwrap();
        let Some(AppliedPage { before, at }) = builds[turn % 2].page(&mut tx).await.unwrap() else {
            panic!("the shadow is gone")
        };
        tx.commit().await.unwrap();
        if before == at {
            break;
        }
    }
    let [one, two] = &mut builds;
    assert_eq!(swap(&database.pool, one).await.unwrap(), log.position());
    let verified = verify(&database.pool, "jobs", |_| {}).await.unwrap();
    assert_eq!(verified.differences, []);
    // The rebuild that finishes last finds the work done.
    assert_eq!(swap(&database.pool, two).await.unwrap(), log.position());
    assert_eq!(verify(&database.pool, "jobs", |_| {}).await.unwrap().differences, []);
}

#[tokio::test]
async fn an_asynchronous_projection_is_swapped_during_appends() {
    let database = database().await;
    let log = open(&database).await;
    prepare(&database.pool).await.unwrap();
    Noise::new(21).write(&log, 60).await;
    let mut build = ShadowBuild::of(view("jobs").unwrap(), &Source::from(&database.pool));
    // Pages are small, as if other callers appended faster than the rebuild reads.
    build.by = 3;
    build.begin(&database.pool, 1).await.unwrap();
    let swapped = swap(&database.pool, &mut build).await.unwrap();
    assert!(swapped < log.position(), "{swapped} of {}", log.position());
    // The projector continues from the position of the swap.
    let views = Projections::start(&log).await.unwrap();
    views.wait_for(log.position(), LONG).await.unwrap();
    assert_eq!(verify(&database.pool, "jobs", |_| {}).await.unwrap().differences, []);
    // A second rebuild ends at the position that readers have already seen, never before it.
    let mut build = ShadowBuild::of(view("jobs").unwrap(), &Source::from(&database.pool));
    build.by = 3;
    build.begin(&database.pool, 1).await.unwrap();
    assert_eq!(swap(&database.pool, &mut build).await.unwrap(), log.position());
}

#[tokio::test]
async fn a_rebuild_without_its_shadow_table_fails() {
    let database = database().await;
    let log = open(&database).await;
    Projections::start(&log).await.unwrap();
    Noise::new(22).write(&log, 20).await;
    for name in ["jobs", "job_queue"] {
        let mut build = ShadowBuild::of(view(name).unwrap(), &Source::from(&database.pool));
        build.begin(&database.pool, 1).await.unwrap();
        let delete_workers = sqlx::query("delete from log_consumer where name = $1 and shard >= 1");
        delete_workers.bind(name).execute(&database.pool).await.unwrap();
        let result = swap(&database.pool, &mut build).await;
        assert!(matches!(result, Err(RebuildError::Busy(_))), "{result:?}");
    }
}

#[tokio::test]
async fn an_active_rollback_is_not_replaced_and_a_replaced_rebuild_fails() {
    let database = database().await;
    let log = open(&database).await;
    let views = Projections::start(&log).await.unwrap();
    Noise::new(23).write(&log, 60).await;
    views.wait_for(log.position(), LONG).await.unwrap();
    let pool = &database.pool;
    for name in ["jobs", "job_queue"] {
        rebuild(pool, name, |_| {}).await.unwrap();
        let build = || ShadowBuild::of(view(name).unwrap(), &Source::from(&database.pool));
        // given an active rollback
        let mut rollback_build = build();
        rollback_build.take_up_previous(pool).await.unwrap();
        // when a rebuild starts between two pages of the rollback, or while the rollback holds its
        // locks longer than the lock timeout
        let result = rebuild(pool, name, |_| {}).await;
        assert!(matches!(result, Err(RebuildError::Busy(_))), "{result:?}");
        let mut tx = pool.begin().await.unwrap();
        let locked = "update log_consumer set lease_until = now() where name = $1 and shard = 1";
        sqlx::query(locked).bind(name).execute(&mut *tx).await.unwrap();
        let result = rebuild(pool, name, |_| {}).await;
        assert!(matches!(result, Err(RebuildError::Busy(_))), "{result:?}");
        tx.rollback().await.unwrap();
        // then the rollback succeeds
        rollback_build.index(pool).await.unwrap();
        assert_eq!(swap(pool, &mut rollback_build).await.unwrap(), log.position());
        // and a rebuild whose shadow table was replaced by another rollback fails and changes
        // nothing
        let mut replaced = build();
        replaced.begin(pool, 1).await.unwrap();
        rollback(pool, name, |_| {}).await.unwrap();
        let result = swap(pool, &mut replaced).await;
        assert!(matches!(result, Err(RebuildError::Busy(_))), "{result:?}");
        assert_eq!(verify(pool, name, |_| {}).await.unwrap().differences, []);
    }
}

/// Positions of the workers of a shadow table.
async fn workers(pool: &PgPool, name: &str) -> Vec<i64> {
    let sql = "select position from log_consumer where name = $1 and shard >= 1 order by shard";
    sqlx::query_scalar(sql).bind(name).fetch_all(pool).await.unwrap()
}

#[tokio::test]
async fn a_worker_leaves_the_shadow_table_of_another_rebuild_unchanged() {
    let database = database().await;
    let log = open(&database).await;
    let views = Projections::start(&log).await.unwrap();
    let mut noise = Noise::new(24);
    noise.write(&log, 60).await;
    views.wait_for(log.position(), LONG).await.unwrap();
    let (pool, name) = (&database.pool, "jobs");
    rebuild(pool, name, |_| {}).await.unwrap();
    noise.write(&log, 60).await;
    // given a rebuild with one worker, replaced by a rollback
    let mut rebuild_build = ShadowBuild::of(view(name).unwrap(), &Source::from(&database.pool));
    rebuild_build.begin(pool, 1).await.unwrap();
    let mut rollback_build = ShadowBuild::of(view(name).unwrap(), &Source::from(&database.pool));
    rollback_build.take_up_previous(pool).await.unwrap();
    let positions = workers(pool, name).await;
    assert!(positions.len() == 1 && positions[0] > 0, "{positions:?}");
    // when the worker continues
    scan(pool, std::slice::from_ref(&rebuild_build), 1, &mut |_| {}).await.unwrap();
    assert_eq!(workers(pool, name).await, positions);
    // and when another command assumes two workers for a rebuild that has three
    let delete_workers = "delete from log_consumer where name = 'jobs' and shard >= 1";
    sqlx::raw_sql(delete_workers).execute(pool).await.unwrap();
    rebuild_build.begin(pool, 3).await.unwrap();
    scan(pool, std::slice::from_ref(&rebuild_build), 2, &mut |_| {}).await.unwrap();
    assert_eq!(workers(pool, name).await, [0, 0, 0]);
    // then a command with three workers applies every event once
    scan(pool, std::slice::from_ref(&rebuild_build), 3, &mut |_| {}).await.unwrap();
    assert_eq!(workers(pool, name).await, [log.position().cast_signed(); 3]);
    rebuild_build.index(pool).await.unwrap();
    swap(pool, &mut rebuild_build).await.unwrap();
    views.wait_for(log.position(), LONG).await.unwrap();
    assert_eq!(verify(pool, name, |_| {}).await.unwrap().differences, []);
}
