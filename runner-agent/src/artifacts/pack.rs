//! Packs a directory into a deterministic tar: equal files give equal bytes on every host.

use std::{
    fs,
    io::Write,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use oci_layout::{Blob, Layout};

use super::{ArtifactError, Context, LAYER_TYPE};

/// Packs regular files, sorted by path, without times and owners, with mode 0644 or 0755.
///
/// # Errors
/// Rejects symbolic links and special files, because their meaning depends on the host. Also fails
/// for a name that is not UTF-8, a path that is too long for a tar header, and an I/O error.
pub fn pack(dir: &Path, into: impl Write) -> Result<(), ArtifactError> {
    let mut files = Vec::new();
    collect(dir, Path::new(""), &mut files)?;
    files.sort();
    let mut tar = tar::Builder::new(into);
    for path in files {
        let bytes = fs::read(dir.join(&path)).context(|| format!("cannot read {path}"))?;
        let executable = fs::metadata(dir.join(&path))
            .context(|| format!("cannot read {path}"))?
            .permissions()
            .mode()
            & 0o100
            != 0;
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(tar::EntryType::Regular);
        header.set_size(bytes.len() as u64);
        header.set_mode(if executable { 0o755 } else { 0o644 });
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
        header.set_path(&path).map_err(|_| ArtifactError::Unpackable {
            path: path.clone(),
            why: "its path does not fit into a tar header; use a shorter path",
        })?;
        header.set_cksum();
        tar.append(&header, bytes.as_slice()).context(|| format!("cannot pack {path}"))?;
    }
    tar.into_inner()
        .and_then(|mut done| done.flush())
        .context(|| "cannot finish the archive of the artifact".into())
}

/// Stores a directory in the layout as the layer of a component.
///
/// # Errors
/// The errors of [`pack`], and a blob that cannot be written.
pub fn pack_into(layout: &Layout, dir: &Path) -> Result<Blob, ArtifactError> {
    let mut writer = layout.writer(u64::MAX)?;
    pack(dir, &mut writer)?;
    let (media_type, size) = (LAYER_TYPE.into(), writer.length());
    Ok(Blob { media_type, digest: writer.finish(None)?, size })
}

fn collect(root: &Path, below: &Path, files: &mut Vec<String>) -> Result<(), ArtifactError> {
    let dir = root.join(below);
    for entry in fs::read_dir(&dir).context(|| format!("cannot list {}", dir.display()))? {
        let entry = entry.context(|| format!("cannot list {}", dir.display()))?;
        let path: PathBuf = below.join(entry.file_name());
        let name = path.to_str().ok_or_else(|| ArtifactError::Unpackable {
            path: path.display().to_string(),
            why: "its name is not UTF-8; rename the file",
        })?;
        let kind = entry.file_type().context(|| format!("cannot read {name}"))?;
        if kind.is_dir() {
            collect(root, &path, files)?;
        } else if kind.is_file() {
            files.push(name.to_owned());
        } else {
            let why = "it is not a regular file or a directory; replace it with a regular file";
            return Err(ArtifactError::Unpackable { path: name.to_owned(), why });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{fs::File, time::SystemTime};

    use super::*;

    fn packed(dir: &Path) -> Vec<u8> {
        let mut tar = Vec::new();
        pack(dir, &mut tar).unwrap();
        tar
    }

    #[test]
    fn equal_files_give_equal_archives() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (dir, names) in [(&one, ["a", "b/c", "b.d"]), (&two, ["b.d", "b/c", "a"])] {
            for name in names {
                let path = dir.path().join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(&path, name).unwrap();
            }
        }
        let past = SystemTime::UNIX_EPOCH;
        File::options().write(true).open(two.path().join("a")).unwrap().set_modified(past).unwrap();
        assert_eq!(packed(one.path()), packed(two.path()));
    }

    #[test]
    fn rejects_symbolic_links() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/etc/hostname", dir.path().join("link")).unwrap();
        let rejection = pack(dir.path(), Vec::new()).unwrap_err().to_string();
        assert_eq!(
            rejection,
            "cannot pack link: it is not a regular file or a directory; replace it with a regular file"
        );
    }
}
