//! Durable logs of executions, with the end of each stream cached in memory.
use std::{
    collections::HashMap,
    io,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use domain::{digest::Digest, ids::ExecutionId};
use sha2::{Digest as _, Sha256};
use sqlx::PgPool;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use super::{
    CHUNK_MAX_BYTES, STREAM_MAX_BYTES,
    committer::{self, Chunk},
    index::Indexes,
    placement::{Gap, place_chunk},
};

/// Maximum number of streams that are read concurrently to find their end.
const MAX_READS: usize = 4;
/// Number of bytes that a search for the end of a stream holds in memory.
const WINDOW: u64 = 1 << 20;

/// Reasons why a log cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// Bytes before the chunk are missing.
    #[error(
        "cannot store the chunk: the stored log has only {have} bytes; send the bytes from that offset on"
    )]
    Gap {
        /// Number of stored bytes.
        have: u64,
    },
    /// Different bytes are stored at the same offsets.
    #[error("cannot store the chunk: different bytes are stored at its offsets")]
    Divergence,
    /// The stream has its maximum length.
    #[error("cannot store the chunk: the log would exceed its limit of {STREAM_MAX_BYTES} bytes")]
    Quota,
    /// The chunk exceeds the size limit.
    #[error(
        "cannot store the chunk: it is larger than {CHUNK_MAX_BYTES} bytes; send smaller chunks"
    )]
    TooLarge,
    /// Too many chunks wait for the database.
    #[error("cannot store the chunk: too many chunks are waiting; send it again")]
    Busy,
    /// Another server wrote to this stream. The next call reads the stream again.
    #[error("cannot store the chunk: another server wrote to this log meanwhile; send it again")]
    ConcurrentWrite,
    /// The data of the execution was erased, so its log accepts no more chunks.
    #[error("cannot store the chunk: the log of this execution was erased")]
    Erased,
    /// The write of the chunk failed, or the server is stopping.
    #[error("cannot store the chunk: {0}")]
    Unwritten(String),
    /// The database is unavailable or returned an error.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// A stored chunk cannot be decompressed.
    #[error(transparent)]
    Damaged(#[from] io::Error),
}

/// Comparison of the stored stream with the runner's announcement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Comparison {
    /// Bytes are missing. Contains the number of stored bytes.
    Incomplete(u64),
    /// Length and digest match.
    Complete,
    /// The stream is at least as long as announced, but differs.
    Mismatch,
}

/// Logs of all executions. Cheap to clone.
#[derive(Clone)]
pub struct LogStore {
    pub(super) pool: PgPool,
    commits: mpsc::Sender<Chunk>,
    open: Arc<Mutex<HashMap<ExecutionId, Arc<Stream>>>>,
    pub(super) rebuilds: Arc<Semaphore>,
    pub(super) indexes: Arc<Mutex<Indexes>>,
}

/// Stream of one execution. Its lock orders the chunks.
pub(super) struct Stream {
    tip: tokio::sync::Mutex<Option<StreamEnd>>,
    pub(super) have: watch::Sender<u64>,
}

#[derive(Clone, Default)]
pub(super) struct StreamEnd {
    have: u64,
    digest: Sha256,
}

impl LogStore {
    /// Starts the task that writes. Requires a Tokio runtime.
    pub fn new(pool: PgPool) -> Self {
        let rebuilds = Arc::new(Semaphore::new(MAX_READS));
        let commits = committer::start(pool.clone());
        LogStore { commits, pool, open: Arc::default(), rebuilds, indexes: Arc::default() }
    }

