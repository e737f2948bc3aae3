//! Partitions of the log. Appends never wait for a partition.
use crate::support;

use event_log::{
    migrate::migrate,
    partitions::{self, Partition, create_missing, list},
    testing::{Database, fresh_empty_database},
    verify::{VerifyError, verify},
};
use support::{commit, count, run, server_without_polling, stream, verified_events};

/// A log whose events go to the default partition until a test creates partitions.
async fn database_without_partitions() -> Database {
    let database = fresh_empty_database().await.unwrap();
    migrate(&database.pool).await.unwrap();
    database
}

async fn partition_ranges(database: &Database) -> Vec<(u64, u64)> {
    let mut connection = database.pool.acquire().await.unwrap();
    let all = list(&mut connection).await.unwrap();
    all.into_iter().map(|Partition { first, last, .. }| (first, last)).collect()
}

async fn rows_in(database: &Database, table: &str) -> i64 {
    count(database, &format!("select count(*) from only {table}")).await
}

#[tokio::test]
async fn batch_crosses_the_end_of_a_partition_without_waiting() {
    let database = database_without_partitions().await;
    create_missing(&database.pool, 256, 0).await.unwrap();
    assert_eq!(partition_ranges(&database).await, [(1, 256)]);
    let log = server_without_polling(&database).await;
    log.append(commit("a", 0, 250)).await.unwrap();
    // One commit has events on both sides of the boundary, and the next partition does not exist.
    log.append(commit("a", 250, 100)).await.unwrap();
    assert_eq!(rows_in(&database, "log_event_default").await, 94);
    verified_events(&database).await;
    // The default partition, with its rows, becomes the missing range. The next commit appends to
    // that range.
    create_missing(&database.pool, 256, 1).await.unwrap();
    assert_eq!(partition_ranges(&database).await, [(1, 256), (257, 512), (513, 768)]);
    assert_eq!(rows_in(&database, "log_event_default").await, 0);
    log.append(commit("a", 350, 300)).await.unwrap();
    let of = ["log_event_1", "log_event_257", "log_event_513", "log_event_default"];
    let mut rows = vec![];
    for table in of {
        rows.push(rows_in(&database, table).await);
    }
    assert_eq!(rows, [256, 256, 138, 0]);
    verified_events(&database).await;
    assert_eq!(log.read_stream(&stream("a"), 0).await.unwrap().len(), 650);
    // Further calls find nothing to create, even concurrent ones.
    let (one, two) = tokio::join!(
        create_missing(&database.pool, 256, 1),
        create_missing(&database.pool, 256, 1)
    );
    assert_eq!(one.unwrap().len() + two.unwrap().len(), 1, "the head is in the last but one");
    assert_eq!(create_missing(&database.pool, 256, 1).await.unwrap(), []);
}

#[tokio::test]
async fn partitions_are_created_during_appends() {
    let database = database_without_partitions().await;
    let log = server_without_polling(&database).await;
    let appending = tokio::spawn(async move {
        for n in 0..150 {
            log.append(commit(&format!("s{n}"), 0, 10)).await.unwrap();
        }
    });
    while !appending.is_finished() {
        create_missing(&database.pool, 256, 1).await.unwrap();
    }
    appending.await.unwrap();
    create_missing(&database.pool, 256, 1).await.unwrap();
    assert_eq!(verified_events(&database).await.0.size, 1_500);
    assert_eq!(rows_in(&database, "log_event_default").await, 0);
}

#[tokio::test]
async fn rows_from_before_the_partitions_stay_identical() {
    // given the table of an earlier version, here the default partition, with the text of every row
    let database = database_without_partitions().await;
    let log = server_without_polling(&database).await;
    log.append(commit("a", 0, 300)).await.unwrap();
    let every = "select md5(string_agg(e::text, '|' order by position)) from log_event e";
    let text = |database: &Database| {
        let pool = database.pool.clone();
        async move { sqlx::query_scalar::<_, String>(every).fetch_one(&pool).await.unwrap() }
    };
    let (before, file) =
        (text(&database).await, "select pg_relation_filenode('log_event_default')");
    let node: i64 = count(&database, &format!("select ({file})::bigint")).await;
    // when it becomes the first partition
    create_missing(&database.pool, partitions::SIZE, 1).await.unwrap();
    // then the file of the table and its rows are unchanged
    assert_eq!(partition_ranges(&database).await[0], (1, partitions::SIZE));
    let moved = "select pg_relation_filenode('log_event_1')::bigint";
    assert_eq!(count(&database, moved).await, node);
    assert_eq!(text(&database).await, before);
    verified_events(&database).await;
}

#[tokio::test]
async fn stream_is_read_from_its_partitions_only() {
    let database = database_without_partitions().await;
    create_missing(&database.pool, 256, 8).await.unwrap();
    let log = server_without_polling(&database).await;
    for n in 0..8 {
        log.append(commit(&format!("s{n}"), 0, 256)).await.unwrap();
    }
    let since = "select first_position from log_stream where aggregate_id = 's6'";
    assert_eq!(count(&database, since).await, 6 * 256 + 1);
    // The plan of a stream's read does not scan partitions before the stream's first event.
    let plan = "explain (analyze, costs off, timing off, summary off) select e.* from log_stream s \
         left join lateral (select * from log_event where aggregate_type = 'job' and aggregate_id = 's6' \
           and sequence > 0 and position between s.first_position and 9223372036854775807 \
           order by sequence limit 1000) e on true \
         where s.aggregate_type = 'job' and s.aggregate_id = 's6'";
    let plan: Vec<String> = sqlx::query_scalar(plan).fetch_all(&database.pool).await.unwrap();
    let is_read = |table: &str| {
        let line = plan.iter().find(|line| line.contains(&format!("on {table} ")));
        line.is_some_and(|line| !line.contains("never executed"))
    };
    assert!(is_read("log_event_1537"), "{plan:#?}");
    for table in ["log_event_1", "log_event_257", "log_event_513", "log_event_1025"] {
        assert!(!is_read(table), "{table}: {plan:#?}");
    }
    assert_eq!(log.read_stream(&stream("s6"), 0).await.unwrap().len(), 256);
}

#[tokio::test]
async fn duplicate_sequence_is_found_across_partitions() {
    let database = database_without_partitions().await;
    create_missing(&database.pool, 256, 2).await.unwrap();
    let log = server_without_polling(&database).await;
    log.append(commit("a", 0, 256)).await.unwrap();
    // Only the stream's version is changed; leaves and chain are valid.
    let back = "update log_stream set version = 255 where aggregate_id = 'a'";
    run(&database, back).await;
    server_without_polling(&database).await.append(commit("a", 255, 1)).await.unwrap();
    let VerifyError::Differs(difference) = verify(&database.pool, 0, |_| {}).await.unwrap_err()
    else {
        unreachable!("it can be read")
    };
    assert_eq!(difference.to_string(), "position 257: the event is not the next of its stream");
}
