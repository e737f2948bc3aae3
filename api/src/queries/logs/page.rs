//! Reads a page of records of a log.
use bytes::BytesMut;
use futures::StreamExt as _;
use schemas::control::jobs::LogRecord;

use super::AttemptLog;
use crate::problem::Problem;

/// Maximum number of log bytes of a page.
const MAX_BYTES: u64 = 1 << 20;

/// Some consecutive records of a log.
#[derive(Debug, Default)]
pub(crate) struct LogRecords {
    pub records: Vec<LogRecord>,
    /// True if later records exist.
    pub more: bool,
}

impl AttemptLog {
    /// Reads at most `limit` records after number `n`.
    pub(crate) async fn after(self, n: u64, limit: usize) -> Result<LogRecords, Problem> {
        let start = if n == 0 { 0 } else { self.offset_after(n).await? };
        let end = self.length.min(start + MAX_BYTES);
        let is_cut = end < self.length;
        let mut records = self.records(start..end).await?;
        let more = is_cut || records.len() > limit;
        records.truncate(limit);
        Ok(LogRecords { records, more })
    }

    /// Reads the newest records, at most `limit`.
    pub(crate) async fn newest(self, limit: usize) -> Result<LogRecords, Problem> {
        let end = self.length;
        let start = end.saturating_sub(MAX_BYTES);
        let mut records = self.records(start..end).await?;
        records.drain(..records.len().saturating_sub(limit));
        Ok(LogRecords { records, more: false })
    }

    /// Reads the records that are completely within a range.
    async fn records(self, range: std::ops::Range<u64>) -> Result<Vec<LogRecord>, Problem> {
        let is_first = range.start == 0;
        // A range that starts within a record has the byte before, which ends the previous record if
        // the range starts with a record.
        let range = range.start.saturating_sub(1)..range.end;
        let (mut chunks, mut bytes) = (std::pin::pin!(self.bytes(range)), BytesMut::new());
        while let Some(chunk) = chunks.next().await {
            bytes.extend_from_slice(&chunk.map_err(Problem::internal)?);
        }
        let complete = bytes.split_inclusive(|byte| *byte == b'\n');
        let complete = complete.skip(usize::from(!is_first)).filter(|line| line.ends_with(b"\n"));
        // Skips lines that are no log records. The server stores what a runner sends without parsing it.
        Ok(complete.filter_map(|line| serde_json::from_slice(line).ok()).collect())
    }
}
