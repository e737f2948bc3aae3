//! The log: the only truth. Everything that was ever decided, in one order, provable.
//!
//! ```text
//!  command ─▶ load (cache, tail) ─▶ decide ─▶ Commit ─┐
//!  command ─▶ load               ─▶ decide ─▶ Commit ─┼─▶ appender ─▶ one statement ─▶ log_event …
//!  command ─▶ …                                       ┘    (a batch: guards, chain, tree, views)
//!                        positions(), tail() ◀─────────────┘
//! ```
//!
//! Callers hand in commits; the [`EventLog`]'s one task writes whatever is waiting as one statement, one
//! round trip and one fsync. Any number of servers may do so on one database: the head row is compared and set.

/// Connections that know where the tables are.
pub mod connect;
/// The one place that makes and changes tables.
pub mod migrate;
/// The ranges of positions that have a table of their own.
pub mod partitions;

/// Where time comes from.
pub mod clock;
/// What is asked of the log.
pub mod commit;
/// Why something was not written or read.
pub mod error;
/// Who asked, and why: the flat text beside every event.
pub mod meta;
/// An event as the log holds it.
pub mod stored;
/// Which stream: `type/id`.
pub mod stream;

mod append;
/// Closed ranges in files, and reading through them.
pub mod archive;
mod log;
mod nearby;
mod nodes;
mod proofs;
/// Reading what is there.
pub mod read;
/// What rides in an append: synchronous views.
pub mod ride;
mod seal;
/// Whose words are kept under whose key.
pub mod sealed;
/// Rows and archives together.
pub mod source;
/// Reading everything again and believing nothing.
pub mod verify;

mod cache;
mod load;
pub mod snapshot;

/// Bytes by digest.
pub mod blob;
/// Who moves a consumer's position.
pub mod consumer;
/// The one place where the domain meets `cqrs-es`.
pub mod cqrs;
/// Uploads of runners that no report has named yet.
pub mod upload;

/// A private Postgres and a fresh database per test.
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
