//! Output of jobs: one byte stream per execution, addressed by offset.
//!
//! ```text
//! PATCH ─decode─▶ place ─gap─▶ 416      overlap, other bytes ─▶ 409
//!                   └─fresh bytes─▶ committer ─one INSERT per group─▶ job_log ─▶ 202
//! ```
//! A chunk is acknowledged once it is durable. The event log contains only metadata of the
//! finalized stream, such as its length and digest.
mod codec;
mod committer;
pub mod days;
mod headers;
mod index;
mod placement;
mod problems;
mod read;
mod store;

pub(crate) use codec::{Coding, decode};
pub(crate) use headers::{ContentRange, HeaderError, repr_digest};
pub(crate) use index::{LineCursor, LogIndex, Phase};
pub(crate) use store::{Comparison, LogError, LogStore};

/// Maximum size of a chunk, in uncompressed bytes.
pub(crate) const CHUNK_MAX_BYTES: usize = 256 * 1024;

/// Maximum length of a stream: its first 48 MiB, its last 16 MiB, and a record between them that
/// states the number of omitted bytes.
pub(crate) const STREAM_MAX_BYTES: u64 = 64 * 1024 * 1024 + 4096;
