//! What others kept of the log, and what of it a backup does not reach.
use std::{fs, path::Path};

use event_log::EventLog;
use proof::checkpoint::Checkpoint;
use serde::Serialize;

use super::{BackupError, Source};

/// The most that a note has.
const LONGEST: u64 = 64 << 10;

/// A signed checkpoint that somebody kept.
#[derive(Debug, Clone)]
pub struct Kept {
    path: String,
    checkpoint: Checkpoint,
}

/// How a restored log stands to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reached {
    /// The file.
    pub file: String,
    /// The position that was witnessed.
    pub position: u64,
    /// The epoch then.
    pub epoch: u64,
    /// The positions that were there then and are not in the backup: the first and the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<(u64, u64)>,
}

impl Kept {
    /// Read it, and believe it only if a key of the backup signed it.
    ///
    /// # Errors
    /// [`BackupError::Witness`].
    pub fn read(path: &Path, source: &Source) -> Result<Kept, BackupError> {
        let shown = path.display().to_string();
        let wrong = |why: String| BackupError::Witness { path: shown.clone(), why };
        let length = fs::metadata(path).map_err(|error| wrong(error.to_string()))?.len();
        if length > LONGEST {
            return Err(wrong("it is too long for a checkpoint".into()));
        }
        let note = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        let opened = Checkpoint::open(&note, &source.keys.checkpoint_keys());
        let checkpoint = opened.map_err(|error| wrong(error.to_string()))?;
        if checkpoint.log_id != source.checkpoint.log_id {
            let (other, ours) = (checkpoint.origin(), source.checkpoint.origin());
            return Err(wrong(format!("it is of {other}, the backup of {ours}")));
        }
        Ok(Kept { path: shown, checkpoint })
    }

    /// Compare it with the log.
    ///
    /// # Errors
    /// [`BackupError::Forked`].
    pub(super) async fn reached(&self, log: &EventLog) -> Result<Reached, BackupError> {
        let (position, end) = (self.checkpoint.size, log.head().size);
        let missing = (position > end).then_some((end + 1, position));
        if missing.is_none() && log.root(position).await? != self.checkpoint.root {
            let why = if self.checkpoint.epoch == log.epoch() {
                "one of the two was forged"
            } else {
                "the log was restored in between, as its epoch says"
            };
            return Err(BackupError::Forked { path: self.path.clone(), position, why });
        }
        Ok(Reached { file: self.path.clone(), position, epoch: self.checkpoint.epoch, missing })
    }
}
