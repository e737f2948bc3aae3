//! Archives: closed partitions of the log in files. Reads use them after the rows were dropped.
//!
//! ```text
//! ARCHIVES/1-10240000/    one partition; `.partial` at the end of a name marks an unfinished archive
//!   events.ndjson.zst     one line per event with every column; zstd frames of 1,024 lines, each readable alone
//!   streams.index         the frames with events of each stream
//!   manifest.json         range, digests, frames, and the signed checkpoint that the events lead to
//! ```
//!
//! Stead creates an archive while its rows still exist. It verifies the rows and the files against
//! a published checkpoint before it records the archive in `log_archive`. Dropping the rows is a
//! separate step, which verifies rows and files again.
use std::{io, path::Path};

use crate::LogError;

mod catalog;
mod check;
mod closed_range;
mod create;
mod discard;
mod draft;
mod index;
mod line;
mod manifest;
mod store;
mod streams;

pub use catalog::{ArchiveRecord, Archives, FLOOR, block_discard, floor, list};
pub use check::check;
pub use closed_range::Reader;
pub use create::{FRAME, Step, create};
pub use discard::{discard, verify};
pub use manifest::{ArchiveFile, EVENTS, FORMAT, INDEX, MANIFEST, Manifest, directory};

/// Reasons why an archive cannot be created, read or verified, or why its rows cannot be dropped.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The range is not closed, or a reader still needs its rows.
    #[error("cannot archive or drop positions {first} to {last}: they are not closed: {why}")]
    NotClosed {
        first: u64,
        last: u64,
        /// Reason, with the required action.
        why: String,
    },
    /// A file of the archive is corrupt, or the directory is not an archive.
    #[error(
        "the archive {path} is corrupt: {why}; keep it for analysis and restore it from a backup"
    )]
    Corrupt {
        /// File or directory.
        path: String,
        why: String,
    },
    /// The archive has a format that this program cannot read.
    #[error(
        "cannot read the archive {path}: its format is {found}, but this program reads {FORMAT}; read it with the version \
         that wrote it"
    )]
    Format {
        /// Path of the archive's manifest.
        path: String,
        /// Format in the manifest.
        found: String,
    },
    /// No trusted key signed the archive.
    #[error("cannot verify the archive {path}: {why}; `stead keys list` shows the log's keys")]
    Signer {
        /// Directory of the archive.
        path: String,
        /// Reason, with the key that signed the archive.
        why: String,
    },
    /// The rows do not match the published checkpoint.
    #[error(
        "cannot verify positions {first} to {last}: their rows do not match the published checkpoint: {why}; nothing was changed"
    )]
    Rows { first: u64, last: u64, why: String },
    /// No known key signed the published checkpoint, so the rows cannot be verified.
    #[error(
        "cannot verify positions {first} to {last}: no key of this log signed the published checkpoint at position {size}; \
         nothing was changed; `stead keys list` shows the log's keys"
    )]
    NoSigner {
        first: u64,
        last: u64,
        /// Size of the log that the checkpoint covers.
        size: u64,
    },
    /// No archive ends at this position.
    #[error(
        "cannot find the archive: no archive of this log ends at position {0}; `stead archive list` lists the archives"
    )]
    Unknown(u64),
    /// An earlier range still has its rows. Rows are dropped in the order of the log.
    #[error(
        "cannot drop the rows from position {first}: earlier positions still have rows; drop those first"
    )]
    Order {
        /// First position of the requested range.
        first: u64,
    },
    /// Readers held locks on the table for longer than the lock timeout.
    #[error(
        "cannot drop positions {first} to {last}: readers hold the table; nothing was dropped, try again later"
    )]
    Busy { first: u64, last: u64 },
    /// The connected role does not own the tables.
    #[error(
        "cannot change the tables: the database role does not own them: {0}; set DATABASE_OWNER_URL"
    )]
    NotOwner(sqlx::Error),
    /// The log cannot be read.
    #[error(transparent)]
    Log(LogError),
    /// A file cannot be read or written.
    #[error("cannot read or write {path}: {reason}")]
    Io {
        /// File or directory.
        path: String,
        /// Error of the operating system.
        reason: io::Error,
    },
}

impl From<LogError> for ArchiveError {
    fn from(error: LogError) -> ArchiveError {
        match error {
            LogError::Database(error) => error.into(),
            other @ (LogError::NoLog
            | LogError::Encoding(_)
            | LogError::Format(_)
            | LogError::Damaged { .. }
            | LogError::Archived { .. }
            | LogError::WrappingKey(_)
            | LogError::Proof(_)) => ArchiveError::Log(other),
        }
    }
}

impl From<sqlx::Error> for ArchiveError {
    fn from(error: sqlx::Error) -> ArchiveError {
        let code = error.as_database_error().and_then(|error| error.code());
        if code.as_deref() == Some("42501") {
            return ArchiveError::NotOwner(error);
        }
        ArchiveError::Log(LogError::Database(error))
    }
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> ArchiveError {
    let path = path.display().to_string();
    move |reason| ArchiveError::Io { path, reason }
}

fn corrupt(path: &Path, why: impl Into<String>) -> ArchiveError {
    ArchiveError::Corrupt { path: path.display().to_string(), why: why.into() }
}
