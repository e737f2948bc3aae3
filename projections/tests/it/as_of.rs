//! Tests that as-of queries return the earlier rows of a projection or of one key. A query for one
//! key reads only the stream of the key.
use crate::support;

use std::{collections::BTreeMap, time::Duration};

use event_log::EventLog;
use projections::{AsOfQuery, Projections, RebuildError, as_of_table, history};
use sqlx::{PgPool, Row};
use support::{Noise, database, names, open};

const LONG: Duration = Duration::from_secs(30);

/// Live rows of a projection.
async fn live(pool: &PgPool, name: &str) -> BTreeMap<String, String> {
    let sql = format!("select key, data::text from projection_{name}");
    let rows = sqlx::query(&sql).fetch_all(pool).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// Rows of a projection as of a position.
async fn rows_as_of(
    pool: &PgPool,
    name: &str,
    position: u64,
    key: Option<&str>,
) -> BTreeMap<String, String> {
    let mut query = AsOfQuery::begin(pool, name, position, key.map(str::to_owned)).await.unwrap();
    while query.fold().await.unwrap().is_some() {}
    let mut all = BTreeMap::new();
    loop {
        let rows = query.rows(7).await.unwrap();
        if rows.is_empty() {
            return all;
        }
        all.extend(rows.into_iter().map(|row| (row.key, row.data.get().to_owned())));
    }
}

async fn wait_for_projections(log: &EventLog, views: &Projections) -> u64 {
    views.wait_for(log.position(), LONG).await.unwrap();
    log.position()
}

#[tokio::test]
async fn every_projection_as_of_a_position_has_its_earlier_rows() {
    let database = database().await;
    let (log, pool) = (open(&database).await, &database.pool);
    let views = Projections::start(&log).await.unwrap();
    let mut noise = Noise::new(60);
    let mut earlier = vec![];
    for _ in 0..3 {
        noise.write(&log, 60).await;
        let position = wait_for_projections(&log, &views).await;
        for name in names(pool).await {
            earlier.push((name, position, live(pool, name).await));
        }
    }
    noise.write(&log, 60).await;
    wait_for_projections(&log, &views).await;
    let mut changed = 0;
    for (name, position, expected) in &earlier {
        assert_eq!(
            rows_as_of(pool, name, *position, None).await,
            *expected,
            "{name} at {position}"
        );
        changed += usize::from(live(pool, name).await != *expected);
        // Reads one of the rows from its stream only.
        if let Some((key, row)) = expected.iter().nth(expected.len() / 2) {
            let one = rows_as_of(pool, name, *position, Some(key)).await;
            assert_eq!(one, BTreeMap::from([(key.clone(), row.clone())]), "{name} {key}");
        }
    }
    assert!(changed > 20, "too little has changed since to prove anything: {changed}");
    assert_eq!(rows_as_of(pool, "jobs", 0, None).await, BTreeMap::new());
    assert_eq!(rows_as_of(pool, "jobs", log.position(), Some("job_nobody")).await, BTreeMap::new());
    // The live rows are unchanged.
    support::assert_verified(pool).await;
}

#[tokio::test]
async fn one_row_is_built_only_from_its_own_stream() {
    let database = database().await;
    let (log, pool) = (open(&database).await, &database.pool);
    let views = Projections::start(&log).await.unwrap();
    Noise::new(61).write(&log, 120).await;
    let position = wait_for_projections(&log, &views).await;
    let jobs = live(pool, "jobs").await;
    let (key, row) = jobs.iter().next().unwrap();
    // given that the events of every other job are unreadable
    let make_unreadable = "update log_event set event_version = '7' where aggregate_type = 'job' and aggregate_id <> $1";
    sqlx::query(make_unreadable).bind(key).execute(pool).await.unwrap();
    assert_eq!(rows_as_of(pool, "jobs", position, Some(key)).await[key], *row);
    let mut all = AsOfQuery::begin(pool, "jobs", position, None).await.unwrap();
    assert!(all.fold().await.is_err(), "the other events are still readable");
}

#[tokio::test]
async fn a_dropped_query_leaves_no_table() {
    let database = database().await;
    let (log, pool) = (open(&database).await, &database.pool);
    Noise::new(62).write(&log, 40).await;
    for _ in 0..30 {
        // More iterations than the pool has connections.
        let mut query = AsOfQuery::begin(pool, "jobs", log.position(), None).await.unwrap();
        query.fold().await.unwrap();
        drop(query);
    }
    let left = "select count(*) from pg_class where relname like '%then'";
    assert_eq!(sqlx::query_scalar::<_, i64>(left).fetch_one(pool).await.unwrap(), 0);
}

#[tokio::test]
async fn a_history_lists_every_event_of_its_streams_in_the_range_once() {
    let database = database().await;
    let (log, pool) = (open(&database).await, &database.pool);
    Noise::new(63).write(&log, 200).await;
    let (from, to) = (log.position() / 3, log.position() * 2 / 3);
    let installs = "select distinct aggregate_id from log_event where aggregate_type = 'install'";
    let installs: Vec<String> = sqlx::query_scalar(installs).fetch_all(pool).await.unwrap();
    for install in installs {
        let id = install.parse().unwrap();
        let history = history::of_install(&log, id, (from, to), None).await.unwrap();
        assert_eq!(history.complete_through, to);
        let of_runs = history.runs.iter().flat_map(|run| &run.events);
        let all: Vec<_> = of_runs.chain(&history.other_events).collect();
        let own = format!("install/{install}");
        let mut listed: Vec<_> =
            all.iter().filter(|one| one.stream == own).map(|one| one.position).collect();
        listed.sort_unstable();
        let sql = "select position from log_event where aggregate_type = 'install' and aggregate_id = $1 \
                   and position > $2 and position <= $3 order by position";
        let stored: Vec<i64> = sqlx::query_scalar(sql)
            .bind(&install)
            .bind(from as i64)
            .bind(to as i64)
            .fetch_all(pool)
            .await
            .unwrap();
        assert_eq!(listed, stored.iter().map(|at| *at as u64).collect::<Vec<_>>());
        assert!(all.iter().all(|one| one.position > from && one.position <= to));
    }
}

#[tokio::test]
async fn a_table_as_of_a_position_remains_until_it_is_dropped() {
    let database = database().await;
    let (log, pool) = (open(&database).await, &database.pool);
    let views = Projections::start(&log).await.unwrap();
    let mut noise = Noise::new(64);
    noise.write(&log, 60).await;
    let position = wait_for_projections(&log, &views).await;
    let expected = live(pool, "jobs").await;
    noise.write(&log, 60).await;
    wait_for_projections(&log, &views).await;
    let now = live(pool, "jobs").await;
    assert_ne!(now, expected);
    // when a table as of an earlier position is created
    let created = as_of_table::create(pool, "jobs", position, |_| {}).await.unwrap();
    let table = format!("jobs_at_{position}");
    assert_eq!(
        (created.table, created.rows as usize),
        (format!("projection_{table}"), expected.len())
    );
    assert_eq!(live(pool, &table).await, expected);
    // then the live rows are unchanged, and the table is listed
    assert_eq!(live(pool, "jobs").await, now);
    let mut connection = pool.acquire().await.unwrap();
    assert_eq!(as_of_table::positions(&mut connection, "jobs").await.unwrap(), [position]);
    let error = as_of_table::create(pool, "jobs", position, |_| {}).await.unwrap_err();
    assert!(matches!(error, RebuildError::TableExists { .. }), "{error}");
    // A rebuild of the projection does not change the table.
    projections::rebuild(pool, "jobs", |_| {}).await.unwrap();
    assert_eq!(live(pool, &table).await, expected);
    assert!(as_of_table::discard(pool, "jobs", position).await.unwrap());
    assert!(!as_of_table::discard(pool, "jobs", position).await.unwrap());
    assert_eq!(as_of_table::positions(&mut connection, "jobs").await.unwrap(), [0; 0]);
}

#[tokio::test]
async fn an_incomplete_table_is_not_created() {
    let database = database().await;
    let (log, pool) = (open(&database).await, &database.pool);
    Noise::new(65).write(&log, 60).await;
    let make_unreadable = "update log_event set event_version = '7' where position = \
                 (select max(position) from log_event where aggregate_type = 'job')";
    sqlx::query(make_unreadable).execute(pool).await.unwrap();
    as_of_table::create(pool, "jobs", log.position(), |_| {}).await.unwrap_err();
    let mut connection = pool.acquire().await.unwrap();
    assert_eq!(as_of_table::positions(&mut connection, "jobs").await.unwrap(), [0; 0]);
}
