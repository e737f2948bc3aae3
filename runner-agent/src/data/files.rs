//! Private and durable files: owner, permissions, atomic replacement, and reserved blocks.
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::{
        fd::AsRawFd as _,
        unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, fchown},
    },
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2},
    unistd::geteuid,
};
use serde::{Serialize, de::DeserializeOwned};

use crate::ids;

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

/// Returns the owner of a new file, if root creates it in a directory of another user. A command
/// that runs with `sudo` must leave no file that an agent without root cannot read.
fn other_owner(path: &Path) -> io::Result<Option<(u32, u32)>> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    // A bare name is in the current directory.
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let owner = fs::metadata(parent.unwrap_or(Path::new(".")))?;
    Ok((owner.uid() != 0).then(|| (owner.uid(), owner.gid())))
}

fn give(file: &File, owner: Option<(u32, u32)>) {
    if let Some((uid, gid)) = owner {
        // In a container or on a network file system, root may not be able to change the owner. The
        // file then belongs to root.
        let _best_effort = fchown(file, Some(uid), Some(gid));
    }
}

/// Creates a directory that only its owner can read, unless the directory exists.
pub fn directory(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    make_directory(path)?;
    let owner = other_owner(path)?;
    if owner.is_some() {
        // Open the directory itself, not a link that replaced it.
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
        give(&OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?, owner);
    }
    Ok(())
}

pub(super) fn make_directory(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    // The name of the directory must be as durable as its contents.
    sync_parent(path)
}

/// Opens a file for appending, readable by its owner only.
pub fn append(path: &Path) -> io::Result<File> {
    // Change the owner of a new file only: an existing path may be a link. The file gets its owner
    // before its name, so that no process finds a file that it cannot open.
    if other_owner(path)?.is_some() && fs::symlink_metadata(path).is_err() {
        let draft = draft(path);
        drop(fresh(&draft)?);
        // The link fails if another process has created the file. If there is still no file, the
        // code below creates it, owned by root.
        let _best_effort = fs::hard_link(&draft, path);
        remove(&draft)?;
    }
    options().append(true).create(true).read(true).open(path)
}

/// Opens a regular file at a path on which the code of a job may have created links: fails at a
/// link in any part of the path, and does not wait at a pipe.
pub fn open_without_links(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
    let file = match openat2(AT_FDCWD, path, how) {
        Ok(file) => File::from(file),
        // Linux before 5.6, or a container whose runtime does not know the call.
        Err(Errno::ENOSYS | Errno::EPERM) => open_at_own_path(path, flags)?,
        Err(error) => return Err(error.into()),
    };
    if !file.metadata()?.is_file() {
        let why = format!("{} is not a regular file", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    Ok(file)
}

/// Opens a file, and compares its path with the requested one.
fn open_at_own_path(path: &Path, flags: OFlag) -> io::Result<File> {
    let flags = (flags | OFlag::O_NOFOLLOW).bits();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let found = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    match found == path {
        true => Ok(file),
        false => Err(Errno::ELOOP.into()),
    }
}

/// Reads a regular file as [`open_without_links`] opens it.
pub fn read_without_links(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_without_links(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Creates a file that must not exist, readable by its owner only.
pub fn fresh(path: &Path) -> io::Result<File> {
    let owner = other_owner(path)?;
    let file = options().write(true).create_new(true).open(path)?;
    give(&file, owner);
    Ok(file)
}

/// Returns the temporary name of a file that is being written.
fn draft(path: &Path) -> PathBuf {
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    path.with_file_name(format!(".{name}.{}", ids::new_ulid()))
}

/// Replaces a file. After a crash, the file has either the old or the new contents.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let fresh = draft(path);
    let mut file = self::fresh(&fresh)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    if let Err(error) = written.and_then(|()| fs::rename(&fresh, path)) {
        // On a full disk an incomplete file takes space from the next attempt.
        let _best_effort = fs::remove_file(&fresh);
        return Err(error);
    }
    sync_parent(path)
}

/// Makes the name of a file durable in its directory.
pub fn sync_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
}

/// Replaces a file with indented JSON.
pub fn replace_json<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    replace(path, &serde_json::to_vec_pretty(value)?)
}

/// Size in bytes of a file that [`keep_reserve`] prepares.
const RESERVE: usize = 8 * 1024;
/// Longest text in bytes that fits into a reserved file as JSON, regardless of its characters.
pub const RESERVED_TEXT: usize = 1024;

fn reserve_of(path: &Path) -> PathBuf {
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    path.with_file_name(format!("{name}.reserve"))
}

/// Prepares a file with written blocks, so that [`replace_reserved`] needs no free disk space.
pub fn keep_reserve(path: &Path) -> io::Result<()> {
    let reserve = reserve_of(path);
    match fs::metadata(&reserve) {
        Ok(kept) if kept.len() == RESERVE as u64 => Ok(()),
        Ok(_) | Err(_) => replace(&reserve, &[b' '; RESERVE]),
    }
}

/// Replaces a file with JSON. On a full disk it uses the blocks that [`keep_reserve`] prepared.
pub fn replace_reserved<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    let bytes = serde_json::to_vec(value)?;
    let Err(error) = replace(path, &bytes) else { return Ok(()) };
    let written = || {
        let mut file = OpenOptions::new().write(true).open(reserve_of(path))?;
        let blanks = RESERVE.checked_sub(bytes.len()).ok_or(io::ErrorKind::FileTooLarge)?;
        // JSON allows spaces after a document.
        file.write_all(&[bytes.as_slice(), &vec![b' '; blanks]].concat())?;
        file.sync_data()?;
        fs::rename(reserve_of(path), path)?;
        sync_parent(path)
    };
    written().map_err(|_no_reserve: io::Error| error)
}

/// Reads a JSON file. Returns `None` if the file does not exist.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes a file, if it exists.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _gone => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_cannot_be_replaced_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("x")).unwrap();
        assert!(replace(&dir.path().join("x"), b"y").is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_link_or_a_pipe_of_a_job_is_not_read() {
        let temporary = tempfile::tempdir().unwrap();
        let dir = fs::canonicalize(temporary.path()).unwrap();
        let (own, pipe) = (dir.join("own"), dir.join("pipe"));
        fs::create_dir(&own).unwrap();
        let own_file = own.join("file");
        fs::write(&own_file, "text").unwrap();
        assert_eq!(read_without_links(&own.join("file")).unwrap(), b"text");
        symlink(own.join("file"), dir.join("to-file")).unwrap();
        symlink(&own, dir.join("to-dir")).unwrap();
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        for path in [dir.join("to-file"), dir.join("to-dir/file"), pipe, own] {
            read_without_links(&path).unwrap_err();
        }
        // The same without the call of newer kernels.
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        open_at_own_path(&own_file, flags).unwrap();
        for path in [dir.join("to-file"), dir.join("to-dir/file")] {
            let error = open_at_own_path(&path, flags).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(Errno::ELOOP as i32), "{}", path.display());
        }
    }
}
