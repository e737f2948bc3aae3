//! Reads a range of a stream, or follows its end.
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use domain::ids::ExecutionId;
use sqlx::Row;
use tokio::sync::watch;

use super::{
    CHUNK_MAX_BYTES,
    codec::Packed,
    store::{LogError, LogStore},
};

impl LogStore {
    /// Returns the durable bytes of a range, fewer if the stream ends within it.
    pub async fn read(&self, execution: ExecutionId, range: Range<u64>) -> Result<Bytes, LogError> {
        let (from, to) = (clamp(range.start), clamp(range.end));
        let rows = sqlx::query(
            "select start_offset, codec, bytes from job_log \
             where execution = $1 and start_offset > $2 and end_offset > $3 and start_offset < $4 \
             order by start_offset",
        )
        .bind(execution.to_string())
        // The primary key finds the first chunk, so a read at the end skips no earlier ones.
        .bind(from - CHUNK_MAX_BYTES as i64)
        .bind(from)
        .bind(to)
        .fetch_all(&self.pool)
        .await?;
        let mut bytes = BytesMut::new();
        for row in rows {
            let start: i64 = row.try_get("start_offset")?;
            let packed = Packed { codec: row.try_get("codec")?, bytes: row.try_get("bytes")? };
            let chunk = packed.unpack()?.ok_or(LogError::TooLarge)?;
            let skip = usize::try_from(from - start).unwrap_or(0).min(chunk.len());
            let keep = usize::try_from(to - start).unwrap_or(0).clamp(skip, chunk.len());
            bytes.extend_from_slice(&chunk[skip..keep]);
        }
        Ok(bytes.freeze())
    }

    /// Returns a receiver that is notified when the stream grows on this server. While it exists,
    /// the runner sends chunks more often.
    pub fn follow(&self, execution: ExecutionId) -> watch::Receiver<u64> {
        // `length` reports the bytes that are already durable.
        self.stream(execution).have.subscribe()
    }
}

/// Converts an offset to the signed type of the database. No stream is long enough to exceed it.
fn clamp(offset: u64) -> i64 {
    i64::try_from(offset).unwrap_or(i64::MAX)
}
