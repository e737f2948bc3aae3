//! One server per data directory: a lock that the kernel gives back however the holder ends.
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
};

/// The right to work in a data directory, held until it is dropped.
pub struct DataLock(#[expect(dead_code, reason = "held, not read")] Flock<File>);

/// Why a data directory cannot be worked in.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another server works in it.
    #[error("{data} is in use by process {pid}: stop it, or choose another directory with --data")]
    InUse { data: String, pid: String },
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
        let at = |path: &Path| {
            let path = path.display().to_string();
            move |reason| LockError::Io { path, reason }
        };
        // Others pass through to what is theirs; they see no list of what is here.
        fs::DirBuilder::new().recursive(true).mode(0o711).create(data).map_err(at(data))?;
        let path: PathBuf = data.join("lock");
        let opened =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let file = opened.map_err(at(&path))?;
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

#[cfg(test)]
mod tests {
    use super::*;

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
