//! Why something was not written or read.
use std::{fmt, sync::Arc, time::Duration};

use serde_json::Value;

use crate::{StreamId, migrate::FIRST_RELEASED};

/// Why a commit was not written. Nothing of it was.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AppendError {
    /// Somebody else wrote to these streams since they were read: read them again and decide again.
    #[error("somebody else was faster on {}", list(.stale))]
    Conflict { stale: Vec<StreamId> },
    /// The command was already done under this key; this is what it answered.
    #[error("this command was already carried out")]
    KeyUsed {
        /// The position of its first event; `last_position + 1` if it had none.
        first_position: u64,
        /// The position of its last event.
        last_position: u64,
        /// What to answer.
        answer: Option<Value>,
    },
    /// The key was used for another request.
    #[error("this idempotency key was used for another request")]
    KeyMismatch,
    /// The consumer is elsewhere, or somebody else's.
    #[error("the consumer is elsewhere or somebody else's: {}", .consumers.join(", "))]
    ConsumerMoved { consumers: Vec<String> },
    /// The runner's session is another server's.
    #[error("the session is another server's: {}", .runners.join(", "))]
    SessionMoved { runners: Vec<String> },
    /// Too many commits are waiting.
    #[error("the log is busy")]
    Full { retry_after: Duration },
    /// The log has another format; this program must not write to it.
    #[error("{}", mismatch(.known, .found))]
    Layout { known: i32, found: i32 },
    /// An event or a commit is beyond the limits.
    #[error("{what} of {size} is more than {limit}")]
    TooLarge { what: &'static str, size: usize, limit: usize },
    /// The commit contradicts itself.
    #[error("not a commit: {0}")]
    Invalid(&'static str),
    /// What is somebody's cannot be sealed, and is not written in clear.
    #[error("{0}")]
    Unsealed(String),
    /// The log's task has ended: the program is stopping.
    #[error("the log is closed")]
    Closed,
    /// The database does not answer or refused this commit.
    #[error("the database refused: {0}")]
    Database(Arc<sqlx::Error>),
}

impl From<sqlx::Error> for AppendError {
    fn from(error: sqlx::Error) -> AppendError {
        AppendError::Database(Arc::new(error))
    }
}

/// Why the log could not be opened or read.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The database does not answer.
    #[error("the database does not answer: {0}")]
    Database(#[from] sqlx::Error),
    /// There are no tables yet.
    #[error("the database has no log yet; run `stead migrate`")]
    NoLog,
    /// Texts could not be kept byte for byte.
    #[error("the database's encoding is {0}, not UTF8")]
    Encoding(String),
    /// The log has another format.
    #[error(transparent)]
    Format(#[from] FormatMismatch),
    /// What is stored is not what this program writes.
    #[error("position {position}: {what}")]
    Damaged { position: u64, what: String },
    /// What is asked for is in an archive only, and that cannot be read.
    #[error(
        "positions {first} to {last} are only in the archive {path}, and it cannot be read: {why}; put it back from a \
         backup, or name the directory that has it with --archives"
    )]
    Archived { first: u64, last: u64, path: String, why: String },
    /// The keys of subjects cannot be opened.
    #[error(
        "the keys of subjects are wrapped by the key {0}, which this server does not have: put the `subjects.key` of \
         its keys directory back, or copy that directory from another server of this database"
    )]
    WrappingKey(String),
    /// A proof was asked for something outside the log.
    #[error(transparent)]
    Proof(#[from] proof::tree::TreeError),
}

/// Format of a log that this program cannot work with.
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
