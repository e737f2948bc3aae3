//! Task that makes chunks durable. Up to `MAX_GROUP` waiting chunks go into one INSERT with one
//! fsync.
use std::{collections::HashSet, panic::AssertUnwindSafe};

use bytes::Bytes;
use domain::ids::ExecutionId;
use futures::FutureExt as _;
use sha2::{Digest as _, Sha256};
use sqlx::PgPool;
use tokio::sync::{mpsc, oneshot};

use super::{codec::Packed, store::LogError};

/// Maximum number of waiting chunks. Beyond it, callers get 503 with `Retry-After`.
const MAX_WAITING: usize = 1024;
/// Maximum number of chunks per statement.
const MAX_GROUP: usize = 128;

/// New bytes of a stream, and the channel for the result of the write.
pub(super) struct Chunk {
    pub execution: ExecutionId,
    pub start: u64,
    pub bytes: Bytes,
    pub done: oneshot::Sender<Result<(), LogError>>,
}

/// Starts the committer task and returns its queue. The task ends when all senders are dropped.
pub(super) fn start(pool: PgPool) -> mpsc::Sender<Chunk> {
    let (sender, mut waiting) = mpsc::channel::<Chunk>(MAX_WAITING);
    #[expect(clippy::disallowed_methods, reason = "the task catches panics and continues")]
    tokio::spawn(async move {
        let mut group = Vec::with_capacity(MAX_GROUP);
        // Chunks that arrive during a write form the next groups of at most `MAX_GROUP` chunks.
        while waiting.recv_many(&mut group, MAX_GROUP).await > 0 {
            // After a panic, each sender of a chunk in the group gets an error and sends the chunk
            // again.
            let committed = AssertUnwindSafe(commit(&pool, std::mem::take(&mut group)));
            if committed.catch_unwind().await.is_err() {
                tracing::error!(
                    "Cannot store job log chunks because of a panic; runners send these chunks again"
                );
            }
        }
    });
    sender
}

async fn commit(pool: &PgPool, group: Vec<Chunk>) {
    match insert(pool, &group).await {
        Ok(written) => {
            for chunk in group {
                let is_written = written.contains(&(chunk.execution.to_string(), chunk.start));
                // A caller that disconnected sends the chunk again and learns that it is stored.
                let _ = chunk.done.send(if is_written { Ok(()) } else { Err(LogError::Erased) });
            }
        }
        // A stale chunk must not fail the other chunks, so each chunk is inserted separately.
        Err(error) if is_duplicate(&error) && group.len() > 1 => {
            for chunk in group {
                let response =
                    insert(pool, std::slice::from_ref(&chunk)).await.map_err(write_error);
                let is_written = |written: HashSet<_>| !written.is_empty();
                let _ = chunk.done.send(match response.map(is_written) {
                    Ok(true) => Ok(()),
                    Ok(false) => Err(LogError::Erased),
                    Err(error) => Err(error),
                });
            }
        }
        Err(error) => {
            let stale = is_duplicate(&error);
            let text = error.to_string();
            for chunk in group {
                let response = if stale {
                    LogError::ConcurrentWrite
                } else {
                    LogError::Unwritten(text.clone())
                };
                let _ = chunk.done.send(Err(response));
            }
        }
    }
}

fn write_error(error: sqlx::Error) -> LogError {
    if is_duplicate(&error) { LogError::ConcurrentWrite } else { LogError::Database(error) }
}

fn is_duplicate(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| error.is_unique_violation())
}

/// Inserts chunks, except those of erased executions. Returns the execution and start of each
/// written chunk.
async fn insert(pool: &PgPool, group: &[Chunk]) -> Result<HashSet<(String, u64)>, sqlx::Error> {
    let mut executions = Vec::with_capacity(group.len());
    let mut starts = Vec::with_capacity(group.len());
    let mut ends = Vec::with_capacity(group.len());
    let mut codecs = Vec::with_capacity(group.len());
    let mut packed = Vec::with_capacity(group.len());
    let mut digests = Vec::with_capacity(group.len());
    for chunk in group {
        let Packed { codec, bytes } = Packed::of(&chunk.bytes);
        executions.push(chunk.execution.to_string());
        starts.push(chunk.start.cast_signed());
        ends.push((chunk.start + chunk.bytes.len() as u64).cast_signed());
        codecs.push(codec);
        packed.push(bytes);
        digests.push(Sha256::digest(&chunk.bytes).to_vec());
    }
    let rows: Vec<(String, i64)> = sqlx::query_as(
        "insert into job_log (execution, start_offset, end_offset, codec, bytes, sha256) \
         select * from unnest($1::text[], $2::int8[], $3::int8[], $4::int2[], $5::bytea[], $6::bytea[]) \
           as chunk(execution, start_offset, end_offset, codec, bytes, sha256) \
         where not exists (select from erased_execution e where e.execution = chunk.execution) \
         returning execution, start_offset",
    )
    .bind(executions)
    .bind(starts)
    .bind(ends)
    .bind(codecs)
    .bind(packed)
    .bind(digests)
    .fetch_all(pool)
    .await?;
    Ok(rows.into_iter().map(|(execution, start)| (execution, start.cast_unsigned())).collect())
}
