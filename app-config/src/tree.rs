//! A directory as a value: paths and bytes.
//!
//! A bundle is a [`Tree`] in its only encoding, a tar archive with sorted paths, regular files
//! only, no owner and no time. The same files therefore always have the same digest. An archive in
//! any other form is rejected, not normalized.
use std::collections::BTreeMap;

use domain::digest::Digest;
use sha2::{Digest as _, Sha256};

mod archive;
mod bundle;
mod path;

pub use self::{
    archive::{Limits, TreeError},
    bundle::{APP, PLUGINS, PluginPin, SANDBOX, SOURCE},
};

/// A regular file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct File {
    pub bytes: Vec<u8>,
    pub executable: bool,
}

/// Files by path. Every path is relative, uses `/`, and stays inside the tree; see
/// [`Tree::insert`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tree(BTreeMap<String, File>);

impl Tree {
    /// Adds or replaces a file.
    ///
    /// # Errors
    /// If the path is absolute, too long, or has an empty, `.` or `..` part. If it contains a
    /// control character or a backslash, or is both a file and a directory.
    pub fn insert(&mut self, path: &str, file: File) -> Result<(), TreeError> {
        path::check(path)?;
        if self.clashes(path) {
            return Err(TreeError::FileAndDirectory(path.to_string()));
        }
        self.0.insert(path.to_string(), file);
        Ok(())
    }

    pub fn get(&self, path: &str) -> Option<&File> {
        self.0.get(path)
    }

    /// Text of the file. `None` if it is absent or not UTF-8.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.0.get(path).and_then(|file| std::str::from_utf8(&file.bytes).ok())
    }

    /// Paths and files in archive order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &File)> {
        self.0.iter().map(|(path, file)| (path.as_str(), file))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Files below `directory`, with paths relative to it. `""` and `"."` return all files.
    pub fn subtree(&self, directory: &str) -> Tree {
        let directory = directory.trim_start_matches("./").trim_end_matches('/');
        if directory.is_empty() || directory == "." {
            return self.clone();
        }
        let prefix = format!("{directory}/");
        let below =
            self.0.range(prefix.clone()..).take_while(|(path, _)| path.starts_with(&prefix));
        Tree(below.map(|(path, file)| (path[prefix.len()..].to_string(), file.clone())).collect())
    }

    /// Digest of the archive, which identifies the tree.
    ///
    /// # Errors
    /// As [`Tree::encode`].
    pub fn digest(&self) -> Result<Digest, TreeError> {
        Ok(sha256(&self.encode()?))
    }

    fn clashes(&self, path: &str) -> bool {
        let above = path.match_indices('/').any(|(at, _)| self.0.contains_key(&path[..at]));
        let prefix = format!("{path}/");
        let below = self.0.range(prefix.clone()..).next();
        above || below.is_some_and(|(other, _)| other.starts_with(&prefix))
    }
}

pub(crate) fn sha256(bytes: &[u8]) -> Digest {
    let text = format!("sha256:{}", hex::encode(Sha256::digest(bytes)));
    match text.parse() {
        Ok(digest) => digest,
        // 32 bytes in hexadecimal are always a valid digest.
        Err(_) => unreachable!("a SHA-256 in hexadecimal is a valid digest"),
    }
}

#[cfg(test)]
mod tests;
