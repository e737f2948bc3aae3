//! A job's log: records on lines, sent as bytes by offset.
//!
//! `PATCH /runner/v1/jobs/{job}/log` with `Execution`, `Content-Range: bytes A-B/*`, [`super::REPR_DIGEST`]
//! and `Content-Encoding` (`zstd`, `gzip` or none): 202 `Range: bytes=0-B` and [`LogResponse`]; 416 `Range: bytes=0-N`, go back to
//! N + 1 (no `Range`: to 0); 409 `log_divergence`; 413 the chunk is too long; 429 and 503 `Retry-After`;
//! 507 the quota is used up.
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::PendingCancel;

/// The most bytes of one chunk, before compression.
pub const CHUNK_BYTES: u64 = 256 * 1024;
/// What is kept of a log's beginning.
pub const HEAD_BYTES: u64 = 48 * 1024 * 1024;
/// What is kept of a log's end when the beginning is full.
pub const TAIL_BYTES: u64 = 16 * 1024 * 1024;
/// The most bytes of one line's text; what is longer goes on in the next record.
pub const LINE_BYTES: usize = 64 * 1024;

/// How to send logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogSettings {
    /// Milliseconds between chunks.
    pub interval_ms: u64,
    /// Bytes after which a chunk is sent at once.
    pub chunk_bytes: u64,
}

impl Default for LogSettings {
    fn default() -> Self {
        LogSettings { interval_ms: 2_000, chunk_bytes: 64 * 1024 }
    }
}

/// The answer to a chunk that was kept.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LogResponse {
    /// Log bytes that the server has stored durably.
    pub committed_bytes: u64,
    /// A cancel that waits for this execution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel: Option<PendingCancel>,
}

/// One record: one line of output, or a part of one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LogRecord {
    /// From 1 per execution. Record 1 is the shim's, and its text is when the job started.
    pub n: u64,
    /// Microseconds since then, on a clock that never goes back.
    pub t: u64,
    /// Where the line came from.
    pub s: LogStream,
    /// The phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p: Option<String>,
    /// The line, without its newline.
    pub m: String,
    /// The line goes on in the next record.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub c: bool,
    /// Bytes that were left out here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub omitted: Option<u64>,
}

/// Where a line came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum LogStream {
    /// Standard output.
    #[serde(rename = "o")]
    Out,
    /// Standard error.
    #[serde(rename = "e")]
    Err,
    /// The shim.
    #[serde(rename = "x")]
    Shim,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_its_keys_in_one_order() {
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
