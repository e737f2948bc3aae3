//! The durable logs of executions, and the end of each stream in memory.
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
    place::{Gap, place},
};

/// How many streams are read again at once, to know where they end.
const REBUILDS: usize = 4;
/// How much of one is in memory meanwhile.
const WINDOW: u64 = 1 << 20;

/// Why a chunk was not taken.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// Bytes are missing before it.
    #[error("stream ends at byte {have}, before the start of this chunk")]
    Gap {
        /// How many bytes we have.
        have: u64,
    },
    /// Other bytes were written at the same offsets before.
    #[error("other bytes were written there before")]
    Divergence,
    /// The stream is as long as it may be.
    #[error("stream has reached its quota of {STREAM_MAX_BYTES} bytes")]
    Quota,
    /// The chunk is longer than a chunk may be.
    #[error("chunk is longer than {CHUNK_MAX_BYTES} bytes")]
    TooLarge,
    /// Too many chunks wait for the disk.
    #[error("too many chunks wait to be written")]
    Busy,
    /// Another server wrote to this stream; it is read again at the next call.
    #[error("another server wrote to this stream meanwhile")]
    Moved,
    /// The data of the execution was erased, so its log accepts no more chunks.
    #[error("the log of this execution was erased")]
    Erased,
    /// The group that the chunk was in failed.
    #[error("chunk was not written: {0}")]
    Unwritten(String),
    /// The database cannot be reached or refuses.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// A stored chunk cannot be unpacked.
    #[error(transparent)]
    Damaged(#[from] io::Error),
}

/// How the stream meets what its runner said of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fit {
    /// Bytes are still missing; this many are here.
    Incomplete(u64),
    /// Length and digest agree.
    Complete,
    /// As long as announced or longer, and not the same bytes.
    Mismatch,
}

/// The logs of all executions. Cheap to clone.
#[derive(Clone)]
pub struct LogStore {
    pub(super) pool: PgPool,
    commits: mpsc::Sender<Chunk>,
    open: Arc<Mutex<HashMap<ExecutionId, Arc<Stream>>>>,
    rebuilds: Arc<Semaphore>,
}

/// An execution's stream. Its lock puts the chunks of one execution in order.
pub(super) struct Stream {
    tip: tokio::sync::Mutex<Option<Tip>>,
    pub(super) have: watch::Sender<u64>,
}

#[derive(Clone, Default)]
pub(super) struct Tip {
    have: u64,
    digest: Sha256,
}

impl LogStore {
    /// Start the task that writes. Needs a runtime.
    pub fn new(pool: PgPool) -> Self {
        let rebuilds = Arc::new(Semaphore::new(REBUILDS));
        LogStore { commits: committer::start(pool.clone()), pool, open: Arc::default(), rebuilds }
    }

    /// Take the bytes of a chunk at offset `start`. Answers how many bytes of the stream are
    /// durable. Sending the same bytes again changes nothing.
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
        let placement =
            place(tip.have, start, bytes.len()).map_err(|Gap { have }| LogError::Gap { have })?;
        if placement.known > 0 {
            let stored = self.read(execution, placement.overlap).await?;
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
        next.take(&fresh);
        let (done, answer) = oneshot::channel();
        let chunk = Chunk { execution, start: tip.have, bytes: fresh, done };
        // A chunk that finds no place leaves the stream's end as it is known: an overload that made
        // every stream be read again would feed itself.
        let place = self.commits.try_reserve().map_err(|_| LogError::Busy)?;
        // Until the answer is here nobody knows where the stream ends: if this call is dropped,
        // the next one reads it from the database.
        *slot = None;
        place.send(chunk);
        answer.await.map_err(|_| LogError::Unwritten("server stops".into()))??;
        let have = next.have;
        *slot = Some(next);
        stream.have.send_replace(have);
        Ok(have)
    }

    /// How many bytes of the stream are durable, whichever server wrote them.
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

    /// Hold the stream against the length and digest that its runner announced.
    pub async fn fit(
        &self,
        execution: ExecutionId,
        length: u64,
        sha256: &Digest,
    ) -> Result<Fit, LogError> {
        let (have, digest) = self.measure(execution).await?;
        Ok(match have.cmp(&length) {
            std::cmp::Ordering::Less => Fit::Incomplete(have),
            std::cmp::Ordering::Equal if digest == *sha256 => Fit::Complete,
            std::cmp::Ordering::Equal | std::cmp::Ordering::Greater => Fit::Mismatch,
        })
    }

    /// Length and digest of what is durable.
    pub async fn measure(&self, execution: ExecutionId) -> Result<(u64, Digest), LogError> {
        let stream = self.stream(execution);
        let mut slot = stream.tip.lock().await;
        self.tip(execution, &stream, &mut slot).await?.measured()
    }

