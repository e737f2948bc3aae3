//! The only encoding of a tree: ustar, sorted, no owner, no time, regular files only.
use std::io::Read;

use tar::{Archive, Builder, EntryType, Header};

use super::{File, Tree, path};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub files: usize,
    pub file_bytes: u64,
    /// Size of the whole archive, including headers.
    pub archive_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { files: 20_000, file_bytes: 16 << 20, archive_bytes: 64 << 20 }
    }
}

/// Reasons to reject bytes as a bundle, or files as a tree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    #[error("invalid path {path:?}: {why}")]
    Path { path: String, why: &'static str },
    #[error("conflicting path {0:?}: both a file and a directory")]
    FileAndDirectory(String),
    #[error("the path {0:?} is too long for an archive; shorten it")]
    PathTooLong(String),
    #[error("{path:?} is a {kind}: a bundle contains only regular files")]
    NotAFile { path: String, kind: &'static str },
    #[error("too many files in the archive: the limit is {limit}; remove files")]
    TooManyFiles { limit: usize },
    #[error("the file {path:?} is too large: the limit is {limit_bytes} bytes; remove the file")]
    FileTooLarge { path: String, limit_bytes: u64 },
    #[error("the archive is too large: the limit is {limit_bytes} bytes; remove files")]
    TooLarge { limit_bytes: u64 },
    #[error("invalid tar archive: {0}")]
    Malformed(String),
    #[error("invalid bundle: the archive is not canonical (sorted paths, no owner, no time)")]
    NotCanonical,
    #[error("invalid {path}: {detail}")]
    Content { path: &'static str, detail: String },
}

impl Tree {
    /// Encodes the archive.
    ///
    /// # Errors
    /// If a path does not fit a ustar header (no `/` at a position where it can be split).
    pub fn encode(&self) -> Result<Vec<u8>, TreeError> {
        let mut builder = Builder::new(Vec::new());
        for (path, file) in self.iter() {
            let mut header = Header::new_ustar();
            header.set_path(path).map_err(|_| TreeError::PathTooLong(path::shown(path)))?;
            header.set_entry_type(EntryType::Regular);
            header.set_mode(if file.executable { 0o755 } else { 0o644 });
            header.set_uid(0);
            header.set_gid(0);
            header.set_mtime(0);
            header.set_size(file.bytes.len() as u64);
            header.set_cksum();
            builder.append(&header, file.bytes.as_slice()).map_err(malformed)?;
        }
        builder.into_inner().map_err(malformed)
    }

    /// Decodes an archive.
    ///
    /// # Errors
    /// If the archive is too large or malformed, has an unsafe or duplicate path, or contains
    /// anything but regular files. If any byte differs from the output of [`Tree::encode`].
    pub fn decode(bytes: &[u8], limits: Limits) -> Result<Tree, TreeError> {
        if bytes.len() as u64 > limits.archive_bytes {
            return Err(TreeError::TooLarge { limit_bytes: limits.archive_bytes });
        }
        let mut tree = Tree::default();
        let mut archive = Archive::new(bytes);
        for entry in archive.entries().map_err(malformed)?.raw(true) {
            let mut entry = entry.map_err(malformed)?;
            let path = String::from_utf8(entry.path_bytes().into_owned())
                .map_err(|_| TreeError::Malformed("a path is not UTF-8".into()))?;
            let shown = path::shown(&path);
            if let Some(kind) = other_than_file(entry.header().entry_type()) {
                return Err(TreeError::NotAFile { path: shown, kind });
            }
            if tree.len() >= limits.files {
                return Err(TreeError::TooManyFiles { limit: limits.files });
            }
            if entry.size() > limits.file_bytes {
                return Err(TreeError::FileTooLarge {
                    path: shown,
                    limit_bytes: limits.file_bytes,
                });
            }
            let executable = entry.header().mode().map_err(malformed)? & 0o100 != 0;
            // The buffer is not allocated with the size in the header, because the header may claim
            // more than the archive contains.
            let mut content = Vec::new();
            entry.read_to_end(&mut content).map_err(malformed)?;
            tree.insert(&path, File { bytes: content, executable })?;
        }
        // The comparison also detects duplicates, trailing bytes, unusual modes, owners and an
        // unsorted order.
        if tree.encode()? == bytes { Ok(tree) } else { Err(TreeError::NotCanonical) }
    }
}

fn other_than_file(kind: EntryType) -> Option<&'static str> {
    if kind == EntryType::Regular {
        None
    } else if kind.is_symlink() || kind.is_hard_link() {
        Some("link")
    } else if kind.is_dir() {
        Some("directory entry")
    } else {
        Some("special entry")
    }
}

fn malformed(error: std::io::Error) -> TreeError {
    TreeError::Malformed(error.to_string())
}
