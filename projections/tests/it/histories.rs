//! Random histories: two servers append, projections are rebuilt and rolled back, connections break
//! and tasks are killed at random points. Afterwards every row matches the log, and the log is
//! intact.
//!
//! `PROPTEST_CASES=200` runs more histories.
use crate::support;

use std::time::Duration;

use event_log::{EventLog, LogError, testing::Database};
use projections::{Projections, RebuildError, rebuild_all, rollback};
use proptest::{prelude::*, sample::Index};
use support::{Noise, database, names, open};

/// Number of histories, unless `PROPTEST_CASES` is set.
const CASES: u32 = 3;
const LONG: Duration = Duration::from_secs(60);

/// Disruption while both servers append.
#[derive(Debug, Clone)]
enum Fault {
    /// Projections are rebuilt with `parallel` workers.
    Rebuild { of: Vec<Index>, parallel: u32 },
    /// A rebuild is killed after `after_ms`.
    Killed { of: Vec<Index>, parallel: u32, after_ms: u64 },
    /// The last rebuild of a projection is undone.
    Rollback { of: Index },
    /// A rollback is killed after `after_ms`.
    KilledRollback { of: Index, after_ms: u64 },
    /// Every connection to the database is cut during a rebuild, after `after_ms`.
    Cut { of: Vec<Index>, after_ms: u64 },
    /// One of the two servers restarts.
    Restart { second: bool },
}

fn fault() -> impl Strategy<Value = Fault> {
    let views = || proptest::collection::vec(any::<Index>(), 1..4);
    prop_oneof![
        (views(), 1..4u32).prop_map(|(of, parallel)| Fault::Rebuild { of, parallel }),
        (views(), 1..4u32, 0..60u64).prop_map(|(of, parallel, after_ms)| Fault::Killed {
            of,
            parallel,
            after_ms
        }),
        any::<Index>().prop_map(|of| Fault::Rollback { of }),
        (any::<Index>(), 0..40u64)
            .prop_map(|(of, after_ms)| Fault::KilledRollback { of, after_ms }),
        (views(), 0..60u64).prop_map(|(of, after_ms)| Fault::Cut { of, after_ms }),
        any::<bool>().prop_map(|second| Fault::Restart { second }),
    ]
}

fn cases() -> ProptestConfig {
    let defaults = ProptestConfig::default();
    let cases = std::env::var_os("PROPTEST_CASES").map_or(CASES, |_| defaults.cases);
    // Each history uses its own database, so the number of attempts to shrink a failing history is
    // limited.
    ProptestConfig { cases, max_shrink_iters: 20, failure_persistence: None, ..defaults }
}

proptest! {
    #![proptest_config(cases())]
    #[test]
    fn every_row_matches_the_log_after_any_disturbances(
        seed in 0..1_000_000u64,
        steps in proptest::collection::vec((fault(), 5..40usize), 2..6),
    ) {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(history(seed, steps));
    }
}

/// A server: a log with its caches, and the projections of this log.
struct Server {
    log: EventLog,
    views: Projections,
}

async fn server(database: &Database) -> Server {
    let log = open(database).await;
    let views = Projections::start(&log).await.unwrap();
    Server { log, views }
}

async fn history(seed: u64, steps: Vec<(Fault, usize)>) {
    let database = database().await;
    let mut servers = [server(&database).await, server(&database).await];
    let mut noise = [Noise::new(seed), Noise::new(seed + 1_000_000)];
    let names = names(&database.pool).await;
    for (fault, commits) in steps {
        if let Fault::Restart { second } = fault {
            servers[usize::from(second)] = server(&database).await;
        }
        let ([one, two], [a, b]) = (&servers, &mut noise);
        tokio::join!(
            a.write_during_faults(&one.log, commits),
            b.write_during_faults(&two.log, commits),
            inject(&database, &names, fault),
        );
    }
    // Wait until the projections of both servers include the last event.
    let head: i64 = sqlx::query_scalar("select position from log_head")
        .fetch_one(&database.pool)
        .await
        .unwrap();
    for server in &servers {
        server.views.wait_for(head.cast_unsigned(), LONG).await.unwrap();
    }
    support::assert_verified(&database.pool).await;
    let verified = event_log::verify::verify(&database.pool, 0, |_| {}).await.unwrap();
    assert_eq!(verified.size, head.cast_unsigned());
}

async fn inject(database: &Database, names: &[&'static str], fault: Fault) {
    let selected = |of: &[Index]| {
        let mut selected: Vec<&'static str> = of.iter().map(|one| *one.get(names)).collect();
        selected.sort_unstable();
        selected.dedup();
        selected
    };
    let pool = database.pool.clone();
    match fault {
        Fault::Rebuild { of, parallel } => {
            assert_expected(rebuild_all(&pool, &selected(&of), parallel, |_| {}).await.map(drop));
        }
        Fault::Killed { of, parallel, after_ms } => {
            let names = selected(&of);
            let task = tokio::spawn(async move {
                assert_expected(rebuild_all(&pool, &names, parallel, |_| {}).await.map(drop));
            });
            kill(task, after_ms).await;
        }
        Fault::Rollback { of } => {
            let name = *of.get(names);
            assert_expected(rollback(&pool, name, |_| {}).await.map(drop));
        }
        Fault::KilledRollback { of, after_ms } => {
            let name = *of.get(names);
            let task = tokio::spawn(async move {
                assert_expected(rollback(&pool, name, |_| {}).await.map(drop));
            });
            kill(task, after_ms).await;
        }
        Fault::Cut { of, after_ms } => {
            let names = selected(&of);
            let task = tokio::spawn(async move {
                let result = rebuild_all(&pool, &names, 2, |_| {}).await;
                // The connection may be cut, so the result does not matter.
                drop(result);
            });
            tokio::time::sleep(Duration::from_millis(after_ms)).await;
            let cut = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
                       where datname = current_database() and pid <> pg_backend_pid()";
            sqlx::query(cut).execute(&database.pool).await.unwrap();
            task.await.unwrap();
        }
        Fault::Restart { .. } => {}
    }
}

async fn kill(task: tokio::task::JoinHandle<()>, after_ms: u64) {
    tokio::time::sleep(Duration::from_millis(after_ms)).await;
    task.abort();
    if let Err(ended) = task.await {
        assert!(ended.is_cancelled(), "{ended}");
    }
}

/// Accepts success, missing previous rows, a busy table and a broken connection.
fn assert_expected(result: Result<(), RebuildError>) {
    match result {
        Ok(()) | Err(RebuildError::NoPreviousRows(_) | RebuildError::Busy(_)) => {}
        // A killed task may leave a connection that fails later.
        Err(RebuildError::Log(LogError::Database(_))) => {}
        Err(error) => panic!("{error}"),
    }
}
