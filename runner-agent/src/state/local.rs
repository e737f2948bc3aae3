//! Encrypted copy of a component's state on this host. It is the spool for the server, and the
//! state while the server is unreachable.
//!
//! ```text
//! state/<component>/state.encrypted        newest state: a line with its version, and the ciphertext
//!                   state.encrypted.next   state that was not acknowledged yet; the next job promotes it or sets it aside
//!                   state.uploaded         version that the server has acknowledged
//!                   terraform.tfstate/     directory in place of the file of earlier versions
//! ```
//!
//! A former runner keeps the state in `terraform.tfstate`, and fails at the directory.
use std::{
    fs::{self, File},
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    path::{Path, PathBuf},
};

use schemas::runner::{StateHead, StateUpload};

use super::{StateStore, mark_of};
use crate::data;

pub(super) const ENCRYPTED: &str = "state.encrypted";
const NEXT: &str = "state.encrypted.next";
pub(super) const UPLOADED: &str = "state.uploaded";
/// File of earlier versions. Another file with its name and this suffix is the moved one.
const PLAIN: [&str; 2] = [super::STATE, "terraform.tfstate.backup"];
const MOVED: &str = ".moved";
/// Longest line with a version in bytes.
const MAX_LINE: u64 = 4096;

impl StateStore {
    pub(super) fn encrypted_file(&self) -> PathBuf {
        self.dir.join(ENCRYPTED)
    }

    /// Returns the version of the local copy. The line is not authenticated: only a decryption
    /// proves it.
    pub fn stored(&self) -> io::Result<Option<StateUpload>> {
        Ok(self.open_stored()?.map(|(upload, _)| upload))
    }

    /// Returns the local copy with its ciphertext.
    pub fn read_stored(&self) -> io::Result<Option<(StateUpload, Vec<u8>)>> {
        read_copy(&self.encrypted_file())
    }

    fn open_stored(&self) -> io::Result<Option<(StateUpload, BufReader<File>)>> {
        open_copy(&self.encrypted_file())
    }

    pub(super) fn next_file(&self) -> PathBuf {
        self.dir.join(NEXT)
    }

    /// Returns the version of the state that a former writer did not acknowledge.
    pub(super) fn next(&self) -> io::Result<Option<StateUpload>> {
        Ok(open_copy(&self.next_file())?.map(|(upload, _)| upload))
    }

    /// Returns the state that a former writer did not acknowledge, with its ciphertext.
    pub(super) fn read_next(&self) -> io::Result<Option<(StateUpload, Vec<u8>)>> {
        read_copy(&self.next_file())
    }

    /// Writes a state that is not acknowledged yet, and syncs it to disk.
    pub(super) fn write_next(&self, upload: &StateUpload, ciphertext: &[u8]) -> io::Result<()> {
        write_copy(&self.next_file(), upload, ciphertext)
    }

    /// Makes the state of [`StateStore::write_next`] the newest one.
    pub(super) fn commit_next(&self) -> io::Result<()> {
        fs::rename(self.next_file(), self.encrypted_file())?;
        data::sync_parent(&self.encrypted_file())
    }

    /// Removes a state that was not acknowledged, and that exists elsewhere.
    pub(super) fn discard_next(&self) {
        let _best_effort = data::remove(&self.next_file());
    }

    /// Records that the server has this version.
    pub fn mark_uploaded(&self, head: &StateHead) -> io::Result<()> {
        data::replace_json(&self.dir.join(UPLOADED), head)
    }

    /// Returns the version of the local copy, if the server has not acknowledged it.
    pub fn pending(&self) -> io::Result<Option<StateUpload>> {
        let Some(stored) = self.stored()? else { return Ok(None) };
        let uploaded: Option<StateHead> = data::read_json(&self.dir.join(UPLOADED))?;
        // A copy that was restored from a backup is older than the version that the server has.
        let order = |head: &StateHead| (head.fence, head.serial);
        let is_uploaded = uploaded.is_some_and(|uploaded| {
            uploaded.lineage == stored.head.lineage && order(&uploaded) >= order(&stored.head)
        });
        Ok((!is_uploaded).then_some(stored))
    }

    /// Returns the state in the file of earlier versions, if there is one. An empty file is not a
    /// state.
    pub(super) fn plain(&self) -> io::Result<Option<Vec<u8>>> {
        let path = self.file();
        match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
            Ok(meta) if meta.is_dir() => Ok(None),
            Ok(_) => {
                let bytes = fs::read(&path)?;
                Ok((!bytes.is_empty()).then_some(bytes))
            }
        }
    }

    /// Renames the files of earlier versions, and puts a directory in their place. Can be repeated.
    pub(super) fn retire_plain(&self) -> io::Result<()> {
        for name in PLAIN {
            let path = self.dir.join(name);
            let is_file = fs::symlink_metadata(&path).is_ok_and(|meta| !meta.is_dir());
            if is_file {
                fs::rename(&path, self.dir.join(format!("{name}{MOVED}")))?;
            }
        }
        data::directory(&self.file())?;
        data::sync_parent(&self.file())
    }

    /// Returns the files of earlier versions that were moved and contain the state in clear.
    pub fn moved(&self) -> Vec<PathBuf> {
        let paths = PLAIN.map(|name| self.dir.join(format!("{name}{MOVED}")));
        paths.into_iter().filter(|path| path.is_file()).collect()
    }
}

