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
//! A backup does not contain the server name, which must be unique, or the in-memory state of
//! servers. It also does not contain the directory of the build runner, which may have witnessed a
//! longer log. Another build runner is enrolled after a restore.
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
    restore::{Restored, restore_database, restore_files},
    source::Source,
    witness::{Coverage, WitnessCheckpoint},
};
use crate::{
    keys::KeyError,
    postgres::{EmbeddedError, LockError},
    server::PrepareError,
};

/// Directory of the keys, in the data directory and in a backup.
const KEYS: &str = "keys";
const REGISTRY: &str = "registry";
/// Name of the directory of the archives in a backup, and its default name in the data directory.
const ARCHIVES: &str = "archives";
const DUMP: &str = "database.dump";
/// Suffix of an incomplete backup.
const PARTIAL: &str = ".partial";

/// Callback for progress messages.
pub type Progress<'a> = &'a (dyn Fn(String) + Send + Sync);

/// Reasons why a backup or a restore failed.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("cannot create the backup: {path} already exists; choose another path")]
    Exists { path: String },
    #[error(
        "cannot create the backup: {path} already exists and is not your own directory with mode 0700; remove it, or choose another path"
    )]
    NotPrivate { path: String },
    #[error(
        "cannot create the backup {path}: `{PARTIAL}` marks an incomplete backup; choose another name"
    )]
    Reserved { path: String },
    #[error(
        "cannot create the backup: another backup to {path} is in progress; wait for its end, or choose another path"
    )]
    Busy { path: String },
    #[error(
        "cannot restore the backup: {path} is not a complete backup: {why}; use another backup"
    )]
    Incomplete { path: String, why: String },
    #[error(
        "cannot restore the backup: {path} is corrupt: {why}; nothing was restored; use another backup"
    )]
    Damaged { path: String, why: String },
    #[error(
        "cannot restore the backup: it is from {what} {made_by}, but this is {what} {ours}; restore it with {what} {made_by} or newer"
    )]
    Newer { what: &'static str, made_by: String, ours: String },
    #[error(
        "cannot restore the backup: it was written by a pre-release version (format {found}, this program reads \
         {known}); restore it with that version"
    )]
    PreRelease { found: u32, known: u32 },
    #[error(
        "cannot restore the backup: the database is not empty: it contains {found}; restore into a new database"
    )]
    NotEmpty { found: String },
    #[error("cannot trust the restored log: it does not match the backup: {0}; use another backup")]
    LogMismatch(String),
    #[error(
        "cannot trust the restored log: its history differs from the checkpoint {path} at position {position}: {why}; keep the checkpoint and the backup, and start no server until you know which history is correct"
    )]
    Forked { path: String, position: u64, why: &'static str },
    #[error("cannot use the checkpoint {path}: {why}; pass a checkpoint of the same log")]
    Witness { path: String, why: String },
    #[error("cannot verify the checkpoint in the manifest: {0}; use another backup")]
    Checkpoint(#[from] CheckpointError),
    #[error("cannot verify the restored log: {0}")]
    Verify(#[from] VerifyError),
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Keys(#[from] KeyError),
    #[error(transparent)]
    Postgres(#[from] EmbeddedError),
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    #[error("cannot access the database: {0}")]
    Database(#[from] sqlx::Error),
    #[error("cannot access {path}: {reason}")]
    Io { path: String, reason: io::Error },
}

impl BackupError {
    /// Returns true if the verification of the backup or of its log failed.
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
