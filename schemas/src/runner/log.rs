//! Job logs: newline-delimited JSON records, uploaded as byte ranges.
//!
//! A runner sends `PATCH /runner/v1/jobs/{job}/log` with `Execution`, `Content-Range: bytes A-B/*`,
//! [`super::REPR_DIGEST`] and `Content-Encoding` (`zstd`, `gzip` or none).
//!
//! Responses: 202 with `Range: bytes=0-B` and [`LogResponse`]. 416 with `Range: bytes=0-N` if bytes
//! after N are missing; without `Range`, all bytes are missing. 409 `log_divergence` if bytes
//! differ from the stored ones. 413 for a chunk that is too large. 429 and 503 with `Retry-After`.
//! 507 if the log quota is exceeded.
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::PendingCancel;

/// Maximum size of an uncompressed chunk, in bytes.
pub const CHUNK_BYTES: u64 = 256 * 1024;
/// Maximum number of stored bytes from the beginning of a log.
pub const HEAD_BYTES: u64 = 48 * 1024 * 1024;
/// Maximum number of stored bytes from the end of a log whose beginning is full.
pub const TAIL_BYTES: u64 = 16 * 1024 * 1024;
/// Maximum size of one record's text, in bytes. A longer line continues in the next record.
pub const LINE_BYTES: usize = 64 * 1024;

/// Settings for uploading logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogSettings {
    /// Delay between two chunks, in milliseconds.
    pub interval_ms: u64,
    /// Number of pending bytes from which the runner uploads a chunk immediately.
    pub chunk_bytes: u64,
}

impl Default for LogSettings {
    fn default() -> Self {
        LogSettings { interval_ms: 2_000, chunk_bytes: 64 * 1024 }
    }
}

/// Response to a log upload.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LogResponse {
    /// Number of log bytes that the server has stored durably.
    pub committed_bytes: u64,
    /// Pending cancel request for the execution. Absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel: Option<PendingCancel>,
}

/// Record of a log: one line of output, or a part of a long line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LogRecord {
    /// Record number in the log, from 1. Record 1 is from the shim and contains the start time.
    pub n: u64,
    /// Time since the start of the execution, in microseconds, from a monotonic clock.
    pub t: u64,
    /// Origin of the text.
    pub s: LogStream,
    /// Name of the current phase. Absent before the first phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p: Option<String>,
    /// Text of the line, without its newline.
    pub m: String,
    /// True if the line continues in the next record.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub c: bool,
    /// Number of output bytes that the shim omitted at this point of the log. Absent if it omitted
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub omitted: Option<u64>,
}

/// Origin of the text of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum LogStream {
    /// Standard output.
    #[serde(rename = "o")]
    Out,
    /// Standard error.
    #[serde(rename = "e")]
    Err,
    /// The shim itself.
    #[serde(rename = "x")]
    Shim,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_a_fixed_member_order() {
        let record = LogRecord {
            n: 1,
            t: 20,
            s: LogStream::Out,
            p: Some("init".into()),
            m: "a\u{1b}[0m\"b".into(),
            c: true,
            omitted: None,
        };
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(text, r#"{"n":1,"t":20,"s":"o","p":"init","m":"a\u001b[0m\"b","c":true}"#);
        let plain = LogRecord { p: None, c: false, ..record };
        assert!(!serde_json::to_string(&plain).unwrap().contains("\"c\""));
    }
}