    /// Stores the bytes of a chunk at offset `start`. Returns the number of durable bytes of the
    /// stream. Repeating the same bytes changes nothing.
    pub async fn append(
        &self,
        execution: ExecutionId,
        start: u64,
        bytes: Bytes,
    ) -> Result<u64, LogError> {
        if bytes.len() > CHUNK_MAX_BYTES {
            return Err(LogError::TooLarge);
        }
        let stream = self.stream(execution);
        let mut slot = stream.tip.lock().await;
        let tip = self.tip(execution, &stream, &mut slot).await?;
        let placement = place_chunk(tip.have, start, bytes.len())
            .map_err(|Gap { have }| LogError::Gap { have })?;
        if placement.known > 0 {
            let stored = self.read(execution, placement.overlap).await?;
            if stored.len() < placement.known {
                // Another server has rewound the stream.
                *slot = None;
                return Err(LogError::ConcurrentWrite);
            }
            if stored != bytes[..placement.known] {
                return Err(LogError::Divergence);
            }
        }
        let fresh = bytes.slice(placement.known..);
        if fresh.is_empty() {
            return Ok(tip.have);
        }
        if tip.have + fresh.len() as u64 > STREAM_MAX_BYTES {
            return Err(LogError::Quota);
        }
        let mut next = tip.clone();
        next.add(&fresh);
        let (done, response) = oneshot::channel();
        let chunk = Chunk { execution, start: tip.have, bytes: fresh, done };
        // A full queue must not clear the cached end. Otherwise an overload would cause a read of
        // every stream, which increases the load.
        let reserved = self.commits.try_reserve().map_err(|_| LogError::Busy)?;
        // The end of the stream is unknown until the write completes. If this call is dropped, the
        // next one reads the end from the database.
        *slot = None;
        reserved.send(chunk);
        response.await.map_err(|_| LogError::Unwritten("the server is stopping".into()))??;
        let have = next.have;
        *slot = Some(next);
        stream.have.send_replace(have);
        Ok(have)
    }

    /// Number of durable bytes of the stream, regardless of the server that wrote them.
    pub async fn length(&self, execution: ExecutionId) -> Result<u64, LogError> {
        let end: Option<i64> = sqlx::query_scalar(
            "select end_offset from job_log where execution = $1 \
             order by start_offset desc limit 1",
        )
        .bind(execution.to_string())
        .fetch_optional(&self.pool)
        .await?;
        Ok(end.unwrap_or(0).cast_unsigned())
    }

    /// Compares the stream with the length and digest that its runner announced.
    pub async fn compare(
        &self,
        execution: ExecutionId,
        length: u64,
        sha256: &Digest,
    ) -> Result<Comparison, LogError> {
        let compared = |(have, digest): (u64, Digest)| match have.cmp(&length) {
            std::cmp::Ordering::Less => Comparison::Incomplete(have),
            std::cmp::Ordering::Equal if digest == *sha256 => Comparison::Complete,
            std::cmp::Ordering::Equal | std::cmp::Ordering::Greater => Comparison::Mismatch,
        };
        match compared(self.measure(execution).await?) {
            Comparison::Incomplete(have) => return Ok(Comparison::Incomplete(have)),
            Comparison::Complete if self.length(execution).await? == length => {
                return Ok(Comparison::Complete);
            }
            // Another server may have rewound the stream, so that the cached end is wrong.
            Comparison::Complete | Comparison::Mismatch => {
                *self.stream(execution).tip.lock().await = None;
            }
        }
        Ok(compared(self.measure(execution).await?))
    }

    /// Length and digest of the durable bytes.
    pub async fn measure(&self, execution: ExecutionId) -> Result<(u64, Digest), LogError> {
        let stream = self.stream(execution);
        let mut slot = stream.tip.lock().await;
        self.tip(execution, &stream, &mut slot).await?.measured()
    }

