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

#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests create ids and start tasks themselves")
)]

pub mod connect;
pub mod migrate;
pub mod partitions;

pub mod clock;
pub mod commit;
pub mod error;
mod ids;
pub mod meta;
pub mod stored;

mod append;
pub mod archive;
mod checkpoints;
pub mod encryption;
pub mod inline;
mod log;
mod nodes;
mod proofs;
pub mod read;
pub mod source;
mod tree_cache;
pub mod verify;

mod cache;
mod load;
pub mod snapshot;

pub mod blob;
pub mod consumer;
pub mod cqrs;
pub mod transaction;
pub mod upload;

/// A private Postgres, and a new database for each test.
#[cfg(feature = "testing")]
#[allow(clippy::disallowed_methods, reason = "only tests use it")]
pub mod testing;

#[cfg(feature = "fault-injection")]
pub use proof::fault_injection;

pub use archive::Archives;
pub use checkpoints::{CheckpointKey, CheckpointKeyRecord, KEY_GRACE as SEAL_LAG};
pub use clock::Clock;
pub use commit::{Appended, Commit, ConsumerGuard, IdempotencyKey, NewEvent, SessionGuard, Write};
pub use connect::{connect, pool};
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
