//! Projections that are built from archives match those that are built from rows.
use crate::support;

use std::{collections::BTreeMap, time::Duration};

use ed25519_dalek::SigningKey;
use event_log::{
    Archives, EventLog, Options, Source,
    archive::{create, discard},
    partitions,
    testing::{Database, in_partitions_of},
};
use projections::{AsOfQuery, Projections, history, rebuild_all, verify};
use support::{Noise, assert_same, database, dump, names};

const LONG: Duration = Duration::from_secs(30);

async fn open(database: &Database, archives: &Archives) -> EventLog {
    let (sync_views, archives) = (projections::inline_projections(), archives.clone());
    database
        .log_with(Options { inline_projections: sync_views, archives, ..Options::default() })
        .await
        .unwrap()
}

type RowsAsOf = BTreeMap<(&'static str, u64), Vec<(String, String)>>;

/// All rows of all projections as of these positions.
async fn as_of(source: &Source, positions: &[u64]) -> RowsAsOf {
    let mut all = BTreeMap::new();
    for name in names(&source.pool).await {
        for position in positions {
            let mut query = AsOfQuery::begin(source, name, *position, None).await.unwrap();
            while query.fold().await.unwrap().is_some() {}
            let mut rows = vec![];
            loop {
                let page = query.rows(100).await.unwrap();
                if page.is_empty() {
                    break;
                }
                rows.extend(page.into_iter().map(|row| (row.key, row.data.get().to_owned())));
            }
            all.insert((name, *position), rows);
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rebuilds_as_of_queries_and_histories_are_the_same_from_archives() {
    let (database, directory) = (database().await, tempfile::tempdir().unwrap());
    in_partitions_of(&database.pool, 256).await.unwrap();
    let archives = Archives::at(directory.path());
    let log = open(&database, &archives).await;
    let views = Projections::start(&log).await.unwrap();
    let mut noise = Noise::new(71);
    while log.position() < 700 {
        noise.write(&log, 20).await;
    }
    let key = SigningKey::from_bytes(&[7; 32]);
    log.publish_checkpoint(&key).await.unwrap().unwrap();
    let head = log.position();
    views.wait_for(head, LONG).await.unwrap();
    let source = Source::from(&log);
    let positions = [1, 100, 256, 257, 500, 600];
    let (before, earlier) = (dump(&database.pool).await, as_of(&source, &positions).await);
    let installs = "select distinct aggregate_id from log_event where aggregate_type = 'install'";
    let installs: Vec<String> =
        sqlx::query_scalar(installs).fetch_all(&database.pool).await.unwrap();
    let read_histories = async || {
        let mut all = vec![];
        for install in &installs {
            for range in [(0, 300), (200, head), (260, 400)] {
                let id = install.parse().unwrap();
                let history = history::of_install(&log, id, range, None).await.unwrap();
                let of_runs = history.runs.iter().flat_map(|run| &run.events);
                let events: Vec<u64> =
                    of_runs.chain(&history.other_events).map(|event| event.position).collect();
                all.push((history.complete_through, events));
            }
        }
        all
    };
    let histories = read_histories().await;
    // when only archives have the first two ranges
    let ranges = partitions::list(&mut database.pool.acquire().await.unwrap()).await.unwrap();
    for partition in &ranges[..2] {
        create(&database.pool, &archives, partition, (&[], 64), &mut |_| {}).await.unwrap();
        discard(&database.pool, &archives, partition.last, &[]).await.unwrap();
    }
    // then as-of queries, rebuilds and histories return the same as before
    let fresh = Source { archives: Archives::at(directory.path()), ..Source::from(&database.pool) };
    assert!(as_of(&fresh, &positions).await == earlier);
    assert_eq!(read_histories().await, histories);
    let names = names(&database.pool).await;
    rebuild_all(&fresh, &names, 3, |_| {}).await.unwrap();
    assert_same(&before, &dump(&database.pool).await);
    for name in &names {
        assert_eq!(verify(&fresh, name, |_| {}).await.unwrap().differences, [], "{name}");
        // Without the archives, the call fails instead of returning fewer rows.
        let error = verify(&database.pool, name, |_| {}).await.unwrap_err().to_string();
        assert!(error.contains("no archive directory is set"), "{name}: {error}");
    }
}
