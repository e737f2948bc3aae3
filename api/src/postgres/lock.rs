//! Lock of a data directory for one server. The kernel releases the lock when the process ends.
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg, OFlag},
};

/// Directory that exists during a restore. It holds unpacked files and marks the data directory as
/// incomplete.
pub const RESTORING: &str = "restoring";

/// Exclusive access to a data directory, until the value is dropped.
pub struct DataLock(#[expect(dead_code, reason = "held, not read")] Flock<File>);

/// Reasons why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error(
        "cannot use {data}: it is in use by process {pid}; stop the process, or choose another directory with --data"
    )]
    InUse { data: String, pid: String },
    #[error(
        "cannot use {data}: a restore into the directory did not complete; remove its contents, and restore again"
    )]
    IncompleteRestore { data: String },
    #[error(
        "cannot restore: {data} is not empty: it contains {found}; restore into an empty or new directory"
    )]
    NotEmpty { data: String, found: String },
    #[error("cannot access {path}: {reason}")]
    Io { path: String, reason: io::Error },
}

impl DataLock {
    /// Locks the directory. Creates it if necessary.
    ///
    /// # Errors
    /// [`LockError`].
    pub fn take(data: &Path) -> Result<DataLock, LockError> {
        make(data)?;
        if data.join(RESTORING).exists() {
            return Err(LockError::IncompleteRestore { data: data.display().to_string() });
        }
        DataLock::hold(data)
    }

    /// Locks an empty directory and marks it as incomplete. Until [`DataLock::restored`] every
    /// other attempt fails, even if this process is killed.
    ///
    /// # Errors
    /// [`LockError`].
    pub fn take_empty(data: &Path) -> Result<DataLock, LockError> {
        make(data)?;
        let first = fs::read_dir(data).map_err(at(data))?.next().transpose().map_err(at(data))?;
        if let Some(first) = first {
            let found = first.file_name().to_string_lossy().into_owned();
            return Err(LockError::NotEmpty { data: data.display().to_string(), found });
        }
        let marker = data.join(RESTORING);
        // The creation fails if the marker exists, so only one of two concurrent restores succeeds.
        fs::DirBuilder::new().mode(0o700).create(&marker).map_err(at(&marker))?;
        DataLock::hold(data)
    }

    /// Removes the marker after a complete restore.
    ///
    /// # Errors
    /// [`LockError::Io`].
    pub fn restored(&self, data: &Path) -> Result<(), LockError> {
        let marker = data.join(RESTORING);
        fs::remove_dir_all(&marker).map_err(at(&marker))?;
        File::open(data).and_then(|data| data.sync_all()).map_err(at(data))
    }

    fn hold(data: &Path) -> Result<DataLock, LockError> {
        let path: PathBuf = data.join("lock");
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        // Never follows a symbolic link, because root also opens directories of other users.
        let opened = options.custom_flags(OFlag::O_NOFOLLOW.bits()).open(&path);
        let file = opened.map_err(at(&path))?;
        postgres_supervisor::give(&file, data).map_err(at(&path))?;
        let mut held = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, why)| {
            if why != Errno::EWOULDBLOCK {
                return at(&path)(why.into());
            }
            let holder = fs::read_to_string(&path).unwrap_or_default();
            let pid =
                if holder.trim().is_empty() { "(unknown)" } else { holder.trim() }.to_string();
            LockError::InUse { data: data.display().to_string(), pid }
        })?;
        held.set_len(0).map_err(at(&path))?;
        writeln!(held, "{}", std::process::id()).map_err(at(&path))?;
        Ok(DataLock(held))
    }
}

fn make(data: &Path) -> Result<(), LockError> {
    // Other users can pass through to their own subdirectories, but cannot list the data directory.
    fs::DirBuilder::new().recursive(true).mode(0o711).create(data).map_err(at(data))
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> LockError {
    let path = path.display().to_string();
    move |reason| LockError::Io { path, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incomplete_restore_cannot_be_used() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let held = DataLock::take_empty(&data).unwrap();
        let again = DataLock::take_empty(&data).err().unwrap().to_string();
        assert!(again.contains("is not empty"), "{again}");
        // State after kill -9.
        drop(held);
        let refusal = DataLock::take(&data).err().unwrap().to_string();
        assert!(refusal.contains("did not complete"), "{refusal}");

        let data = dir.path().join("other");
        let held = DataLock::take_empty(&data).unwrap();
        held.restored(&data).unwrap();
        drop(held);
        DataLock::take(&data).unwrap();
    }

    #[test]
    fn second_lock_names_the_holder() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let held = DataLock::take(&data).unwrap();
        let refusal = DataLock::take(&data).err().unwrap().to_string();
        assert!(refusal.contains(&format!("process {}", std::process::id())), "{refusal}");
        drop(held);
        assert!(DataLock::take(&data).is_ok());
    }
}
