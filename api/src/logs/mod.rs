//! What jobs wrote: one append-only byte stream per execution, addressed by offset.
//!
//! ```text
//! PATCH ─decode─▶ place ─gap─▶ 416      overlap, other bytes ─▶ 409
//!                   └─fresh bytes─▶ committer ─one INSERT per group─▶ job_log ─▶ 202
//! ```
//! A chunk is acknowledged after it is durable. The log of events knows only the seal: length and
//! digest of the whole stream.
mod codec;
mod committer;
pub mod days;
mod headers;
mod place;
mod read;
mod store;

pub use codec::{Coding, decode};
pub use headers::{ContentRange, HeaderError, repr_digest};
pub use place::{Gap, Placement, place};
pub use store::{Fit, LogError, LogStore};

/// The largest chunk that is taken, in bytes of the uncompressed stream.
pub const CHUNK_MAX_BYTES: usize = 256 * 1024;

/// The longest stream of one execution: its first 48 MiB, its last 16 MiB, and the record between
/// them that says what was left out.
pub const STREAM_MAX_BYTES: u64 = 64 * 1024 * 1024 + 4096;
