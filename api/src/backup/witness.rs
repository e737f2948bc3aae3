//! Checkpoints of witnesses, and the positions that a backup lacks.
use std::{fs, path::Path};

use event_log::EventLog;
use proof::checkpoint::Checkpoint;
use serde::Serialize;

use super::{BackupError, Source};

/// Maximum size of a checkpoint in bytes.
const MAX_BYTES: u64 = 64 << 10;

/// Signed checkpoint from a witness.
#[derive(Debug, Clone)]
pub struct WitnessCheckpoint {
    path: String,
    checkpoint: Checkpoint,
}

/// Comparison of a restored log with a witness's checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Coverage {
    /// Path of the file that contains the checkpoint.
    pub file: String,
    /// Last position that the checkpoint covers.
    pub position: u64,
    /// Epoch of the log when the checkpoint was signed.
    pub epoch: u64,
    /// First and last position that the checkpoint covers and the backup lacks. `None` if the
    /// backup lacks none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<(u64, u64)>,
}

impl WitnessCheckpoint {
    /// Reads a checkpoint. Verifies that a key of the backup signed it and that it belongs to the
    /// same log.
    ///
    /// # Errors
    /// [`BackupError::Witness`].
    pub fn read(path: &Path, source: &Source) -> Result<WitnessCheckpoint, BackupError> {
        let path_text = path.display().to_string();
        let wrong = |why: String| BackupError::Witness { path: path_text.clone(), why };
        let length = fs::metadata(path).map_err(|error| wrong(error.to_string()))?.len();
        if length > MAX_BYTES {
            return Err(wrong("it exceeds the limit of 64 KiB".into()));
        }
        let note = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        let opened = Checkpoint::open(&note, &source.keys.checkpoint_keys());
        let checkpoint = opened.map_err(|error| wrong(error.to_string()))?;
        if checkpoint.log_id != source.checkpoint.log_id {
            let (of_checkpoint, ours) = (checkpoint.origin(), source.checkpoint.origin());
            return Err(wrong(format!(
                "it belongs to {of_checkpoint}, but the backup belongs to {ours}"
            )));
        }
        Ok(WitnessCheckpoint { path: path_text, checkpoint })
    }

    /// Compares the checkpoint with the log.
    ///
    /// # Errors
    /// [`BackupError::Forked`] if the histories differ, or an error of reading the log.
    pub(super) async fn compare(&self, log: &EventLog) -> Result<Coverage, BackupError> {
        let (position, end) = (self.checkpoint.size, log.head().size);
        let missing = (position > end).then_some((end + 1, position));
        if missing.is_none() && log.root(position).await? != self.checkpoint.root {
            let why = if self.checkpoint.epoch == log.epoch() {
                "the checkpoint or the backup was forged"
            } else {
                "the log was restored in between, as the different epochs show"
            };
            return Err(BackupError::Forked { path: self.path.clone(), position, why });
        }
        Ok(Coverage { file: self.path.clone(), position, epoch: self.checkpoint.epoch, missing })
    }
}
