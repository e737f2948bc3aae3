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
async fn then(
    pool: &PgPool,
    name: &str,
    position: u64,
    key: Option<&str>,
) -> BTreeMap<String, String> {
    let mut past = AsOfQuery::begin(pool, name, position, key.map(str::to_owned)).await.unwrap();
    while past.fold().await.unwrap().is_some() {}
    let mut all = BTreeMap::new();
    loop {
        let rows = past.rows(7).await.unwrap();
        if rows.is_empty() {
            return all;
        }
        all.extend(rows.into_iter().map(|row| (row.key, row.data.get().to_owned())));
    }
}

async fn settled(log: &EventLog, views: &Projections) -> u64 {
    views.wait_for(log.position(), LONG).await.unwrap();
    log.position()
}

#[tokio::test]
async fn every_view_as_of_a_position_is_what_it_was_then() {
    let database = database().await;
    let (log, pool) = (open(&database).await, &database.pool);
    let views = Projections::start(&log).await.unwrap();
    let mut noise = Noise::new(60);
    let mut kept = vec![];
    for _ in 0..3 {
        noise.write(&log, 60).await;
        let position = settled(&log, &views).await;
        for name in names(pool).await {
            kept.push((name, position, live(pool, name).await));
        }
    }
    noise.write(&log, 60).await;
    settled(&log, &views).await;
    let mut changed = 0;
    for (name, position, was) in &kept {
        assert_eq!(then(pool, name, *position, None).await, *was, "{name} at {position}");
        changed += usize::from(live(pool, name).await != *was);
        // One of the rows, read from its stream only.
        if let Some((key, row)) = was.iter().nth(was.len() / 2) {
            let one = then(pool, name, *position, Some(key)).await;
            assert_eq!(one, BTreeMap::from([(key.clone(), row.clone())]), "{name} {key}");
        }
    }
    assert!(changed > 20, "too little has changed since to prove anything: {changed}");
    assert_eq!(then(pool, "jobs", 0, None).await, BTreeMap::new());
    assert_eq!(then(pool, "jobs", log.position(), Some("job_nobody")).await, BTreeMap::new());
    // The live rows are unchanged.
    support::verified(pool).await;
}

#[tokio::test]
async fn one_row_is_made_from_its_own_stream_whatever_the_rest_of_the_log_is() {
    let database = database().await;
    let (log, pool) = (open(&database).await, &database.pool);
    let views = Projections::start(&log).await.unwrap();
    Noise::new(61).write(&log, 120).await;
    let position = settled(&log, &views).await;
    let jobs = live(pool, "jobs").await;
    let (key, row) = jobs.iter().next().unwrap();
    // given that the events of every other job are unreadable
    let spoil = "update log_event set event_version = '7' where aggregate_type = 'job' and aggregate_id <> $1";
    sqlx::query(spoil).bind(key).execute(pool).await.unwrap();
    assert_eq!(then(pool, "jobs", position, Some(key)).await[key], *row);
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
        let mut past = AsOfQuery::begin(pool, "jobs", log.position(), None).await.unwrap();
        past.fold().await.unwrap();
        drop(past);
    }
    let left = "select count(*) from pg_class where relname like '%then'";
    assert_eq!(sqlx::query_scalar::<_, i64>(left).fetch_one(pool).await.unwrap(), 0);
}

#[tokio::test]
async fn a_history_tells_every_event_of_its_streams_once_and_only_between_the_points() {
    let database = database().await;
    let (log, pool) = (open(&database).await, &database.pool);
    Noise::new(63).write(&log, 200).await;
    let (from, to) = (log.position() / 3, log.position() * 2 / 3);
    let installs = "select distinct aggregate_id from log_event where aggregate_type = 'install'";
    let installs: Vec<String> = sqlx::query_scalar(installs).fetch_all(pool).await.unwrap();
    for install in installs {
        let id = install.parse().unwrap();
        let told = history::of_install(&log, id, (from, to), None).await.unwrap();
        assert_eq!(told.complete_through, to);
        let of_runs = told.runs.iter().flat_map(|run| &run.events);
        let all: Vec<_> = of_runs.chain(&told.other_events).collect();
        let own = format!("install/{install}");
        let mut listed: Vec<_> =
            all.iter().filter(|one| one.stream == own).map(|one| one.position).collect();
        listed.sort_unstable();
        let sql = "select position from log_event where aggregate_type = 'install' and aggregate_id = $1 \
                   and position > $2 and position <= $3 order by position";
        let there: Vec<i64> = sqlx::query_scalar(sql)
            .bind(&install)
            .bind(from as i64)
            .bind(to as i64)
            .fetch_all(pool)
            .await
            .unwrap();
        assert_eq!(listed, there.iter().map(|at| *at as u64).collect::<Vec<_>>());
        assert!(all.iter().all(|one| one.position > from && one.position <= to));
    }
}

#[tokio::test]
async fn rows_as_of_a_position_are_kept_beside_the_view_until_they_are_dropped() {
    let database = database().await;
    let (log, pool) = (open(&database).await, &database.pool);
    let views = Projections::start(&log).await.unwrap();
    let mut noise = Noise::new(64);
    noise.write(&log, 60).await;
    let position = settled(&log, &views).await;
    let was = live(pool, "jobs").await;
    noise.write(&log, 60).await;
    settled(&log, &views).await;
    let now = live(pool, "jobs").await;
    assert_ne!(now, was);
    // when a table as of an earlier position is created
    let made = as_of_table::create(pool, "jobs", position, |_| {}).await.unwrap();
    let table = format!("jobs_at_{position}");
    assert_eq!((made.table, made.rows as usize), (format!("projection_{table}"), was.len()));
    assert_eq!(live(pool, &table).await, was);
    // then the live rows are unchanged, and the table is listed
    assert_eq!(live(pool, "jobs").await, now);
    let mut connection = pool.acquire().await.unwrap();
    assert_eq!(as_of_table::positions(&mut connection, "jobs").await.unwrap(), [position]);
    let again = as_of_table::create(pool, "jobs", position, |_| {}).await.unwrap_err();
    assert!(matches!(again, RebuildError::TableExists { .. }), "{again}");
    // A rebuild of the projection does not change the table.
    projections::rebuild(pool, "jobs", |_| {}).await.unwrap();
    assert_eq!(live(pool, &table).await, was);
    assert!(as_of_table::discard(pool, "jobs", position).await.unwrap());
    assert!(!as_of_table::discard(pool, "jobs", position).await.unwrap());
    assert_eq!(as_of_table::positions(&mut connection, "jobs").await.unwrap(), [0; 0]);
}

#[tokio::test]
async fn a_table_that_could_not_be_made_whole_is_not_there() {
    let database = database().await;
    let (log, pool) = (open(&database).await, &database.pool);
    Noise::new(65).write(&log, 60).await;
    let spoil = "update log_event set event_version = '7' where position = \
                 (select max(position) from log_event where aggregate_type = 'job')";
    sqlx::query(spoil).execute(pool).await.unwrap();
    as_of_table::create(pool, "jobs", log.position(), |_| {}).await.unwrap_err();
    let mut connection = pool.acquire().await.unwrap();
    assert_eq!(as_of_table::positions(&mut connection, "jobs").await.unwrap(), [0; 0]);
}
