//! Copies files into a backup, measures them and syncs them to the disk.
use std::{
    fs,
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Component, Path, PathBuf},
};

use sha2::{Digest as _, Sha256};

use super::{BackupError, File, PARTIAL, at};

/// Returns true for the path of an incomplete backup.
pub(super) fn is_partial(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    name.as_encoded_bytes().ends_with(PARTIAL.as_bytes())
}

/// Creates a directory and its missing parents with mode 0700.
pub(super) fn directory(path: &Path) -> Result<(), BackupError> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(at(path))
}

/// Creates a directory with mode 0700. An existing directory must have this mode and belong to this
/// user. Otherwise, other users could read its files, or redirect them through a symbolic link.
pub(super) fn private_directory(path: &Path) -> Result<(), BackupError> {
    if let Some(above) = path.parent().filter(|above| !above.as_os_str().is_empty()) {
        directory(above)?;
    }
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => return Ok(()),
        Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {}
        Err(why) => return Err(at(path)(why)),
    }
    let metadata = fs::symlink_metadata(path).map_err(at(path))?;
    let is_own = metadata.uid() == nix::unistd::geteuid().as_raw();
    if metadata.is_dir() && is_own && metadata.mode() & 0o777 == 0o700 {
        return Ok(());
    }
    Err(BackupError::NotPrivate { path: path.display().to_string() })
}

/// Writes a new file with mode 0600 and syncs it.
pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<(), BackupError> {
    let mut file = new(path)?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(at(path))
}

/// Creates a new file that only its owner can access, regardless of the umask.
pub(super) fn new(path: &Path) -> Result<fs::File, BackupError> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(path).map_err(at(path))
}

/// Syncs a file, or the entries of a directory.
pub(super) fn sync(path: &Path) -> Result<(), BackupError> {
    fs::File::open(path).and_then(|open| open.sync_all()).map_err(at(path))
}

/// Copies a file and computes its length and digest.
pub(super) fn copy(from: &Path, to: &Path, name: &str) -> Result<File, BackupError> {
    if let Some(above) = to.parent() {
        directory(above)?;
    }
    let mut target = new(to)?;
    let measured = measure(from, name, |bytes| target.write_all(bytes).map_err(at(to)))?;
    target.sync_all().map_err(at(to))?;
    Ok(measured)
}

/// Returns the length and digest of a file. Passes its bytes to `on_chunk`.
pub(super) fn measure(
    path: &Path,
    name: &str,
    mut on_chunk: impl FnMut(&[u8]) -> Result<(), BackupError>,
) -> Result<File, BackupError> {
    let mut source = fs::File::open(path).map_err(at(path))?;
    let (mut hasher, mut bytes, mut buffer) = (Sha256::new(), 0_u64, vec![0; 1 << 18]);
    loop {
        let read = match source.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => &buffer[..read],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(at(path)(error)),
        };
        hasher.update(read);
        bytes += read.len() as u64;
        on_chunk(read)?;
    }
    let digest = format!("sha256:{}", hex::encode(hasher.finalize()));
    Ok(File { path: name.into(), bytes, digest })
}

/// Lists the files below a directory, by their relative paths. The files of a directory come before
/// the files of its subdirectories, so that an index is copied before the files that the index
/// lists. Skips incomplete files, whose names begin with a dot or end with `.new`.
pub(super) fn list_files(directory: &Path) -> Result<Vec<PathBuf>, BackupError> {
    let (mut paths, mut waiting) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(inner) = waiting.pop() {
        let here = directory.join(&inner);
        let (mut files, mut directories) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(&here).map_err(at(&here))? {
            let entry = entry.map_err(at(&here))?;
            let (name, kind) = (entry.file_name(), entry.file_type().map_err(at(&here))?);
            let leaves = name.to_string_lossy();
            let draft = leaves.starts_with('.') || leaves.ends_with(".new");
            match (kind.is_dir(), kind.is_file() && !draft) {
                (true, _) if !leaves.starts_with('.') => directories.push(inner.join(name)),
                (_, true) => files.push(inner.join(name)),
                (_, false) => {}
            }
        }
        files.sort();
        directories.sort();
        paths.extend(files);
        waiting.extend(directories.into_iter().rev());
    }
    Ok(paths)
}

/// Converts a path in a manifest to a relative path. Returns `None` if the path could leave the
/// directory.
pub(super) fn relative_path(name: &str) -> Option<PathBuf> {
    let path = PathBuf::from(name);
    let is_relative = path.components().all(|part| matches!(part, Component::Normal(_)));
    (is_relative && !name.is_empty()).then_some(path)
}

/// Changes the owner of the restored files to the owner of the data directory if root restores for
/// a service user.
pub(super) fn set_owner(data: &Path, names: &[&str]) -> Result<(), BackupError> {
    if !nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    let owner = fs::metadata(data).map_err(at(data))?;
    let (uid, gid) = (Some(owner.uid()), Some(owner.gid()));
    let mut waiting: Vec<_> = names.iter().map(|name| data.join(name)).collect();
    while let Some(path) = waiting.pop() {
        // Never follows a symbolic link, because the target of the link may belong to another user.
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        std::os::unix::fs::lchown(&path, uid, gid).map_err(at(&path))?;
        if metadata.is_dir() {
            for entry in fs::read_dir(&path).map_err(at(&path))? {
                waiting.push(entry.map_err(at(&path))?.path());
            }
        }
    }
    Ok(())
}
