//! Closed ranges of the log in files, and reading through them when their rows are gone.
//!
//! ```text
//! ARCHIVES/1-10240000/    one partition; a name that ends in .partial is one that was not finished
//!   events.ndjson.zst     one line per event with every column; zstd frames of 1,024 lines, each readable by itself
//!   streams.index         which frames have events of a stream
//!   manifest.json         range, digests, frames, and the signed checkpoint that the events lead to
//! ```
//!
//! An archive is made beside the rows, and proven twice on the way: what is read from the rows, and what is read back
//! from the files, must lead to a checkpoint that was published. Only then is it named in `log_archive`. To drop the
//! rows is another step, which proves both again.
use std::{io, path::Path};

use crate::LogError;

mod check;
mod create;
mod discard;
mod draft;
mod index;
mod line;
mod manifest;
mod needs;
mod shelf;
mod store;
mod streams;

pub use check::check;
pub use create::{FRAME, Step, create};
pub use discard::{discard, verify};
pub use manifest::{EVENTS, FORMAT, INDEX, MANIFEST, Manifest, Measured, directory};
pub use needs::Reader;
pub use shelf::{Archives, FLOOR, Listed, floor, hold, list};

/// Why there is no archive, or its rows are still there.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// Somebody still needs the rows.
    #[error("positions {first} to {last} are not closed: {why}")]
    Open {
        /// The first position.
        first: u64,
        /// The last one.
        last: u64,
        /// Who needs them, and what to do.
        why: String,
    },
    /// It is not what was written, or never was one.
    #[error(
        "the archive {path} is not what it says it is: {why}; keep it as it is and take it from a backup"
    )]
    Spoiled {
        /// Where.
        path: String,
        /// What is wrong.
        why: String,
    },
    /// Another version wrote it.
    #[error(
        "cannot read the archive {path}: its format is {found}, this program reads {FORMAT}; read it with the version \
         that wrote it"
    )]
    Format {
        /// Path of its manifest.
        path: String,
        /// Format in the manifest.
        found: String,
    },
    /// Nobody whom we believe signed it.
    #[error("the archive {path} was not read: {why}; `stead keys list` shows the log's keys")]
    Signer {
        /// Where.
        path: String,
        /// Who did.
        why: String,
    },
    /// The rows are not what was signed.
    #[error(
        "positions {first} to {last} were not touched, their rows are not what was published: {why}"
    )]
    Rows {
        /// The first position.
        first: u64,
        /// The last one.
        last: u64,
        /// What is wrong.
        why: String,
    },
    /// There is no such archive.
    #[error("no archive of this log ends at position {0}; `stead archive list` shows all")]
    Unknown(u64),
    /// Rows are dropped in the order of the log.
    #[error("positions before {first} are still in the database: drop those first")]
    Order {
        /// The first position of what was to be dropped.
        first: u64,
    },
    /// Somebody reads the range without a pause.
    #[error(
        "positions {first} to {last} are being read without a pause; nothing was dropped, try again later"
    )]
    Busy {
        /// The first position.
        first: u64,
        /// The last one.
        last: u64,
    },
    /// The tables are somebody else's.
    #[error(
        "only the role that owns the tables can do that: give its URL as DATABASE_OWNER_URL ({0})"
    )]
    NotOwner(sqlx::Error),
    /// The log cannot be read.
    #[error(transparent)]
    Log(LogError),
    /// The disk.
    #[error("{path}: {reason}")]
    Io {
        /// What was read or written.
        path: String,
        /// Why it was not.
        reason: io::Error,
    },
}

impl From<LogError> for ArchiveError {
    fn from(error: LogError) -> ArchiveError {
        match error {
            LogError::Database(error) => error.into(),
            other => ArchiveError::Log(other),
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

fn at(path: &Path) -> impl FnOnce(io::Error) -> ArchiveError {
    let path = path.display().to_string();
    move |reason| ArchiveError::Io { path, reason }
}

fn spoiled(path: &Path, why: impl Into<String>) -> ArchiveError {
    ArchiveError::Spoiled { path: path.display().to_string(), why: why.into() }
}
