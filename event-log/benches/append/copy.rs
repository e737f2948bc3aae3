//! Bulk reads and writes: the upper bound of the disk and of Postgres.
use std::time::{Duration, Instant};

use event_log::testing::Database;
use futures::TryStreamExt as _;
use measure::{Run, payload};
use sqlx::postgres::PgPoolCopyExt as _;
use ulid::Ulid;

/// Number of rows in a commit.
const ROWS: usize = 10_000;

/// Writes rows like those of the baseline to the same table.
pub async fn copy_in(database: &Database, period: Duration) -> Run {
    let mut events = 0;
    let start = Instant::now();
    while start.elapsed() < period {
        let rows: String = (0..ROWS as u64)
            .map(|number| {
                let id = Ulid::new();
                let uuid = uuid::Uuid::from_bytes(id.to_bytes());
                format!("job_{id}\t1\t{uuid}\t2026-01-01 00:00:00Z\t{}\n", payload(number))
            })
            .collect();
        let into = "copy public.ev (stream, version, event_id, recorded_at, payload) from stdin";
        let mut copy = database.pool.copy_in_raw(into).await.unwrap();
        copy.send(rows.into_bytes()).await.unwrap();
        events += copy.finish().await.unwrap() as usize;
    }
    Run { events, whole: start.elapsed(), calls: Vec::new() }
}

/// Reads the whole log of this round, as a verification or a rebuild would.
pub async fn copy_out(database: &Database) -> Run {
    let start = Instant::now();
    let out = "copy (select * from log_event order by position) to stdout (format binary)";
    let mut copy = database.pool.copy_out_raw(out).await.unwrap();
    let mut bytes = 0;
    while let Some(part) = copy.try_next().await.unwrap() {
        bytes += part.len();
    }
    drop(copy);
    let elapsed = start.elapsed();
    let events: i64 = sqlx::query_scalar("select count(*) from log_event")
        .fetch_one(&database.pool)
        .await
        .unwrap();
    assert!(bytes as i64 > events * 300, "rows are missing");
    Run { events: events as usize, whole: elapsed, calls: Vec::new() }
}