    /// Ends the stream for every server: an empty chunk at its end occupies the offset of the next
    /// one. Returns the final length and digest.
    pub async fn end(&self, execution: ExecutionId) -> Result<(u64, Digest), LogError> {
        let stream = self.stream(execution);
        let mut slot = stream.tip.lock().await;
        let tip = self.tip(execution, &stream, &mut slot).await?;
        let (execution, have) = (execution.to_string(), tip.have.cast_signed());
        sqlx::query(
            "insert into job_log (execution, start_offset, end_offset, codec, bytes, sha256) \
             values ($1, $2, $2, 0, '', sha256('')) on conflict do nothing",
        )
        .bind(&execution)
        .bind(have)
        .execute(&self.pool)
        .await?;
        let ends: bool = sqlx::query_scalar(
            "select exists (select from job_log \
             where execution = $1 and start_offset = $2 and end_offset = $2)",
        )
        .bind(&execution)
        .bind(have)
        .fetch_one(&self.pool)
        .await?;
        if ends {
            return tip.measured();
        }
        *slot = None;
        Err(LogError::ConcurrentWrite)
    }

    /// Deletes the stored bytes so that the runner can send the stream again. A stream that was
    /// ended stays unchanged.
    pub async fn rewind(&self, execution: ExecutionId) -> Result<(), LogError> {
        let stream = self.stream(execution);
        let mut slot = stream.tip.lock().await;
        *slot = None;
        sqlx::query(
            "delete from job_log where execution = $1 and not exists (select from job_log as mark \
             where mark.execution = $1 and mark.end_offset = mark.start_offset)",
        )
        .bind(execution.to_string())
        .execute(&self.pool)
        .await?;
        stream.have.send_replace(0);
        Ok(())
    }

    /// Rejects all further chunks of these executions, at every server. The caller must wait for
    /// chunks in flight with a barrier. [`LogStore::erase`] removes stored chunks.
    pub async fn mark_erased(&self, executions: &[String]) -> Result<(), sqlx::Error> {
        let mark = "insert into erased_execution select unnest($1::text[]) on conflict do nothing";
        sqlx::query(mark).bind(executions).execute(&self.pool).await?;
        Ok(())
    }

    /// Deletes the logs of these executions. The executions stay marked as erased.
    pub async fn erase(&self, executions: &[String]) -> Result<(), sqlx::Error> {
        let erase = "delete from job_log where execution = any($1)";
        sqlx::query(erase).bind(executions).execute(&self.pool).await?;
        for execution in executions.iter().filter_map(|execution| execution.parse().ok()) {
            self.forget(execution);
        }
        Ok(())
    }

    /// Number of these executions that have log bytes, or whose logs still accept chunks.
    pub async fn not_erased(&self, executions: &[String]) -> Result<i64, sqlx::Error> {
        let left = "select count(*) from unnest($1::text[]) as u(execution) where \
             exists (select from job_log l where l.execution = u.execution and l.end_offset > l.start_offset) \
             or not exists (select from erased_execution e where e.execution = u.execution)";
        sqlx::query_scalar(left).bind(executions).fetch_one(&self.pool).await
    }

    /// Returns true if the stream has readers, so that its runner sends chunks more often.
    pub fn has_readers(&self, execution: ExecutionId) -> bool {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.get(&execution).is_some_and(|stream| stream.have.receiver_count() > 0)
    }

    /// Drops the cached end of a stream.
    pub fn forget(&self, execution: ExecutionId) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&execution);
    }

    pub(super) fn stream(&self, execution: ExecutionId) -> Arc<Stream> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if !open.contains_key(&execution) {
            open.retain(|_, stream| stream.is_used());
        }
        let new = || {
            let tip = tokio::sync::Mutex::new(None);
            Arc::new(Stream { tip, have: watch::Sender::new(0) })
        };
        Arc::clone(open.entry(execution).or_insert_with(new))
    }

    /// Returns the end of the stream, read from the database if it is not cached.
    async fn tip<'a>(
        &self,
        execution: ExecutionId,
        stream: &Stream,
        slot: &'a mut Option<StreamEnd>,
    ) -> Result<&'a StreamEnd, LogError> {
        let tip = match slot.take() {
            Some(tip) => tip,
            None => {
                // After a restart, the first use of a stream reads it completely. The limits on
                // concurrent reads and on their size bound the load.
                let turn = self.rebuilds.acquire().await;
                let _turn =
                    turn.map_err(|_| LogError::Unwritten("the server is stopping".into()))?;
                let mut tip = StreamEnd::default();
                loop {
                    let next = tip.have..tip.have + WINDOW;
                    let bytes = self.read(execution, next).await?;
                    if bytes.is_empty() {
                        break;
                    }
                    tip.add(&bytes);
                }
                stream.have.send_replace(tip.have);
                tip
            }
        };
        Ok(slot.insert(tip))
    }
}

