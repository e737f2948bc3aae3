//! Backup to restore, verified against its manifest.
use std::{
    fs,
    path::{Path, PathBuf},
};

use event_log::KeyRing;
use proof::checkpoint::Checkpoint;

use super::{BackupError, DUMP, File, KEYS, Manifest, Progress, at, files, manifest, pack};
use crate::keys::{self, KeySet, wrapping};

/// Complete backup whose files match the manifest.
pub struct Source {
    pub manifest: Manifest,
    pub keys: KeySet,
    /// Signed head of the log in the backup.
    pub checkpoint: Checkpoint,
    /// Directory of the backup, or of the unpacked tar file.
    directory: PathBuf,
}

impl Source {
    /// Opens a backup. A tar file is unpacked into the directory `scratch`, which must exist and be
    /// empty.
    ///
    /// # Errors
    /// [`BackupError`]: an incomplete, damaged or newer backup is rejected.
    pub fn open(
        from: &Path,
        scratch: &Path,
        progress: Progress<'_>,
    ) -> Result<Source, BackupError> {
        let metadata = fs::metadata(from).map_err(at(from))?;
        // An incomplete backup may have a manifest, although other files were not synced.
        if files::is_partial(&fs::canonicalize(from).map_err(at(from))?) {
            let why = "its creation did not finish";
            let why = why.to_owned();
            return Err(BackupError::Incomplete { path: from.display().to_string(), why });
        }
        let directory = if metadata.is_dir() {
            from.to_path_buf()
        } else {
            progress(format!("unpacking {}", from.display()));
            pack::unpack(from, scratch)?;
            scratch.to_path_buf()
        };
        let manifest = Manifest::read(&directory)?;
        if manifest.log_format > event_log::migrate::FORMAT {
            let made_by = format!("{} (format {})", manifest.program, manifest.log_format);
            let this_program =
                format!("{} (format {})", manifest::program(), event_log::migrate::FORMAT);
            return Err(BackupError::Newer { what: "stead", made_by, ours: this_program });
        }
        for (n, file) in manifest.files.iter().enumerate() {
            progress(format!("verifying file {} of {}", n + 1, manifest.files.len()));
            compare(&directory, file)?;
        }
        let keys = keys::load(&directory.join(KEYS))?;
        let checkpoint = Checkpoint::open(&manifest.checkpoint, &keys.checkpoint_keys())?;
        let of_manifest = (&manifest.log_id, manifest.position, manifest.epoch);
        if of_manifest != (&checkpoint.log_id, checkpoint.size, checkpoint.epoch) {
            let why = "its log, position or epoch differs from that of its checkpoint".into();
            return Err(BackupError::Damaged { path: "manifest.json".into(), why });
        }
        Ok(Source { manifest, keys, checkpoint, directory })
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Keys that wrap the subject keys of the backup. Empty if the backup has no wrapping key.
    pub(super) fn wrapping(&self) -> Result<KeyRing, BackupError> {
        Ok(wrapping::load(&self.path(KEYS))?)
    }

    pub(super) fn dump(&self) -> PathBuf {
        self.path(DUMP)
    }
}

/// Compares a file with its entry in the manifest.
fn compare(directory: &Path, file: &File) -> Result<(), BackupError> {
    let damaged = |why: String| BackupError::Damaged { path: file.path.clone(), why };
    let relative = files::relative_path(&file.path);
    let relative =
        relative.ok_or_else(|| damaged("its path leaves the directory of the backup".into()))?;
    let path = directory.join(relative);
    if !path.is_file() {
        return Err(damaged("the file is missing".into()));
    }
    let measured = files::measure(&path, &file.path, |_| Ok(()))?;
    if measured != *file {
        return Err(damaged(format!(
            "it has {} bytes and the digest {}, but the manifest lists {} bytes and the digest {}",
            measured.bytes, measured.digest, file.bytes, file.digest
        )));
    }
    Ok(())
}
