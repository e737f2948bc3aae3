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
/// Ids of streams: `type/id`.
pub mod stream;

mod append;
/// Closed ranges in files, and reads from them.
pub mod archive;
mod log;
mod nearby;
mod nodes;
mod proofs;
/// Reads of events.
pub mod read;
/// Inline projections.
pub mod ride;
mod seal;
/// Encryption of personal data fields.
pub mod sealed;
/// Rows, archives and keys together.
pub mod source;
/// Verification of the whole log.
pub mod verify;

mod cache;
mod load;
pub mod snapshot;

/// Bytes by digest.
pub mod blob;
/// Positions and leases of consumers.
pub mod consumer;
/// Adapter to `cqrs-es`.
pub mod cqrs;
/// Uploads of runners that no report has named yet.
pub mod upload;

/// A private Postgres, and a new database for each test.
#[cfg(feature = "testing")]
pub mod testing;

#[cfg(feature = "planted")]
pub use proof::planted;

pub use archive::Archives;
pub use clock::Clock;
pub use commit::{Appended, CommandKey, Commit, ConsumerGuard, NewEvent, SessionGuard, Write};
pub use connect::connect;
pub use error::{AppendError, FormatMismatch, LogError};
pub use load::Loaded;
pub use log::{EventLog, Options};
pub use meta::Meta;
pub use migrate::migrate;
pub use proofs::{Standing, standing};
pub use ride::{Column, Forget, SyncView};
pub use seal::{LAG as SEAL_LAG, NoteKey, SealKey};
pub use sealed::{KeyRing, WrappingKey};
pub use source::Source;
pub use stored::Stored;
pub use stream::StreamId;
