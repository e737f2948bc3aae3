//! Everything of a server that must come back, in one directory or file.
//!
//! ```text
//! BACKUP/            0700, every file 0600: it has the server's signing keys
//!   database.dump    pg_dump's own format, of one snapshot
//!   keys/            as in the data directory, former keys too
//!   registry/        the vendor's artifacts
//!   archives/        ranges of the log of which the database has no rows any more
//!   owner.token      if it is still there
//!   manifest.json    what, sizes, digests, and the signed checkpoint of that snapshot
//!   manifest.sha256  the last file that is written: without it there is no backup
//! ```
//!
//! What does not come back: the name of the server (two must not have one), the build runner's directory (it
//! witnessed a longer log; another one is enrolled), and what servers know only while they run.
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
    witness::{Kept, Reached},
};
use crate::{
    keys::KeyError,
    postgres::{EmbeddedError, LockError},
    server::PrepareError,
};

/// What the server's directory has that comes along.
const KEYS: &str = "keys";
const REGISTRY: &str = "registry";
/// What it has too, unless archives are elsewhere.
const ARCHIVES: &str = "archives";
/// What a backup has besides.
const DUMP: &str = "database.dump";
/// What ends the name of one that is being made.
const PARTIAL: &str = ".partial";

/// Hears what is being done, for who waits.
pub type Progress<'a> = &'a (dyn Fn(String) + Send + Sync);

/// Why there is no backup, or nothing was restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// Something is there already.
    #[error("{path} is there already: choose another place for the backup")]
    Exists { path: String },
    /// What one that was killed would leave, and is not.
    #[error(
        "{path} is there already, and is not a directory of yours with mode 0700: remove it, or choose another \
         place for the backup"
    )]
    NotOurs { path: String },
    /// The name of what is no backup yet.
    #[error("{path}: `{PARTIAL}` ends the name of what is no backup yet: choose another name")]
    Reserved { path: String },
    /// Somebody else writes it.
    #[error("another backup to {path} is being made")]
    Busy { path: String },
    /// It is not a backup, or only the beginning of one.
    #[error("{path} is not a whole backup: {why}")]
    Incomplete { path: String, why: String },
    /// It was a backup.
    #[error("the backup is damaged: {path}: {why}; nothing was restored, take another backup")]
    Damaged { path: String, why: String },
    /// A newer program made it, or a newer Postgres.
    #[error("the backup is of {what} {made_by}, this is {ours}: restore it with that version")]
    Newer { what: &'static str, made_by: String, ours: String },
    /// A pre-release version made it.
    #[error(
        "cannot restore the backup: it was written by a pre-release version (format {found}, this program reads \
         {known}); restore it with that version"
    )]
    PreRelease { found: u32, known: u32 },
    /// The database has something in it.
    #[error("the database is not empty ({found} is in it): restore into one that was just created")]
    NotEmpty { found: String },
    /// What came out is not what went in.
    #[error("the restored log is not the one of the manifest: {0}")]
    Other(String),
    /// Somebody kept a checkpoint of another history.
    #[error(
        "the checkpoint {path} at position {position} is of another history than this backup: {why}; keep \
         both, and start no server on this one before you know which is true"
    )]
    Forked { path: String, position: u64, why: &'static str },
    /// What was kept is no checkpoint of this log.
    #[error("the checkpoint {path}: {why}")]
    Witness { path: String, why: String },
    /// A note is not signed by a key of the backup.
    #[error("the manifest's checkpoint: {0}")]
    Checkpoint(#[from] CheckpointError),
    /// The log does not verify.
    #[error("the restored log does not verify: {0}")]
    Verify(#[from] VerifyError),
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The keys cannot be read.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// The private Postgres, or one of its programs.
    #[error(transparent)]
    Postgres(#[from] EmbeddedError),
    /// The data directory.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// Tables could not be brought up to date.
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    /// The database does not answer or refused.
    #[error("the database refused: {0}")]
    Database(#[from] sqlx::Error),
    /// The disk.
    #[error("{path}: {reason}")]
    Io { path: String, reason: io::Error },
}

impl BackupError {
    /// Whether the backup itself, or what came out of it, is at fault.
    pub fn is_bad_backup(&self) -> bool {
        use BackupError as E;
        match self {
            E::Damaged { .. } | E::Other(_) | E::Forked { .. } | E::Checkpoint(_) => true,
            E::Verify(error) => matches!(error, VerifyError::Differs(_)),
            E::Log(error) => matches!(error, LogError::Damaged { .. }),
            E::Exists { .. }
            | E::NotOurs { .. }
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
