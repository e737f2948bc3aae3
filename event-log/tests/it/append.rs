use crate::support;

use std::time::Duration;

use event_log::{
    AppendError, Commit, ConsumerGuard, Options, SessionGuard, consumer, migrate::FORMAT, testing,
};
use support::{
    commit, count, database, meta, run, server, server_without_polling, stream, verified_events,
    with_key, write,
};

#[tokio::test]
async fn events_get_dense_positions_and_sequences() {
    let database = database().await;
    let log = server(&database).await;
    let first = log.append(commit("a", 0, 2)).await.unwrap();
    assert_eq!((first.first, first.last, first.commit_no), (1, 2, 1));
    let second = log.append(commit("a", 2, 1)).await.unwrap();
    assert_eq!((second.first, second.last), (3, 3));
    assert!(second.recorded_at >= first.recorded_at);
    assert_eq!(log.position(), 3);
    let events = log.read_stream(&stream("a"), 1).await.unwrap();
    assert_eq!(events.iter().map(|event| event.sequence).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(&*events[0].payload, r#"{"type":"queued","n":1}"#);
    assert_eq!(events[0].meta().unwrap(), meta());
    assert_eq!(&*events[0].metadata, r#"{"actor":"system","command_id":"cmd"}"#);
    assert_eq!(log.version(&stream("a")).await.unwrap(), 3);
    verified_events(&database).await;
}

#[tokio::test]
async fn empty_commit_is_rejected() {
    let database = database().await;
    let log = server(&database).await;
    let error = log.append(Commit::of(meta(), vec![])).await;
    assert!(matches!(error, Err(AppendError::Invalid(why)) if why.contains("no write")));
    // The log accepts further commits.
    assert_eq!(log.append(commit("a", 0, 1)).await.unwrap().last, 1);
}

#[tokio::test]
async fn stale_write_is_rejected_with_the_changed_streams() {
    let database = database().await;
    let log = server(&database).await;
    log.append(commit("a", 0, 1)).await.unwrap();
    let two = Commit::of(meta(), vec![write("a", 0, 1), write("b", 0, 1)]);
    let Err(AppendError::Conflict { stale }) = log.append(two).await else { panic!() };
    assert_eq!(stale, [stream("a")]);
    assert_eq!(log.position(), 1);
}

#[tokio::test]
async fn write_at_version_5_of_a_missing_stream_is_rejected() {
    let database = database().await;
    let log = server(&database).await;
    let error = log.append(commit("a", 5, 1)).await;
    assert!(matches!(error, Err(AppendError::Conflict { .. })));
    let error = log.append(commit("a", 5, 0)).await;
    assert!(matches!(error, Err(AppendError::Conflict { .. })));
    assert_eq!(count(&database, "select count(*) from log_stream").await, 0);
    log.append(commit("a", 0, 0)).await.unwrap();
}

#[tokio::test]
async fn streams_of_one_commit_are_written_atomically() {
    let database = database().await;
    let log = server(&database).await;
    let both = || Commit::of(meta(), vec![write("a", 0, 2), write("b", 0, 1), write("c", 0, 0)]);
    assert_eq!(log.append(both()).await.unwrap().last, 3);
    assert!(log.append(both()).await.is_err());
    assert_eq!(verified_events(&database).await.0.size, 3);
}

#[tokio::test]
async fn invalid_commit_does_not_affect_others_in_its_batch() {
    let database = database().await;
    let log = server(&database).await;
    log.append(commit("taken", 0, 1)).await.unwrap();
    let mut broken = commit("broken", 0, 1);
    broken.writes[0].events[0].payload = "{ this is not JSON".into();
    let (good, stale, broken, also_good) = tokio::join!(
        log.append(commit("a", 0, 1)),
        log.append(commit("taken", 0, 1)),
        log.append(broken),
        log.append(commit("b", 0, 1)),
    );
    assert!(matches!(stale, Err(AppendError::Conflict { .. })));
    assert!(matches!(broken, Err(AppendError::Database(_))));
    let mut positions = [good.unwrap().last, also_good.unwrap().last];
    positions.sort_unstable();
    assert_eq!(positions, [2, 3]);
    verified_events(&database).await;
}

#[tokio::test]
async fn commits_of_one_stream_are_sequential() {
    let database = database().await;
    let log = server(&database).await;
    let (first, second, third) = tokio::join!(
        log.append(commit("a", 0, 1)),
        log.append(commit("a", 1, 1)),
        log.append(commit("a", 2, 1)),
    );
    let commits = [first, second, third].map(|done| done.unwrap().commit_no);
    assert_eq!(commits, [1, 2, 3]);
}

#[tokio::test]
async fn repeated_command_gets_the_first_response() {
    let database = database().await;
    let log = server(&database).await;
    let first = log.append(with_key("k", 1, commit("a", 0, 2))).await.unwrap();
    let again = log.append(with_key("k", 1, commit("a", 0, 2))).await;
    let Err(AppendError::KeyUsed { first_position, last_position, response }) = again else {
        panic!()
    };
    assert_eq!((first_position, last_position), (first.first, first.last));
    assert_eq!(response.unwrap()["key"], "k");
    let other = log.append(with_key("k", 2, commit("b", 0, 1))).await;
    assert!(matches!(other, Err(AppendError::KeyMismatch)));
    let mut other_principal = with_key("k", 2, commit("b", 0, 1));
    other_principal.key.as_mut().unwrap().principal = "prn_2".into();
    log.append(other_principal).await.unwrap();
    // Two concurrent commits with the same key: one is written, the other gets its result.
    let (one, two) = tokio::join!(
        log.append(with_key("same", 1, commit("c", 0, 1))),
        log.append(with_key("same", 1, commit("d", 0, 1))),
    );
    one.unwrap();
    assert!(matches!(two, Err(AppendError::KeyUsed { .. })));
}

#[tokio::test]
async fn idempotency_key_of_a_command_without_events_is_stored() {
    let database = database().await;
    let log = server(&database).await;
    log.append(commit("a", 0, 1)).await.unwrap();
    let done = log.append(with_key("k", 1, commit("a", 1, 0))).await.unwrap();
    assert_eq!((done.first, done.last), (2, 1));
    let again = log.append(with_key("k", 1, commit("a", 1, 0))).await;
    let Err(AppendError::KeyUsed { first_position, last_position, .. }) = again else { panic!() };
    assert_eq!((first_position, last_position), (2, 1));
}

#[tokio::test]
async fn expired_idempotency_key_can_be_reused() {
    let database = database().await;
    let options = Options { key_ttl: Duration::ZERO, ..Options::default() };
    let log = database.log_with(options).await.unwrap();
    log.append(with_key("k", 1, commit("a", 0, 1))).await.unwrap();
    log.append(with_key("k", 2, commit("a", 1, 1))).await.unwrap();
    assert_eq!(count(&database, "select count(*) from log_command").await, 1);
    assert_eq!(log.delete_expired_keys().await.unwrap(), 1);
}

#[tokio::test]
async fn commit_of_an_advanced_or_lost_consumer_is_rejected() {
    let database = database().await;
    let log = server(&database).await;
    let lease = Duration::from_secs(60);
    let name = ("policy/x", 1, 0);
    let acquired = consumer::acquire(&database.pool, log.clock(), name, "server 1", lease);
    let acquired = acquired.await.unwrap().unwrap();
    let others = consumer::acquire(&database.pool, log.clock(), name, "server 2", lease);
    assert_eq!(others.await.unwrap(), None);
    let with = |id: &str, expected, owner_epoch| {
        let mut commit = commit(id, 0, 1);
        let (name, version, shard) = ("policy/x".into(), 1, 0);
        commit.consumers = vec![ConsumerGuard { name, version, shard, expected, owner_epoch }];
        commit
    };
    log.append(with("a", 0, acquired.owner_epoch)).await.unwrap();
    for (expected, owner_epoch) in [(1, acquired.owner_epoch), (0, acquired.owner_epoch + 1)] {
        let error = log.append(with("b", expected, owner_epoch)).await;
        assert!(matches!(error, Err(AppendError::ConsumerMoved { .. })));
        // A commit with only the guard is checked in the same way.
        let mut only = with("b", expected, owner_epoch);
        only.writes.clear();
        let error = log.append(only).await;
        assert!(matches!(error, Err(AppendError::ConsumerMoved { .. })));
    }
    let mut only = with("b", 0, acquired.owner_epoch);
    only.writes.clear();
    log.append(only).await.unwrap();
    // A guarded commit does not advance the consumer. After the consumer has advanced, a guard on
    // its earlier position fails.
    assert_eq!(consumer::position(&database.pool, name).await.unwrap(), Some(0));
    assert!(consumer::advance(&database.pool, &acquired, 9).await.unwrap());
    let error = log.append(with("b", 0, acquired.owner_epoch)).await;
    assert!(matches!(error, Err(AppendError::ConsumerMoved { .. })));
    assert_eq!(verified_events(&database).await.0.size, 1);
}

#[tokio::test]
async fn commits_of_one_consumer_share_a_batch() {
    const REACTIONS: usize = 20;
    let database = database().await;
    let log = server(&database).await;
    let name = ("policy/x", 1, 0);
    let acquired =
        consumer::acquire(&database.pool, log.clock(), name, "me", Duration::from_secs(60));
    let owner_epoch = acquired.await.unwrap().unwrap().owner_epoch;
    log.append(commit("first", 0, 1)).await.unwrap();
    let before = count(&database, "select commit_no from log_head").await;
    let reactions = (0..REACTIONS).map(|number| {
        let mut commit = commit(&format!("{number}"), 0, 1);
        let (name, version, shard) = ("policy/x".into(), 1, 0);
        commit.consumers = vec![ConsumerGuard { name, version, shard, expected: 0, owner_epoch }];
        log.append(commit)
    });
    for done in futures::future::join_all(reactions).await {
        done.unwrap();
    }
    let batches = count(&database, "select commit_no from log_head").await - before;
    assert!(batches <= 3, "{batches} batches");
    assert_eq!(verified_events(&database).await.0.size, 1 + REACTIONS as u64);
}

#[tokio::test]
async fn commit_is_rejected_if_another_server_has_the_session() {
    let database = database().await;
    let log = server(&database).await;
    run(
        &database,
        "insert into runner_session values ('rnr_1', 'ses_1', 1, 'server 1', 3, 'b', 'j', now(), null, '{}')",
    )
    .await;
    let with = |server_epoch| {
        let mut commit = commit("a", 0, 1);
        let (runner, server) = ("rnr_1".into(), "server 1".into());
        commit.sessions = vec![SessionGuard { runner, server, server_epoch }];
        commit
    };
    let error = log.append(with(2)).await;
    assert!(matches!(error, Err(AppendError::SessionMoved { .. })));
    log.append(with(3)).await.unwrap();
}

#[tokio::test]
async fn too_large_commit_is_rejected_before_it_is_queued() {
    let database = database().await;
    let log = server(&database).await;
    let mut large = commit("a", 0, 1);
    large.writes[0].events[0].payload = format!(r#"{{"type":"{}"}}"#, "x".repeat(64 * 1024));
    let error = log.append(large).await;
    assert!(matches!(
        error,
        Err(AppendError::TooLarge { what: "the size of an event in bytes", .. })
    ));
    let error = log.append(commit("a", 0, 1_025)).await;
    assert!(matches!(
        error,
        Err(AppendError::TooLarge { what: "the number of events in a commit", .. })
    ));
    let twice = Commit::of(meta(), vec![write("a", 0, 1), write("a", 1, 1)]);
    assert!(matches!(log.append(twice).await, Err(AppendError::Invalid(_))));
    log.append(commit("a", 0, 1_024)).await.unwrap();
    verified_events(&database).await;
}

#[tokio::test]
async fn full_queue_rejects_with_a_retry_delay() {
    let database = database().await;
    let log = database.log_with(Options { queue: 1, ..Options::default() }).await.unwrap();
    let calls = (0..50).map(|n| {
        let log = log.clone();
        async move { log.append(commit(&n.to_string(), 0, 1)).await }
    });
    let responses = futures::future::join_all(calls).await;
    let full =
        |response: &&Result<_, AppendError>| matches!(response, Err(AppendError::Full { .. }));
    let rejected = responses.iter().filter(full).count();
    assert!(rejected > 0);
    let written = responses.iter().filter(|response| response.is_ok()).count();
    assert_eq!(written + rejected, 50);
    assert_eq!(verified_events(&database).await.0.size, written as u64);
}

#[tokio::test]
async fn pentest_large_commit_succeeds_while_small_ones_keep_the_queue_full() {
    let database = database().await;
    let log = database.log_with(Options { queue: 8, ..Options::default() }).await.unwrap();
    let mut small = tokio::task::JoinSet::new();
    for caller in 0..40 {
        let log = log.clone();
        small.spawn(async move {
            for n in 0_u64.. {
                while let Err(error) = log.append(commit(&format!("{caller}-{n}"), 0, 1)).await {
                    assert!(matches!(error, AppendError::Full { .. }), "{error}");
                    tokio::task::yield_now().await;
                }
            }
        });
    }
    for n in 0..20 {
        log.append(commit(&format!("large-{n}"), 0, 1_024)).await.unwrap();
    }
    small.shutdown().await;
}

/// A batch can write only one commit of the stream. The other commits wait in the queue, whose size
/// is limited.
#[tokio::test]
async fn queue_that_grows_faster_than_it_is_written_gets_full() {
    let database = database().await;
    let log = server(&database).await;
    let mut calls = tokio::task::JoinSet::new();
    for n in 0..20_000 {
        let log = log.clone();
        calls.spawn(async move { log.append(commit("hot", n, 1)).await });
        if n % 50 == 0 {
            // A pause, so that the writer takes the commits that have arrived.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        while let Some(response) = calls.try_join_next() {
            if matches!(response.unwrap(), Err(AppendError::Full { .. })) {
                return;
            }
        }
    }
    panic!("20,000 commits wait, and none was rejected");
}

#[tokio::test]
async fn program_of_another_format_does_not_write() {
    let database = database().await;
    let log = server_without_polling(&database).await;
    run(&database, "update log_head set format = format + 1").await;
    let error = log.append(commit("a", 0, 1)).await;
    assert!(
        matches!(error, Err(AppendError::Layout { known: FORMAT, found }) if found == FORMAT + 1)
    );
    assert!(database.log().await.is_err());
    assert_eq!(count(&database, "select count(*) from log_event").await, 0);
}

#[tokio::test]
async fn second_migration_changes_nothing_and_database_without_tables_has_no_log() {
    let database = testing::fresh_empty_database().await.unwrap();
    assert!(database.log().await.is_err());
    assert!(!event_log::migrate(&database.pool).await.unwrap().is_empty());
    let log_id = database.log().await.unwrap().log_id().to_owned();
    assert!(event_log::migrate(&database.pool).await.unwrap().is_empty());
    assert_eq!(database.log().await.unwrap().log_id(), log_id);
}

#[tokio::test]
async fn concurrent_migrations_create_one_log() {
    for _ in 0..3 {
        let database = testing::fresh_empty_database().await.unwrap();
        let migrate = || event_log::migrate(&database.pool);
        let (a, b, c, d) = tokio::join!(migrate(), migrate(), migrate(), migrate());
        let ran = [a, b, c, d].map(|ran| ran.unwrap().len());
        assert_eq!(ran.iter().filter(|ran| **ran > 0).count(), 1, "{ran:?}");
        assert_eq!(count(&database, "select count(*) from log_head").await, 1);
    }
}

#[tokio::test]
async fn blob_is_found_by_its_digest_only() {
    let database = database().await;
    let digest = event_log::blob::put(&database.pool, b"manifest").await.unwrap();
    assert_eq!(event_log::blob::put(&database.pool, b"manifest").await.unwrap(), digest);
    let found = event_log::blob::get(&database.pool, &digest).await.unwrap();
    assert_eq!(found.unwrap(), b"manifest");
    run(&database, "update blob set bytes = 'forged'").await;
    assert!(event_log::blob::get(&database.pool, &digest).await.is_err());
    let other = event_log::blob::digest(b"other").unwrap();
    assert_eq!(event_log::blob::get(&database.pool, &other).await.unwrap(), None);
}

#[tokio::test]
async fn application_role_cannot_change_or_delete_events() {
    let database = database().await;
    let role = "do $$ begin create role stead_app nologin; exception when others then null; end $$";
    run(&database, role).await;
    event_log::migrate(&database.pool).await.unwrap();
    let mut connection = database.pool.acquire().await.unwrap();
    sqlx::raw_sql("set role stead_app").execute(&mut *connection).await.unwrap();
    for forbidden in [
        "update log_event set payload = '{}'",
        "delete from log_event",
        "truncate log_event",
        // The role also cannot change events through a partition, or attach another partition.
        "update log_event_1 set payload = '{}'",
        "delete from log_event_default",
        "update log_archive set dropped_at = now()",
        "insert into log_archive values (256, 1, '', now(), now())",
        "delete from log_node",
        "update log_node set hash = ''",
        "delete from log_head",
        "insert into log_head select * from log_head",
        "drop table log_event",
        "update blob set bytes = ''",
    ] {
        let denied = sqlx::raw_sql(forbidden).execute(&mut *connection).await.unwrap_err();
        let code = denied.as_database_error().and_then(|error| error.code()).unwrap();
        assert_eq!(code, "42501", "{forbidden}");
    }
    drop(connection);
    // The role's privileges are sufficient for appends.
    let options = (*database.pool.connect_options()).clone();
    let options = options.options([("role", "stead_app")]);
    let pool = sqlx::postgres::PgPoolOptions::new().connect_with(options).await.unwrap();
    let log = event_log::EventLog::open(pool, Options::default()).await.unwrap();
    log.append(with_key("k", 1, commit("a", 0, 300))).await.unwrap();
    log.append(commit("a", 300, 1)).await.unwrap();
    verified_events(&database).await;
}
