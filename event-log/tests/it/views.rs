//! An inline projection always matches the log.
use crate::support;

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
};

use event_log::{
    Column, EventLog, InlineProjection, Invalidate, Options, StoredEvent, StreamId,
    testing::Database,
};
use futures::future::BoxFuture;
use sqlx::PgConnection;
use support::{alone, commit, count, database, run};

/// Number of events and last position of each stream.
#[derive(Default)]
struct Totals {
    cached: Mutex<HashMap<StreamId, i64>>,
    read: AtomicU32,
}

impl InlineProjection for Totals {
    fn name(&self) -> &'static str {
        "totals"
    }

    fn statements(&self) -> Vec<String> {
        vec![
            "insert into rm_total select u.* from head, unnest($1::text[], $2::bigint[]) as u \
             on conflict (id) do update set total = excluded.total"
                .into(),
            "insert into rm_touched select u.* from head, unnest($3::bigint[]) as u".into(),
        ]
    }

    fn prepare<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        events: &'a [StoredEvent],
    ) -> BoxFuture<'a, Result<Vec<Column>, sqlx::Error>> {
        Box::pin(async move {
            let mut rows = HashMap::new();
            for event in events {
                let id = &event.stream.aggregate_id;
                if !rows.contains_key(id) {
                    let cached = self.cached.lock().unwrap().get(&event.stream).copied();
                    let known = match cached {
                        Some(known) => known,
                        None => {
                            self.read.fetch_add(1, Ordering::SeqCst);
                            let sql = "select total from rm_total where id = $1";
                            let row = sqlx::query_scalar(sql).bind(id);
                            row.fetch_optional(&mut *connection).await?.unwrap_or(0)
                        }
                    };
                    rows.insert(id.clone(), known);
                }
                *rows.entry(id.clone()).or_default() += 1;
            }
            let positions = events.iter().map(|event| Some(event.position as i64)).collect();
            let (ids, totals) = rows.into_iter().map(|(id, total)| (Some(id), Some(total))).unzip();
            Ok(vec![Column::Text(ids), Column::Bigint(totals), Column::Bigint(positions)])
        })
    }

    fn committed(&self, events: &[StoredEvent]) {
        let mut cached = self.cached.lock().unwrap();
        for event in events {
            cached.insert(event.stream.clone(), event.sequence as i64);
        }
    }

    fn forget(&self, what: Invalidate<'_>) {
        let mut cached = self.cached.lock().unwrap();
        match what {
            Invalidate::All => cached.clear(),
            Invalidate::Streams(streams) => cached.retain(|stream, _| !streams.contains(stream)),
        }
    }
}

async fn with_view(database: &Database) -> (EventLog, Arc<Totals>) {
    run(
        database,
        "create table if not exists rm_total (id text primary key, total bigint not null); \
         create table if not exists rm_touched (position bigint primary key)",
    )
    .await;
    let view = Arc::new(Totals::default());
    let options = Options {
        inline_projections: vec![view.clone()],
        poll_interval: None,
        ..Options::default()
    };
    (database.log_with(options).await.unwrap(), view)
}

async fn total(database: &Database, id: &str) -> i64 {
    count(database, &format!("select total from rm_total where id = '{id}'")).await
}

#[tokio::test]
async fn projection_rows_exist_when_the_append_returns() {
    let database = database().await;
    let (log, view) = with_view(&database).await;
    for n in 0..4 {
        log.append(commit("a", 2 * n, 2)).await.unwrap();
        assert_eq!(total(&database, "a").await, 2 * n as i64 + 2);
    }
    assert_eq!(view.read.load(Ordering::SeqCst), 1);
    assert!(log.append(commit("a", 0, 1)).await.is_err());
    assert_eq!(total(&database, "a").await, 8);
    assert_eq!(count(&database, "select count(*) from rm_touched").await, 8);
}

#[tokio::test]
async fn advanced_head_invalidates_cached_rows() {
    let database = database().await;
    let ((one, _), (two, _)) = (with_view(&database).await, with_view(&database).await);
    for n in 0..6 {
        let log = if n % 2 == 0 { &one } else { &two };
        log.append(commit("a", n, 1)).await.unwrap();
    }
    assert_eq!(total(&database, "a").await, 6);
}

#[tokio::test]
async fn failed_projection_rejects_the_event() {
    let database = database().await;
    let (log, _) = with_view(&database).await;
    run(&database, "alter table rm_total add check (total < 3)").await;
    log.append(commit("a", 0, 2)).await.unwrap();
    let (bad, good) = tokio::join!(log.append(commit("a", 2, 1)), log.append(commit("b", 0, 1)));
    assert!(bad.is_err());
    good.unwrap();
    assert_eq!((total(&database, "a").await, total(&database, "b").await), (2, 1));
    assert_eq!(alone(&database).await.position(), 3);
}
