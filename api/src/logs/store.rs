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
use tokio::sync::{mpsc, oneshot, watch};

use super::{
    CHUNK_MAX_BYTES, STREAM_MAX_BYTES,
    committer::{self, Chunk},
    place::{Gap, place},
};

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
        LogStore { commits: committer::start(pool.clone()), pool, open: Arc::default() }
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
        // Until the answer is here nobody knows where the stream ends: if this call is dropped,
        // the next one reads it from the database.
        *slot = None;
        self.commits.try_send(chunk).map_err(|_| LogError::Busy)?;
        answer.await.map_err(|_| LogError::Unwritten("server stops".into()))??;
        let have = next.have;
        *slot = Some(next);
        stream.have.send_replace(have);
        Ok(have)
    }

    /// How many bytes of the stream are durable.
    pub async fn length(&self, execution: ExecutionId) -> Result<u64, LogError> {
        let stream = self.stream(execution);
        let mut slot = stream.tip.lock().await;
        Ok(self.tip(execution, &stream, &mut slot).await?.have)
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
        let tip = self.tip(execution, &stream, &mut slot).await?;
        let hex = hex::encode(tip.digest.clone().finalize());
        let digest = format!("sha256:{hex}").parse().map_err(io::Error::other)?;
        Ok((tip.have, digest))
    }

    /// Forget what was written, so that the runner can send the stream from its start.
    pub async fn rewind(&self, execution: ExecutionId) -> Result<(), LogError> {
        let stream = self.stream(execution);
        let mut slot = stream.tip.lock().await;
        *slot = None;
        sqlx::query("delete from job_log where execution = $1")
            .bind(execution.to_string())
            .execute(&self.pool)
            .await?;
        stream.have.send_replace(0);
        Ok(())
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
                let mut tip = Tip::default();
                tip.take(&self.read(execution, 0..u64::MAX).await?);
                stream.have.send_replace(tip.have);
                tip
            }
        };
        Ok(slot.insert(tip))
    }
}

impl Tip {
    fn take(&mut self, bytes: &[u8]) {
        self.have += bytes.len() as u64;
        self.digest.update(bytes);
    }
}
