//! Errors of appends and reads.
use std::{fmt, sync::Arc, time::Duration};

use domain::recorded::DecodeError;
use serde_json::Value;

use crate::{StreamId, migrate::FIRST_RELEASED};

/// Reasons why a commit was not written. No part of such a commit is in the log, except possibly
/// after [`AppendError::Closed`].
#[derive(Debug, Clone, thiserror::Error)]
pub enum AppendError {
    /// Version conflict: these streams have changed since they were read. The caller must read them
    /// and decide again.
    #[error("version conflict: {} changed; retry the command", list(.stale))]
    Conflict { stale: Vec<StreamId> },
    /// A command with this key was already handled. The fields describe its result.
    #[error("idempotency key rejected: a command with this key was already handled")]
    KeyUsed {
        /// Position of the first event, or `last_position + 1` without events.
        first_position: u64,
        /// Position of the last event.
        last_position: u64,
        /// Response that the earlier commit stored with the key, if any.
        response: Option<Value>,
    },
    /// The key was used for another request.
    #[error("idempotency key rejected: it was used for another request; use a new key")]
    KeyMismatch,
    /// The position or the owner of a consumer has changed.
    #[error("consumer conflict: the position or owner of {} changed; acquire the lease again", .consumers.join(", "))]
    ConsumerMoved { consumers: Vec<String> },
    /// This server does not own the session of these runners.
    #[error("session conflict: another server owns the session of {}; send the request to that server", .runners.join(", "))]
    SessionMoved { runners: Vec<String> },
    /// Too many commits are waiting.
    #[error("cannot append: the queue is full; retry later")]
    Full { retry_after: Duration },
    /// The log has another format; this program must not write to it.
    #[error("{}", mismatch(.known, .found))]
    Layout { known: i32, found: i32 },
    /// An event or a commit exceeds a limit.
    #[error("cannot append: {what} is {size}, but the limit is {limit}; send less data")]
    TooLarge { what: &'static str, size: usize, limit: usize },
    /// The commit is inconsistent.
    #[error("invalid commit: {0}")]
    Invalid(&'static str),
    /// A personal data field cannot be encrypted, and is not written in plaintext.
    #[error("cannot encrypt a personal data field: {0}")]
    NotEncrypted(String),
    /// The writer of the log has ended, because the program is stopping or the writer panicked. If
    /// it panicked, the commit may have been written.
    #[error("cannot append: the writer of the log has ended; restart the server")]
    Closed,
    /// A database operation failed, or the database rejected this commit.
    #[error("cannot append: the database operation failed: {0}")]
    Database(Arc<sqlx::Error>),
}

impl From<sqlx::Error> for AppendError {
    fn from(error: sqlx::Error) -> AppendError {
        AppendError::Database(Arc::new(error))
    }
}

/// Reasons why the log cannot be opened or read.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// A database operation failed.
    #[error("the database operation failed: {0}")]
    Database(#[from] sqlx::Error),
    /// The tables do not exist yet.
    #[error("cannot open the log: the database has no tables of Stead yet; run `stead migrate`")]
    NoLog,
    /// The encoding of the database does not preserve text byte for byte.
    #[error(
        "cannot open the log: the encoding of the database is {0}, not UTF8; create a database with the encoding UTF8"
    )]
    Encoding(String),
    /// The log has another format.
    #[error(transparent)]
    Format(#[from] FormatMismatch),
    /// Stored data is corrupt, or this program cannot decode it.
    #[error("cannot read the log at position {position}: {what}")]
    Damaged { position: u64, what: String },
    /// Only an archive has the events, and the program cannot read the archive.
    #[error(
        "cannot read positions {first} to {last}: they are only in the archive {path}, which is not readable: {why}; restore the archive from a backup, or pass the directory of the archives with --archives"
    )]
    Archived { first: u64, last: u64, path: String, why: String },
    /// This server lacks the wrapping key of some subject keys.
    #[error(
        "cannot decrypt subject keys: this server lacks the wrapping key {0}; restore `subjects.key` in its keys directory, or copy that directory from another server of this database"
    )]
    WrappingKey(String),
    /// A proof was requested for a position outside the log.
    #[error(transparent)]
    Proof(#[from] proof::tree::TreeError),
}

impl From<DecodeError> for LogError {
    fn from(error: DecodeError) -> LogError {
        let DecodeError { position, what } = error;
        LogError::Damaged { position, what }
    }
}

/// Mismatch between the format of the log and the format of this program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FormatMismatch {
    /// Format that this program reads and writes.
    pub known: i32,
    /// Format of the log.
    pub found: i32,
}

impl std::error::Error for FormatMismatch {}

fn mismatch(known: &i32, found: &i32) -> FormatMismatch {
    FormatMismatch { known: *known, found: *found }
}

impl fmt::Display for FormatMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FormatMismatch { known, found } = self;
        if *found < FIRST_RELEASED {
            write!(
                f,
                "cannot open the log: it was written by a pre-release version (format {found}, this program reads \
                 {known}); create a new database or restore with that version"
            )
        } else if found < known {
            write!(
                f,
                "cannot open the log: it has format {found}, this program reads {known}; run `stead migrate`"
            )
        } else {
            write!(
                f,
                "cannot open the log: a newer version migrated it (format {found}, this program reads {known}); start \
                 that version"
            )
        }
    }
}

fn list(streams: &[StreamId]) -> String {
    streams.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
