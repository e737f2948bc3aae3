//! A backup that is to be restored, and whether it is what it was.
use std::{
    fs,
    path::{Path, PathBuf},
};

use event_log::KeyRing;
use proof::checkpoint::Checkpoint;

use super::{BackupError, DUMP, File, KEYS, Manifest, Progress, at, files, manifest, pack};
use crate::keys::{self, KeySet, wrapping};

/// A whole backup, each byte of which was compared with the manifest.
pub struct Source {
    /// What it says it is.
    pub manifest: Manifest,
    /// Its keys.
    pub keys: KeySet,
    /// The head of the log in it, by its own signature.
    pub checkpoint: Checkpoint,
    /// What is given to who restores it.
    directory: PathBuf,
}

impl Source {
    /// Open a backup; one file is unpacked into the directory `scratch`, which must be there and empty.
    ///
    /// # Errors
    /// [`BackupError`]: half of one, a damaged one or a newer one is refused.
    pub fn open(
        from: &Path,
        scratch: &Path,
        progress: Progress<'_>,
    ) -> Result<Source, BackupError> {
        let found = fs::metadata(from).map_err(at(from))?;
        // It may have its manifest and still not all that is in it on the disk.
        if files::is_partial(&fs::canonicalize(from).map_err(at(from))?) {
            let why =
                "a `create` gives it a name without `.partial` when it is whole; make another";
            let why = why.to_owned();
            return Err(BackupError::Incomplete { path: from.display().to_string(), why });
        }
        let directory = if found.is_dir() {
            from.to_path_buf()
        } else {
            progress(format!("unpacking {}", from.display()));
            pack::unpack(from, scratch)?;
            scratch.to_path_buf()
        };
        let manifest = Manifest::read(&directory)?;
        if manifest.log_format > event_log::migrate::FORMAT {
            let made_by = format!("{} (format {})", manifest.program, manifest.log_format);
            let ours = format!("{} (format {})", manifest::program(), event_log::migrate::FORMAT);
            return Err(BackupError::Newer { what: "stead", made_by, ours });
        }
        for (n, file) in manifest.files.iter().enumerate() {
            progress(format!("comparing file {} of {}", n + 1, manifest.files.len()));
            compare(&directory, file)?;
        }
        let keys = keys::kept(&directory.join(KEYS))?;
        let checkpoint = Checkpoint::open(&manifest.checkpoint, &keys.checkpoint_keys())?;
        let said = (&manifest.log_id, manifest.position, manifest.epoch);
        if said != (&checkpoint.log_id, checkpoint.size, checkpoint.epoch) {
            let why = "it names another position than its checkpoint".into();
            return Err(BackupError::Damaged { path: "manifest.json".into(), why });
        }
        Ok(Source { manifest, keys, checkpoint, directory })
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// What opens the words of subjects in it; nothing, where it was made before they were sealed.
    pub(super) fn wrapping(&self) -> Result<KeyRing, BackupError> {
        Ok(wrapping::kept(&self.path(KEYS))?)
    }

    pub(super) fn dump(&self) -> PathBuf {
        self.path(DUMP)
    }
}

/// A file is there and is what the manifest says.
fn compare(directory: &Path, file: &File) -> Result<(), BackupError> {
    let damaged = |why: String| BackupError::Damaged { path: file.path.clone(), why };
    let inside = files::inside(&file.path);
    let inside = inside.ok_or_else(|| damaged("a backup has no such file".into()))?;
    let path = directory.join(inside);
    if !path.is_file() {
        return Err(damaged("it is missing".into()));
    }
    let found = files::measure(&path, &file.path, |_| Ok(()))?;
    if found != *file {
        return Err(damaged(format!(
            "it has {} bytes and the digest {}, not {} bytes and {}",
            found.bytes, found.digest, file.bytes, file.digest
        )));
    }
    Ok(())
}