impl Stream {
    /// Returns true if the stream is in use, has readers, or has a cached end.
    fn is_used(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) > 1
            || self.have.receiver_count() > 0
            || self.tip.try_lock().is_ok_and(|tip| tip.as_ref().is_some_and(|tip| tip.have > 0))
    }
}

impl StreamEnd {
    fn measured(&self) -> Result<(u64, Digest), LogError> {
        let hex = hex::encode(self.digest.clone().finalize());
        let digest = format!("sha256:{hex}").parse().map_err(io::Error::other)?;
        Ok((self.have, digest))
    }

    fn add(&mut self, bytes: &[u8]) {
        self.have += bytes.len() as u64;
        self.digest.update(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn full_queue_keeps_the_cached_end() {
        // given a full queue, and a stream with a cached end
        let pool = PgPool::connect_lazy("postgres://nobody@127.0.0.1:1/none").unwrap();
        let (commits, _full) = mpsc::channel(1);
        let store = LogStore { commits, ..LogStore::new(pool) };
        let _taken = store.commits.try_reserve().unwrap();
        let execution: ExecutionId = "exe_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap();
        let stream = store.stream(execution);
        *stream.tip.lock().await = Some(StreamEnd::default());
        // when a chunk arrives
        let error = store.append(execution, 0, Bytes::from_static(b"hello")).await;
        // then it must be sent again, and the cached end remains
        assert!(matches!(error, Err(LogError::Busy)));
        assert!(stream.tip.lock().await.is_some());
    }

    #[tokio::test]
    async fn quota_is_exact_to_the_byte() {
        // given a stream that can accept three more bytes, and a full queue
        let pool = PgPool::connect_lazy("postgres://nobody@127.0.0.1:1/none").unwrap();
        let (commits, _full) = mpsc::channel(1);
        let store = LogStore { commits, ..LogStore::new(pool) };
        let _taken = store.commits.try_reserve().unwrap();
        let execution: ExecutionId = "exe_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap();
        let (stream, have) = (store.stream(execution), STREAM_MAX_BYTES - 3);
        *stream.tip.lock().await = Some(StreamEnd { have, ..StreamEnd::default() });
        // when four bytes arrive, and then three
        let four = store.append(execution, have, Bytes::from_static(b"four")).await;
        let three = store.append(execution, have, Bytes::from_static(b"end")).await;
        // then the four exceed the quota, and the three would be stored
        assert!(matches!(four, Err(LogError::Quota)), "{four:?}");
        assert!(matches!(three, Err(LogError::Busy)), "{three:?}");
        assert_eq!(stream.tip.lock().await.as_ref().map(|tip| tip.have), Some(have));
        let problem = crate::problem::Problem::from(LogError::Quota);
        assert_eq!((problem.code.status(), problem.code.as_str()), (507, "log_quota_exceeded"));
    }

    #[tokio::test]
    async fn unused_stream_is_removed_from_the_cache() {
        let pool = PgPool::connect_lazy("postgres://nobody@127.0.0.1:1/none").unwrap();
        let store = LogStore::new(pool);
        for _ in 0..100 {
            store.stream(ExecutionId(ulid::Ulid::new()));
        }
        assert_eq!(store.open.lock().unwrap().len(), 1);
    }
}