    /// End the stream where it is, for every server: an empty chunk stands where the next one would
    /// begin, so none can be added. Answers length and digest, which are the last.
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
        Err(LogError::Moved)
    }

    /// Forget what was written, so that the runner can send the stream from its start. A stream that
    /// was ended stays as it is.
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

    /// Rejects all further chunks of these executions, at every server. A barrier has to wait for chunks in flight;
    /// [`LogStore::erase`] removes the stored ones.
    pub async fn mark_erased(&self, executions: &[String]) -> Result<(), sqlx::Error> {
        let mark = "insert into erased_execution select unnest($1::text[]) on conflict do nothing";
        sqlx::query(mark).bind(executions).execute(&self.pool).await?;
        Ok(())
    }

    /// Delete what these executions wrote. Their marks stay.
    pub async fn erase(&self, executions: &[String]) -> Result<(), sqlx::Error> {
        let erase = "delete from job_log where execution = any($1)";
        sqlx::query(erase).bind(executions).execute(&self.pool).await?;
        for execution in executions.iter().filter_map(|execution| execution.parse().ok()) {
            self.close(execution);
        }
        Ok(())
    }

    /// Number of these executions that have log bytes, or whose logs still accept some.
    pub async fn not_erased(&self, executions: &[String]) -> Result<i64, sqlx::Error> {
        let left = "select count(*) from unnest($1::text[]) as u(execution) where \
             exists (select from job_log l where l.execution = u.execution and l.end_offset > l.start_offset) \
             or not exists (select from erased_execution e where e.execution = u.execution)";
        sqlx::query_scalar(left).bind(executions).fetch_one(&self.pool).await
    }

    /// Whether somebody follows this stream now: then its runner should send more often.
    pub fn is_followed(&self, execution: ExecutionId) -> bool {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.get(&execution).is_some_and(|stream| stream.have.receiver_count() > 0)
    }

    /// The stream is sealed: nothing will be appended, so its end need not be remembered.
    pub fn close(&self, execution: ExecutionId) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&execution);
    }

    pub(super) fn stream(&self, execution: ExecutionId) -> Arc<Stream> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if !open.contains_key(&execution) {
            // What was only asked for once is not remembered for ever.
            open.retain(|_, stream| stream.is_used());
        }
        let new = || {
            let tip = tokio::sync::Mutex::new(None);
            Arc::new(Stream { tip, have: watch::Sender::new(0) })
        };
        Arc::clone(open.entry(execution).or_insert_with(new))
    }

    /// The stream's end, read from the database when nobody knows it.
    async fn tip<'a>(
        &self,
        execution: ExecutionId,
        stream: &Stream,
        slot: &'a mut Option<Tip>,
    ) -> Result<&'a Tip, LogError> {
        let tip = match slot.take() {
            Some(tip) => tip,
            None => {
                // After a restart all streams are read again: a few at a time, and none as a whole.
                let turn = self.rebuilds.acquire().await;
                let _turn = turn.map_err(|_| LogError::Unwritten("server stops".into()))?;
                let mut tip = Tip::default();
                loop {
                    let next = tip.have..tip.have + WINDOW;
                    let bytes = self.read(execution, next).await?;
                    if bytes.is_empty() {
                        break;
                    }
                    tip.take(&bytes);
                }
                stream.have.send_replace(tip.have);
                tip
            }
        };
        Ok(slot.insert(tip))
    }
}

impl Stream {
    /// Whether somebody works with it, follows it, or will add to it.
    fn is_used(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) > 1
            || self.have.receiver_count() > 0
            || self.tip.try_lock().is_ok_and(|tip| tip.as_ref().is_some_and(|tip| tip.have > 0))
    }
}

impl Tip {
    fn measured(&self) -> Result<(u64, Digest), LogError> {
        let hex = hex::encode(self.digest.clone().finalize());
        let digest = format!("sha256:{hex}").parse().map_err(io::Error::other)?;
        Ok((self.have, digest))
    }

    fn take(&mut self, bytes: &[u8]) {
        self.have += bytes.len() as u64;
        self.digest.update(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_chunk_that_finds_no_place_leaves_the_streams_end_known() {
        // given a queue that is full, and a stream whose end is known
        let pool = PgPool::connect_lazy("postgres://nobody@127.0.0.1:1/none").unwrap();
        let (commits, _full) = mpsc::channel(1);
        let store = LogStore { commits, ..LogStore::new(pool) };
        let _taken = store.commits.try_reserve().unwrap();
        let execution: ExecutionId = "exe_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap();
        let stream = store.stream(execution);
        *stream.tip.lock().await = Some(Tip::default());
        // when a chunk comes
        let refused = store.append(execution, 0, Bytes::from_static(b"hello")).await;
        // then it is to be sent again, and nothing has to be read for that
        assert!(matches!(refused, Err(LogError::Busy)));
        assert!(stream.tip.lock().await.is_some());
    }

    #[tokio::test]
    async fn a_stream_is_full_to_the_byte_and_what_it_has_stays() {
        // given a stream that has place for three bytes more, and nobody who writes
        let pool = PgPool::connect_lazy("postgres://nobody@127.0.0.1:1/none").unwrap();
        let (commits, _full) = mpsc::channel(1);
        let store = LogStore { commits, ..LogStore::new(pool) };
        let _taken = store.commits.try_reserve().unwrap();
        let execution: ExecutionId = "exe_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap();
        let (stream, have) = (store.stream(execution), STREAM_MAX_BYTES - 3);
        *stream.tip.lock().await = Some(Tip { have, ..Tip::default() });
        // when four come, and when three come
        let four = store.append(execution, have, Bytes::from_static(b"four")).await;
        let three = store.append(execution, have, Bytes::from_static(b"end")).await;
        // then the four are too many, for good, and the three would be written
        assert!(matches!(four, Err(LogError::Quota)), "{four:?}");
        assert!(matches!(three, Err(LogError::Busy)), "{three:?}");
        assert_eq!(stream.tip.lock().await.as_ref().map(|tip| tip.have), Some(have));
        let problem = crate::problem::Problem::from(LogError::Quota);
        assert_eq!((problem.code.status(), problem.code.word()), (507, "log_quota_exceeded"));
    }

    #[tokio::test]
    async fn a_stream_that_nobody_uses_is_not_remembered() {
        let pool = PgPool::connect_lazy("postgres://nobody@127.0.0.1:1/none").unwrap();
        let store = LogStore::new(pool);
        for _ in 0..100 {
            store.stream(ExecutionId(ulid::Ulid::new()));
        }
        assert_eq!(store.open.lock().unwrap().len(), 1);
    }
}