/// Writes an encrypted copy, and syncs it to disk.
pub(super) fn write_copy(path: &Path, upload: &StateUpload, ciphertext: &[u8]) -> io::Result<()> {
    let mut line = serde_json::to_vec(upload)?;
    line.push(b'\n');
    let write = || -> io::Result<()> {
        data::remove(path)?;
        let mut file = data::fresh(path)?;
        file.write_all(&line)?;
        file.write_all(ciphertext)?;
        file.sync_all()
    };
    write().inspect_err(|_| {
        // An incomplete file takes space from the next attempt.
        let _best_effort = data::remove(path);
    })
}

/// Reads an encrypted copy, whose first line is its version.
pub(super) fn read_copy(path: &Path) -> io::Result<Option<(StateUpload, Vec<u8>)>> {
    let Some((upload, mut rest)) = open_copy(path)? else { return Ok(None) };
    let mut ciphertext = Vec::new();
    rest.read_to_end(&mut ciphertext)?;
    Ok(Some((upload, ciphertext)))
}

fn open_copy(path: &Path) -> io::Result<Option<(StateUpload, BufReader<File>)>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)?;
    let upload = serde_json::from_slice(&line).map_err(|error| {
        io::Error::other(format!("{} does not begin with a version: {error}", path.display()))
    })?;
    Ok(Some((upload, reader)))
}

/// Returns the stores of all components below `root` whose newest state the server has not
/// acknowledged.
pub fn pending_uploads(root: &Path) -> io::Result<Vec<StateStore>> {
    let entries = match fs::read_dir(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut pending = Vec::new();
    for entry in entries {
        let store = StateStore::new(root, &entry?.file_name().to_string_lossy());
        // A file that cannot be read blocks the jobs of its component only.
        if store.pending().is_ok_and(|upload| upload.is_some()) {
            pending.push(store);
        }
    }
    Ok(pending)
}

/// Returns whether a state has no resources, so that another lineage may follow.
pub(super) fn is_empty(state: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct Resources {
        resources: Option<Vec<serde::de::IgnoredAny>>,
    }
    let parsed = serde_json::from_slice::<Resources>(state);
    mark_of(state).is_ok()
        && parsed.is_ok_and(|parsed| parsed.resources.is_none_or(|all| all.is_empty()))
}

#[cfg(test)]
mod tests {
    use schemas::manifest::Fence;

    use super::*;

    fn upload(serial: u64) -> StateUpload {
        let digest = format!("hmac-sha256:1:{serial:064x}");
        let fence = Fence { epoch: 1, position: 9 };
        let head = StateHead { lineage: "l".into(), serial, fence, digest, is_empty: false };
        StateUpload { head, written_by: None, is_decided: false }
    }

    fn store() -> (tempfile::TempDir, StateStore) {
        let dir = tempfile::tempdir().unwrap();
        let store = StateStore::new(dir.path(), "web");
        data::directory(store.dir()).unwrap();
        (dir, store)
    }

    #[test]
    fn a_state_is_the_newest_once_it_is_committed_and_pending_until_it_is_uploaded() {
        let (dir, store) = store();
        assert_eq!(store.stored().unwrap(), None);
        store.write_next(&upload(1), b"one\ntwo").unwrap();
        assert_eq!(store.stored().unwrap(), None);
        store.commit_next().unwrap();
        assert_eq!(store.read_stored().unwrap(), Some((upload(1), b"one\ntwo".to_vec())));
        assert_eq!(store.pending().unwrap(), Some(upload(1)));
        assert_eq!(pending_uploads(dir.path()).unwrap().len(), 1);
        store.mark_uploaded(&upload(1).head).unwrap();
        assert_eq!(store.pending().unwrap(), None);
        store.write_next(&upload(2), b"").unwrap();
        store.discard_next();
        assert_eq!(store.pending().unwrap(), None);
        store.write_next(&upload(2), b"").unwrap();
        store.commit_next().unwrap();
        assert_eq!(store.pending().unwrap(), Some(upload(2)));
        // A copy from a backup is not a newer state.
        store.mark_uploaded(&upload(3).head).unwrap();
        assert_eq!(store.pending().unwrap(), None);
    }

    #[test]
    fn a_damaged_copy_is_an_error_and_not_an_absent_state() {
        let (_dir, store) = store();
        for damaged in ["", "{}", "no version\n", &"x".repeat(9999)] {
            fs::write(store.encrypted_file(), damaged).unwrap();
            let error = store.stored().unwrap_err().to_string();
            assert!(error.contains("does not begin with a version"), "{error}");
        }
    }

    #[test]
    fn a_plain_file_is_moved_after_any_interruption() {
        let (_dir, store) = store();
        let backup = store.dir().join("terraform.tfstate.backup");
        fs::write(store.file(), "state").unwrap();
        fs::write(&backup, "older").unwrap();
        assert_eq!(store.plain().unwrap().as_deref(), Some(&b"state"[..]));
        for _ in 0..2 {
            store.retire_plain().unwrap();
            assert!(store.file().is_dir() && !backup.exists());
            assert_eq!(store.plain().unwrap(), None);
            assert_eq!(store.moved().len(), 2);
        }
        // Interrupted between the rename and the directory.
        fs::remove_dir(store.file()).unwrap();
        store.retire_plain().unwrap();
        assert!(store.file().is_dir() && store.moved().len() == 2);
    }

    #[test]
    fn a_state_without_resources_is_empty() {
        let state = |resources: &str| format!(r#"{{"lineage":"l","serial":1{resources}}}"#);
        assert!(is_empty(state("").as_bytes()));
        assert!(is_empty(state(r#","resources":[]"#).as_bytes()));
        assert!(!is_empty(state(r#","resources":[{"mode":"managed"}]"#).as_bytes()));
        assert!(!is_empty(b"{}") && !is_empty(b""));
    }
}
