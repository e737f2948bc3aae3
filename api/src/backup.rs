//! Backups: all durable data of a server, in one directory or file.
//!
//! ```text
//! BACKUP/            0700, every file 0600: it contains the server's signing keys
//!   database.dump    pg_dump's custom format, of one snapshot
//!   keys/            as in the data directory, with former keys
//!   registry/        the vendor's artifacts
//!   archives/        partitions of the log whose rows were removed from the database
//!   owner.token      if it still exists
//!   manifest.json    contents, sizes, digests, and the signed checkpoint of the snapshot
//!   manifest.sha256  written last: without it the backup is incomplete
//! ```
//!
//! Not included: the server name, which must be unique; the directory of the build runner, which
//! has witnessed a longer log, so another runner is enrolled; and the in-memory state of servers.
mod create;
mod files;
mod manifest;
mod pack;
mod restore;
mod source;
#[cfg(test)]
mod tests;
mod witness;

use std::{io, path::Path};

use event_log::{LogError, verify::VerifyError};
use proof::checkpoint::CheckpointError;

pub use self::{
    create::create,
    manifest::{File, Manifest},
    restore::{Restored, fill_database, put_files},
    source::Source,
    witness::{Coverage, WitnessCheckpoint},
};
use crate::{
    keys::KeyError,
    postgres::{EmbeddedError, LockError},
    server::PrepareError,
};

/// Directories of the data directory that a backup includes.
const KEYS: &str = "keys";
const REGISTRY: &str = "registry";
/// Default directory of the archives.
const ARCHIVES: &str = "archives";
/// Dump of the database.
const DUMP: &str = "database.dump";
/// Suffix of an incomplete backup.
const PARTIAL: &str = ".partial";

/// Callback for progress messages.
pub type Progress<'a> = &'a (dyn Fn(String) + Send + Sync);

/// Reasons why a backup or a restore failed.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The output path already exists.
    #[error("{path} already exists; choose another path for the backup")]
    Exists { path: String },
    /// The path of the incomplete backup exists and could belong to another user.
    #[error(
        "{path} already exists and is not your own directory with mode 0700; remove it, or choose another path for the backup"
    )]
    NotPrivate { path: String },
    /// The output path has the suffix of an incomplete backup.
    #[error("invalid path {path}: `{PARTIAL}` marks an incomplete backup; choose another name")]
    Reserved { path: String },
    /// Another process writes to the same path.
    #[error("another backup to {path} is in progress; wait for it, or choose another path")]
    Busy { path: String },
    /// The path is not a backup, or the backup is incomplete.
    #[error("{path} is not a complete backup: {why}")]
    Incomplete { path: String, why: String },
    /// A file differs from the manifest.
    #[error("the backup is damaged: {path}: {why}; nothing was restored, use another backup")]
    Damaged { path: String, why: String },
    /// A newer program or a newer Postgres created the backup.
    #[error(
        "cannot restore: the backup is from {what} {made_by}, this is {ours}; restore it with that version"
    )]
    Newer { what: &'static str, made_by: String, ours: String },
    /// A pre-release version created the backup.
    #[error(
        "cannot restore the backup: it was written by a pre-release version (format {found}, this program reads \
         {known}); restore it with that version"
    )]
    PreRelease { found: u32, known: u32 },
    /// The database to restore into is not empty.
    #[error("the database is not empty: it contains {found}; restore into a new database")]
    NotEmpty { found: String },
    /// The restored log differs from the backup.
    #[error("the restored log does not match the manifest: {0}")]
    LogMismatch(String),
    /// A witness has a checkpoint of another history.
    #[error(
        "the checkpoint {path} at position {position} belongs to another history than this backup: {why}; keep both, and start no server on this one until you know which is right"
    )]
    Forked { path: String, position: u64, why: &'static str },
    /// The file of a witness is not a checkpoint of this log.
    #[error("cannot use the checkpoint {path}: {why}")]
    Witness { path: String, why: String },
    /// The checkpoint is not signed by a key of the backup.
    #[error("invalid checkpoint in the manifest: {0}")]
    Checkpoint(#[from] CheckpointError),
    /// The verification of the restored log failed.
    #[error("verification of the restored log failed: {0}")]
    Verify(#[from] VerifyError),
    /// The log is unreadable.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The keys are unreadable.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// The private Postgres or one of its programs failed.
    #[error(transparent)]
    Postgres(#[from] EmbeddedError),
    /// The data directory is locked by another process.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The migration of the tables failed.
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    /// The database is unavailable or returned an error.
    #[error("database error: {0}")]
    Database(#[from] sqlx::Error),
    /// A file operation failed.
    #[error("cannot access {path}: {reason}")]
    Io { path: String, reason: io::Error },
}

impl BackupError {
    /// Returns true if the backup, or the log in it, is invalid.
    pub fn is_bad_backup(&self) -> bool {
        use BackupError as E;
        match self {
            E::Damaged { .. } | E::LogMismatch(_) | E::Forked { .. } | E::Checkpoint(_) => true,
            E::Verify(error) => matches!(error, VerifyError::Differs(_)),
            E::Log(error) => matches!(error, LogError::Damaged { .. }),
            E::Exists { .. }
            | E::NotPrivate { .. }
            | E::Reserved { .. }
            | E::Busy { .. }
            | E::Incomplete { .. }
            | E::Newer { .. }
            | E::PreRelease { .. }
            | E::NotEmpty { .. }
            | E::Witness { .. }
            | E::Keys(_)
            | E::Postgres(_)
            | E::Lock(_)
            | E::Prepare(_)
            | E::Database(_)
            | E::Io { .. } => false,
        }
    }
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> BackupError {
    let path = path.display().to_string();
    move |reason| BackupError::Io { path, reason }
}
