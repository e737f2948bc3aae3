//! Packs a backup into one tar file.
use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use super::{BackupError, at, files};

/// Returns true if the path of a backup names a tar file.
pub(super) fn is_file(out: &Path) -> bool {
    out.extension().is_some_and(|extension| extension == "tar")
}

/// Lists a directory and its subdirectories.
pub(super) fn directories(backup: &Path) -> Result<BTreeSet<PathBuf>, BackupError> {
    let mut found = BTreeSet::from([backup.to_path_buf()]);
    for file in files::below(backup)? {
        let file = backup.join(file);
        let above = file.ancestors().skip(1).take_while(|above| above.starts_with(backup));
        found.extend(above.map(Path::to_path_buf));
    }
    Ok(found)
}

/// Packs all files of a backup into one tar file, and syncs the tar file.
pub(super) fn pack(backup: &Path, to: &Path) -> Result<(), BackupError> {
    let mut options = fs::OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(to);
    let mut archive = tar::Builder::new(file.map_err(at(to))?);
    for inner in files::below(backup)? {
        let path = backup.join(&inner);
        archive.append_path_with_name(&path, &inner).map_err(at(&path))?;
    }
    let file = archive.into_inner().map_err(at(to))?;
    file.sync_all().map_err(at(to))
}

/// Unpacks a tar file into a directory. The caller compares the files with the manifest.
pub(super) fn unpack(from: &Path, to: &Path) -> Result<(), BackupError> {
    let no_backup = |why: String| BackupError::Incomplete { path: from.display().to_string(), why };
    let file = fs::File::open(from).map_err(at(from))?;
    let mut archive = tar::Archive::new(io::BufReader::new(file));
    let entries = archive.entries().map_err(|why| no_backup(why.to_string()))?;
    for entry in entries {
        let mut entry = entry.map_err(|why| no_backup(why.to_string()))?;
        let name = entry.path().map(|path| path.to_string_lossy().into_owned());
        let name = name.map_err(|why| no_backup(why.to_string()))?;
        let inside = files::inside(&name).filter(|_| entry.header().entry_type().is_file());
        let Some(inside) = inside else {
            return Err(no_backup(format!("{name:?} is not a file of a backup")));
        };
        let path = to.join(inside);
        if let Some(above) = path.parent() {
            files::directory(above)?;
        }
        let mut options = fs::OpenOptions::new();
        let opened = options.write(true).create_new(true).mode(0o600).open(&path);
        let copied = io::copy(&mut entry, &mut opened.map_err(at(&path))?);
        copied.map_err(|why| no_backup(why.to_string()))?;
    }
    Ok(())
}
