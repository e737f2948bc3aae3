//! Reads the log once for several projections. A page is read while the workers apply the earlier
//! ones. Each worker has its share of the streams, because a row derives from one stream.
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use event_log::{LogError, encryption::Keys};
use sqlx::{Connection, PgConnection, PgPool, Row};
use tokio::{sync::mpsc, task::JoinSet};

use super::{
    PAGE, Progress, RebuildError, ShadowBuild, head,
    shadow::{LEASE, shard},
};
use crate::{
    RecordedEvent,
    catalogue::{SHADOW, view},
    event::{self, EncodedEvent},
    fold::{DynProjection, RowWriter},
};

/// Returns the worker of a stream. The workers' positions are stored, so this assignment must never
/// change.
pub(super) fn worker_of(stream: &str, workers: u32) -> u32 {
    let hash = stream
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    hash % workers.max(1)
}

/// Part of a page of the log: the events of one worker's streams, after one position and up to
/// another.
struct Page {
    after: u64,
    to: u64,
    rows: Vec<EncodedEvent>,
    keys: Keys,
}

/// Applies the log to the shadow tables of these projections, up to the current head.
pub(super) async fn scan(
    pool: &PgPool,
    builds: &[ShadowBuild],
    workers: u32,
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<(), RebuildError> {
    let Some(source) = builds.first().map(|build| &build.source) else { return Ok(()) };
    let names: Vec<&'static str> = builds.iter().map(|build| build.view.name()).collect();
    let mut aggregates: Vec<&str> = vec![];
    builds.iter().for_each(|build| aggregates.extend(build.view.aggregates()));
    let mut reader = pool.acquire().await?;
    let mut at = behind(&mut reader, &names).await?;
    let done: Arc<[AtomicU64]> = (0..workers).map(|_| AtomicU64::new(at)).collect();
    let applied = || done.iter().map(|at| at.load(Ordering::Relaxed)).min().unwrap_or(0);
    let (mut doing, mut lanes) = (JoinSet::new(), vec![]);
    for number in 1..=workers {
        // One page waits while another is applied. More pages would only use memory.
        let (lane, pages) = mpsc::channel::<Page>(1);
        lanes.push(lane);
        let worker = Worker::new(pool, (number, workers), builds).await?;
        doing.spawn(worker.run(pages, done.clone()));
    }
    let (mut reported, mut total) = (at, at);
    loop {
        total = head(&mut reader).await?.max(total);
        let to = total.min(at.saturating_add(PAGE));
        if to <= at {
            break;
        }
        let rows = event::rows(&mut reader, source, (at, to), &aggregates).await?;
        let keys = event::keys(&mut reader, source, &rows).await?;
        let mut parts: Vec<Vec<EncodedEvent>> = lanes.iter().map(|_| vec![]).collect();
        for row in rows {
            let of = worker_of(event::stream(&row)?, workers);
            if let Some(part) = usize::try_from(of).ok().and_then(|of| parts.get_mut(of)) {
                part.push(row);
            }
        }
        let mut ended = false;
        for (lane, rows) in lanes.iter().zip(parts) {
            ended |= lane.send(Page { after: at, to, rows, keys: keys.clone() }).await.is_err();
        }
        if ended {
            break;
        }
        at = to;
        let events = applied();
        if events > reported && events < total {
            reported = events;
            progress(Progress::Replaying { events, total });
        }
    }
    drop(lanes);
    while let Some(done) = doing.join_next().await {
        done.map_err(|error| LogError::Database(sqlx::Error::Io(error.into())))??;
    }
    let events = applied();
    progress(Progress::Replaying { events, total: total.max(events) });
    Ok(())
}

/// Position of the worker with the largest lag.
async fn behind(connection: &mut PgConnection, names: &[&str]) -> Result<u64, sqlx::Error> {
    let row = sqlx::query(
        "select coalesce(min(position), 0) from log_consumer where name = any($1) and shard >= $2",
    )
    .bind(names)
    .bind(SHADOW)
    .fetch_one(connection)
    .await?;
    Ok(u64::try_from(row.try_get::<i64, _>(0)?).unwrap_or(0))
}

/// Worker of a scan: applies the events of its share of the streams to all shadow tables.
struct Worker {
    number: u32,
    /// Number of workers.
    of: u32,
    /// A separate connection, whose commits may reach the disk later. Rows and positions are lost
    /// together, so a crash is harmless.
    connection: PgConnection,
    parts: Vec<WorkerProjection>,
}

/// One projection within a worker.
struct WorkerProjection {
    view: Box<dyn DynProjection>,
    shadow: String,
    aim: Option<&'static str>,
    writer: Box<dyn RowWriter>,
    /// Position that this worker last wrote.
    left_at: Option<u64>,
}

impl Worker {
    async fn new(
        pool: &PgPool,
        (number, of): (u32, u32),
        builds: &[ShadowBuild],
    ) -> Result<Worker, sqlx::Error> {
        let mut connection = PgConnection::connect_with(&pool.connect_options()).await?;
        sqlx::Executor::execute(&mut connection, "set synchronous_commit = off").await?;
        let part = |build: &ShadowBuild| {
            let (view, shadow) = (view(build.view.name())?, build.shadow.clone());
            let writer = view.writer();
            Some(WorkerProjection { view, shadow, aim: build.aim, writer, left_at: None })
        };
        let parts = builds.iter().filter_map(part).collect();
        Ok(Worker { number, of, connection, parts })
    }

    async fn run(
        mut self,
        mut pages: mpsc::Receiver<Page>,
        done: Arc<[AtomicU64]>,
    ) -> Result<(), LogError> {
        while let Some(page) = pages.recv().await {
            let events = event::read(&page.rows, &page.keys, |_, _| true)?;
            self.take(&page, &events).await?;
            let at = usize::try_from(self.number - 1).ok().and_then(|at| done.get(at));
            if let Some(at) = at {
                at.store(page.to, Ordering::Relaxed);
            }
        }
        self.connection.close().await?;
        Ok(())
    }

    /// Applies a page to every shadow table that still exists and does not include the page yet.
    async fn take(&mut self, page: &Page, events: &[RecordedEvent]) -> Result<(), LogError> {
        let mut tx = self.connection.begin().await?;
        let at = positions(&mut tx, (self.number, self.of), &self.parts).await?;
        let mut taken = vec![];
        for part in &mut self.parts {
            // A shadow table with an earlier position belongs to a later rebuild: the shadow table
            // of this rebuild was already swapped.
            let at = at.get(part.view.name()).copied();
            let Some(at) = at.filter(|at| (page.after..page.to).contains(at)) else { continue };
            if part.left_at != Some(at) {
                // A concurrent rebuild of the projection has written rows, so the cached rows are
                // outdated.
                part.writer.forget();
            }
            let is_relevant = |event: &&RecordedEvent| {
                event.position > at && part.view.aggregates().contains(&event.aggregate())
            };
            let relevant: Vec<&RecordedEvent> = events.iter().filter(is_relevant).collect();
            if !relevant.is_empty() {
                part.writer.project(&mut tx, &part.shadow, &relevant).await?;
            }
            part.left_at = Some(page.to);
            taken.push(part.view.name());
        }
        sqlx::query(
            "update log_consumer set position = $3, lease_until = now() + $5::interval \
             where name = any($1) and shard = $2 and position >= $4 and position < $3",
        )
        .bind(&taken)
        .bind(shard(self.number))
        .bind(i64::try_from(page.to).unwrap_or(i64::MAX))
        .bind(i64::try_from(page.after).unwrap_or(i64::MAX))
        .bind(LEASE)
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(())
    }
}

/// Reads the worker's position for each projection and locks it until the end of the transaction.
/// Leaves out shadow tables whose purpose or number of workers differs from this rebuild.
async fn positions(
    connection: &mut PgConnection,
    (number, of): (u32, u32),
    parts: &[WorkerProjection],
) -> Result<HashMap<String, u64>, sqlx::Error> {
    let names: Vec<&str> = parts.iter().map(|part| part.view.name()).collect();
    let rows = sqlx::query(
        "select name, version, position, owner, (select count(*) from log_consumer o \
           where o.name = c.name and o.version = c.version and o.shard >= $3) as workers \
         from log_consumer c where name = any($1) and shard = $2 order by name, version for update",
    )
    .bind(&names)
    .bind(shard(number))
    .bind(SHADOW)
    .fetch_all(connection)
    .await?;
    let mut at = HashMap::new();
    for row in &rows {
        let (name, version): (String, i32) = (row.try_get(0)?, row.try_get(1)?);
        let (aim, workers): (Option<String>, i64) = (row.try_get(3)?, row.try_get(4)?);
        let relevant = |part: &WorkerProjection| {
            let (own, known) = (part.view.name() == name, part.view.version() == version);
            own && known && part.aim == aim.as_deref() && workers == i64::from(of)
        };
        if parts.iter().any(relevant) {
            at.insert(name, u64::try_from(row.try_get::<i64, _>(2)?).unwrap_or(0));
        }
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_always_belongs_to_the_same_worker() {
        let of = |workers| ["job_1", "job_2", "job_3", ""].map(|stream| worker_of(stream, workers));
        assert_eq!(of(1), [0, 0, 0, 0]);
        assert_eq!(of(4), [0, 1, 2, 1]);
    }
}
