//! One server per data directory: a lock that the kernel gives back however the holder ends.
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

use super::account;

/// In a data directory that is being restored: what is unpacked on the way, and the sign that it is not whole.
pub const RESTORING: &str = "restoring";

/// The right to work in a data directory, held until it is dropped.
pub struct DataLock(#[expect(dead_code, reason = "held, not read")] Flock<File>);

/// Why a data directory cannot be worked in.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another server works in it.
    #[error("{data} is in use by process {pid}: stop it, or choose another directory with --data")]
    InUse { data: String, pid: String },
    /// A restore began in it and did not end.
    #[error(
        "a restore into {data} did not come to its end: remove what is in that directory, and restore again"
    )]
    HalfRestored { data: String },
    /// There is something in it, and a restore takes only an empty one.
    #[error(
        "{data} is not empty ({found} is in it): restore into a directory that is empty or not there yet"
    )]
    NotEmpty { data: String, found: String },
    /// It cannot be made or written.
    #[error("{path}: {reason}")]
    Io { path: String, reason: io::Error },
}

impl DataLock {
    /// Make the directory if need be and take it.
    ///
    /// # Errors
    /// [`LockError`].
    pub fn take(data: &Path) -> Result<DataLock, LockError> {
        make(data)?;
        if data.join(RESTORING).exists() {
            return Err(LockError::HalfRestored { data: data.display().to_string() });
        }
        DataLock::hold(data)
    }

    /// Take an empty directory, and mark it: until [`DataLock::restored`] nobody else can take it, also when this
    /// process is killed.
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
        // Made, not found: of two at once one is refused.
        fs::DirBuilder::new().mode(0o700).create(&marker).map_err(at(&marker))?;
        DataLock::hold(data)
    }

    /// The directory is whole.
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
        // Through no link: root opens it in directories of others, too.
        let opened = options.custom_flags(OFlag::O_NOFOLLOW.bits()).open(&path);
        let file = opened.map_err(at(&path))?;
        account::give(&file, data).map_err(at(&path))?;
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
    // Others pass through to what is theirs; they see no list of what is here.
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
    fn a_directory_that_is_being_restored_is_nobodys_until_it_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let held = DataLock::take_empty(&data).unwrap();
        let again = DataLock::take_empty(&data).err().unwrap().to_string();
        assert!(again.contains("is not empty"), "{again}");
        // As kill -9 leaves it.
        drop(held);
        let refusal = DataLock::take(&data).err().unwrap().to_string();
        assert!(refusal.contains("did not come to its end"), "{refusal}");

        let data = dir.path().join("other");
        let held = DataLock::take_empty(&data).unwrap();
        held.restored(&data).unwrap();
        drop(held);
        DataLock::take(&data).unwrap();
    }

    #[test]
    fn a_data_directory_has_one_holder_and_the_second_learns_who() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let held = DataLock::take(&data).unwrap();
        let refusal = DataLock::take(&data).err().unwrap().to_string();
        assert!(refusal.contains(&format!("process {}", std::process::id())), "{refusal}");
        drop(held);
        assert!(DataLock::take(&data).is_ok());
    }
}
