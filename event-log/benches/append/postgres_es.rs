//! Stock postgres-es: load, handle, append one event to a fresh aggregate, as its documentation
//! shows it.
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use cqrs_es::{Aggregate, DomainEvent, event_sink::EventSink};
use event_log::testing::Database;
use measure::{PAYLOAD_BYTES, Run};
use postgres_es::postgres_cqrs;
use serde::{Deserialize, Serialize};
use sqlx::{PgPool, postgres::PgPoolOptions};
use ulid::Ulid;

pub async fn prepare(pool: &PgPool) {
    let table = "create table events (aggregate_type text not null, aggregate_id text not null, \
         sequence bigint check (sequence >= 0) not null, event_type text not null, \
         event_version text not null, payload json not null, metadata json not null, \
         primary key (aggregate_type, aggregate_id, sequence))";
    sqlx::raw_sql(table).execute(pool).await.unwrap();
}

pub async fn run(database: &Database, callers: usize, period: Duration) -> Run {
    let options = (*database.pool.connect_options()).clone();
    let connections = u32::try_from(callers).unwrap();
    let pool =
        PgPoolOptions::new().max_connections(connections).connect_with(options).await.unwrap();
    let framework = Arc::new(postgres_cqrs::<Queue>(pool.clone(), Vec::new(), ()));
    let start = Instant::now();
    let callers = (0..callers).map(|_| {
        let framework = framework.clone();
        tokio::spawn(async move {
            let mut calls = Vec::new();
            while start.elapsed() < period {
                let id = format!("job_{}", Ulid::new());
                let began = Instant::now();
                framework.execute(&id, "a".repeat(PAYLOAD_BYTES - 40)).await.unwrap();
                calls.push(began.elapsed());
            }
            calls
        })
    });
    let mut calls = Vec::new();
    for caller in futures::future::join_all(callers).await {
        calls.extend(caller.unwrap());
    }
    let elapsed = start.elapsed();
    let rows: i64 =
        sqlx::query_scalar("select count(*) from events").fetch_one(&pool).await.unwrap();
    assert_eq!(rows as usize, calls.len());
    pool.close().await;
    Run { events: calls.len(), whole: elapsed, calls }
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Queue;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Queued {
    Queued { manifest: String },
}

impl DomainEvent for Queued {
    fn event_type(&self) -> String {
        "job.queued".into()
    }
    fn event_version(&self) -> String {
        "1".into()
    }
}

impl Aggregate for Queue {
    const TYPE: &'static str = "job";
    type Command = String;
    type Event = Queued;
    type Error = std::convert::Infallible;
    type Services = ();

    async fn handle(
        &mut self,
        manifest: String,
        (): &(),
        sink: &EventSink<Self>,
    ) -> Result<(), Self::Error> {
        sink.write(Queued::Queued { manifest }, self).await;
        Ok(())
    }

    fn apply(&mut self, _: Queued) {}
}
