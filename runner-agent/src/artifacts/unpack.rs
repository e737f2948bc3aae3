//! Unpacks an untrusted tar into one directory.

use std::{
    cell::Cell,
    fs::{self, OpenOptions},
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::{Component, Path},
};

use super::{ArtifactError, Context};

/// Largest size of the headers of one entry in bytes, with its long path and its extensions. They are
/// read into memory.
const MAX_HEADERS: u64 = 1 << 20;

#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Maximum total size of all files, in bytes.
    pub bytes: u64,
    /// Maximum number of files and directories.
    pub entries: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { bytes: 2 << 30, entries: 100_000 }
    }
}

/// Unpacks into `dir`, an empty directory of the job. Never overwrites a file and never creates a
/// link, so no entry can redirect a later one to another directory.
///
/// # Errors
/// Rejects links, devices, absolute paths, `..`, repeated files, and archives that exceed the
/// limits.
pub fn unpack(tar: impl Read, dir: &Path, limits: Limits) -> Result<(), ArtifactError> {
    let left = Cell::new(MAX_HEADERS);
    let mut archive = tar::Archive::new(Metered { inner: tar, left: &left });
    let reading = || "cannot read the archive of the artifact".to_owned();
    let mut all = archive.entries().context(reading)?;
    let (mut bytes, mut entries) = (0_u64, 0_u64);
    loop {
        left.set(MAX_HEADERS);
        let next = all.next();
        if left.get() == 0 {
            return Err(ArtifactError::TooLarge { limit: MAX_HEADERS, unit: "bytes of headers" });
        }
        let Some(entry) = next else { return Ok(()) };
        let mut entry = entry.context(reading)?;
        left.set(u64::MAX);
        entries += 1;
        if entries > limits.entries {
            return Err(ArtifactError::TooLarge { limit: limits.entries, unit: "entries" });
        }
        let path = entry
            .path()
            .context(|| "cannot read a path in the archive of the artifact".into())?
            .into_owned();
        let hostile = |why| ArtifactError::Hostile { path: path.display().to_string(), why };
        if !path.components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir)) {
            return Err(hostile("the path leaves the directory"));
        }
        let target = dir.join(&path);
        let header = entry.header();
        let mode = if header.mode().unwrap_or(0) & 0o100 != 0 { 0o755 } else { 0o644 };
        let kind = header.entry_type();
        if kind.is_dir() {
            fs::create_dir_all(&target).context(|| format!("cannot create {}", path.display()))?;
            continue;
        }
        if !kind.is_file() {
            return Err(hostile("the entry is not a regular file or a directory"));
        }
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent).context(|| format!("cannot create {}", parent.display()))?;
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&target)
            .context(|| format!("cannot create {}", path.display()))?;
        // The size in the header is not trusted. Reading one byte over the limit is enough to
        // reject the archive.
        let left = limits.bytes - bytes;
        bytes += io::copy(&mut entry.by_ref().take(left + 1), &mut file)
            .context(|| format!("cannot write {}", path.display()))?;
        if bytes > limits.bytes {
            return Err(ArtifactError::TooLarge { limit: limits.bytes, unit: "bytes" });
        }
    }
}

/// Reader that ends after a number of bytes.
struct Metered<'l, R> {
    inner: R,
    left: &'l Cell<u64>,
}

impl<R: Read> Read for Metered<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.left.get()).unwrap_or(usize::MAX);
        let most = into.len().min(left);
        let read = self.inner.read(&mut into[..most])?;
        self.left.set(self.left.get() - read as u64);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::artifacts::pack;

    fn tar_of(kind: tar::EntryType, path: &str, size: usize) -> Vec<u8> {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(kind);
        header.set_size(size as u64);
        header.set_mode(0o644);
        // Writes the bytes directly, because `set_path` rejects the paths of an attacker.
        header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
        header.set_cksum();
        let mut builder = tar::Builder::new(Vec::new());
        builder.append(&header, vec![b'x'; size].as_slice()).unwrap();
        builder.into_inner().unwrap()
    }

    fn rejection_of(tar: &[u8]) -> String {
        let outside = tempfile::tempdir().unwrap();
        let dir = outside.path().join("in");
        fs::create_dir(&dir).unwrap();
        let rejection =
            unpack(tar, &dir, Limits { bytes: 100, entries: 3 }).unwrap_err().to_string();
        assert_eq!(
            fs::read_dir(outside.path()).unwrap().count(),
            1,
            "the archive wrote outside the directory"
        );
        rejection
    }

    #[test]
    fn unpack_restores_the_packed_files() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir(from.path().join("d")).unwrap();
        fs::write(from.path().join("d/a"), "hello").unwrap();
        let mut tar = Vec::new();
        pack(from.path(), &mut tar).unwrap();
        unpack(tar.as_slice(), to.path(), Limits::default()).unwrap();
        assert_eq!(fs::read(to.path().join("d/a")).unwrap(), b"hello");
    }

    #[test]
    fn rejects_paths_outside_the_directory_and_links() {
        let regular = tar::EntryType::Regular;
        for path in ["../x", "/tmp/x", "a/../../x"] {
            assert!(rejection_of(&tar_of(regular, path, 1)).starts_with("cannot unpack"), "{path}");
        }
        for kind in [tar::EntryType::Symlink, tar::EntryType::Link, tar::EntryType::Fifo] {
            assert!(rejection_of(&tar_of(kind, "x", 0)).starts_with("cannot unpack"), "{kind:?}");
        }
    }

    #[test]
    fn rejects_archives_above_the_limits() {
        let too_large = rejection_of(&tar_of(tar::EntryType::Regular, "x", 101));
        assert_eq!(too_large, "cannot use the artifact: it exceeds the limit of 100 bytes");
    }

    #[test]
    fn rejects_headers_above_the_limit() {
        for kind in [tar::EntryType::GNULongName, tar::EntryType::XHeader] {
            let too_large = rejection_of(&tar_of(kind, "x", 2 << 20));
            assert!(too_large.ends_with("1048576 bytes of headers"), "{kind:?}: {too_large}");
        }
    }
}
