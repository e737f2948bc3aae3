//! The event log: the single source of truth. It has every event in one order, and can prove
//! its integrity.
//!
//! ```text
//!  command ─▶ load (cache, tail) ─▶ decide ─▶ Commit ─┐
//!  command ─▶ load               ─▶ decide ─▶ Commit ─┼─▶ appender ─▶ one statement ─▶ log_event …
//!  command ─▶ …                                       ┘    (a batch: guards, chain, tree, projections)
//!                        positions(), tail() ◀─────────────┘
//! ```
//!
//! Callers submit commits. One task of the [`EventLog`] writes all waiting commits in one
//! statement, with one round trip and one fsync. Any number of servers may do so on one
//! database: each batch compares and sets the head row.

/// Database connections.
pub mod connect;
/// Creation and migration of the tables.
pub mod migrate;
/// Partitions of the event table.
pub mod partitions;

/// Source of time.
pub mod clock;
/// Commits and their guards.
pub mod commit;
/// Errors of appends and reads.
pub mod error;
/// Metadata of events.
pub mod meta;
/// Stored events.
pub mod stored;

mod append;
/// Archives: closed ranges of the log in files.
pub mod archive;
mod checkpoints;
/// Encryption of personal data fields.
pub mod encryption;
/// Inline projections.
pub mod inline;
mod log;
mod nodes;
mod proofs;
/// Reads of events.
pub mod read;
/// Everything that a read of the log needs: rows, archives and keys.
pub mod source;
mod tree_cache;
/// Verification of the whole log.
pub mod verify;

mod cache;
mod load;
pub mod snapshot;

/// Blobs: bytes that are stored by digest.
pub mod blob;
/// Positions and leases of consumers.
pub mod consumer;
/// Adapter to `cqrs-es`.
pub mod cqrs;
/// Runner uploads that no accepted report references yet.
pub mod upload;

/// A private Postgres, and a new database for each test.
#[cfg(feature = "testing")]
pub mod testing;

#[cfg(feature = "planted")]
pub use proof::fault_injection;

pub use archive::Archives;
pub use checkpoints::{CheckpointKey, CheckpointKeyRecord, KEY_GRACE as SEAL_LAG};
pub use clock::Clock;
pub use commit::{Appended, Commit, ConsumerGuard, IdempotencyKey, NewEvent, SessionGuard, Write};
pub use connect::connect;
pub use domain::stream::StreamId;
pub use encryption::{KeyRing, WrappingKey};
pub use error::{AppendError, FormatMismatch, LogError};
pub use inline::{Column, InlineProjection, Invalidate};
pub use load::Loaded;
pub use log::{EventLog, Options};
pub use meta::Meta;
pub use migrate::migrate;
pub use proofs::{HeadSnapshot, head_snapshot};
pub use source::Source;
pub use stored::StoredEvent;
