//! Blobs of one repository: fetches them, and writes each to a file.
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{BufRead as _, BufReader, Read as _},
    path::{Path, PathBuf},
};

use domain::git::{is_commit, without_userinfo};

use super::command::{Git, GitError};
use crate::plugins::{
    contract::Sink,
    plugin::{Halt, IoContext as _},
};

/// Maximum number of bytes that the repositories and blobs of one job occupy.
const DISK_LIMIT: u64 = 4 << 30;

/// Disk space that a job uses.
#[derive(Debug, Default)]
pub(super) struct Disk(u64);

impl Disk {
    /// Number of bytes that the job may still use.
    pub(super) fn left(&self) -> u64 {
        DISK_LIMIT.saturating_sub(self.0)
    }

    /// Adds used bytes.
    pub(super) fn add(&mut self, bytes: u64) -> Result<(), Halt> {
        self.0 = self.0.saturating_add(bytes);
        if self.0 <= DISK_LIMIT {
            return Ok(());
        }
        let detail = format!(
            "cannot fetch the source: its repositories are larger than {DISK_LIMIT} bytes; use smaller repositories, or \
             pass a local copy: --source REPO=PATH"
        );
        Err(Halt::exit(1, detail))
    }
}

/// Repository with its loaded blobs as files.
pub(super) struct Repository<'w, 'j> {
    pub git: Git<'w, 'j>,
    /// Address before any rewrite. Relative addresses of submodules refer to it.
    pub url: String,
    /// Directory with one file per loaded blob, named by its id.
    pub blobs: PathBuf,
    pub read: BTreeSet<String>,
    /// Blobs of the commit that are not fetched yet.
    pub missing: BTreeSet<String>,
}

impl Repository<'_, '_> {
    /// Writes blobs to files. Fetches those that the repository lacks.
    pub(super) async fn load(
        &mut self,
        ids: Vec<String>,
        disk: &mut Disk,
        sink: &mut dyn Sink,
    ) -> Result<(), Halt> {
        let new: BTreeSet<String> = ids.into_iter().filter(|id| !self.read.contains(id)).collect();
        if new.is_empty() {
            return Ok(());
        }
        let shown = without_userinfo(&self.url);
        let failed = |error: GitError| error.into_halt(&format!("cannot fetch files of {shown}"));
        let list: String = new.iter().map(|id| format!("{id}\n")).collect();
        let missing: String = new.intersection(&self.missing).map(|id| format!("{id}\n")).collect();
        if !missing.is_empty() {
            let fetch = [
                "-c",
                "fetch.negotiationAlgorithm=noop",
                "fetch",
                "--progress",
                "--no-tags",
                "--no-write-fetch-head",
                "--no-auto-gc",
                "--recurse-submodules=no",
                "--filter=blob:none",
                "--stdin",
                "--",
                "origin",
            ];
            let before = self.git.size()?;
            self.git.limit_files(disk.left());
            let fetched = self.git.output(&fetch, Some(missing.as_bytes()), sink).await;
            fetched.map_err(failed)?;
            disk.add(self.git.size()?.saturating_sub(before))?;
            self.missing.retain(|id| !new.contains(id));
        }
        // Checks the disk limit before git writes the blobs to a file.
        let sizes = self.sizes(&list, sink).await.map_err(failed)?;
        disk.add(sizes.values().fold(0, |sum: u64, size| sum.saturating_add(*size)))?;
        let batch = ["cat-file", "--batch"];
        let output = self.git.output_file(&batch, Some(list.as_bytes()), sink).await;
        split(&output.map_err(failed)?, &self.blobs)
            .doing(|| format!("cannot read files of {shown}"))?;
        self.read.extend(new);
        Ok(())
    }

    /// Returns the sizes of the listed objects that the repository contains.
    async fn sizes(
        &self,
        list: &str,
        sink: &mut dyn Sink,
    ) -> Result<BTreeMap<String, u64>, GitError> {
        let check = ["cat-file", "--batch-check"];
        let known = self.git.output(&check, Some(list.as_bytes()), sink).await?;
        let known = String::from_utf8_lossy(&known);
        let sizes = known.lines().filter_map(|line| {
            let (id, rest) = line.split_once(' ')?;
            let (_, size) = rest.split_once(' ')?;
            Some((id.to_owned(), size.parse().ok()?))
        });
        Ok(sizes.collect())
    }

    /// Returns a loaded blob. `None` if the blob exceeds the limit.
    pub(super) fn bytes(&self, id: &str, limit: u64) -> Result<Option<Vec<u8>>, Halt> {
        let path = self.blobs.join(id);
        let size = fs::metadata(&path).doing(|| format!("cannot read the blob {id}"))?.len();
        if size > limit {
            return Ok(None);
        }
        Ok(Some(fs::read(&path).doing(|| format!("cannot read the blob {id}"))?))
    }
}

/// Splits the output of `git cat-file --batch` into one file per blob.
fn split(output: &Path, into: &Path) -> std::io::Result<()> {
    let mut output = BufReader::new(File::open(output)?);
    let unexpected = |header: &str| {
        std::io::Error::other(format!("unexpected output of git: {:?}", header.trim_end()))
    };
    loop {
        let mut header = String::new();
        if output.read_line(&mut header)? == 0 {
            return Ok(());
        }
        let mut words = header.split_whitespace();
        let (Some(id), Some("blob"), Some(size)) = (words.next(), words.next(), words.next())
        else {
            return Err(unexpected(&header));
        };
        let size: u64 = size.parse().map_err(|_| unexpected(&header))?;
        if !is_commit(id) {
            return Err(unexpected(&header));
        }
        let mut file = File::create(into.join(id))?;
        if std::io::copy(&mut output.by_ref().take(size), &mut file)? != size {
            return Err(unexpected(&header));
        }
        let mut newline = [0];
        output.read_exact(&mut newline)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_of_a_job_has_one_limit() {
        let mut disk = Disk::default();
        assert!(disk.add(DISK_LIMIT - 1).is_ok());
        assert_eq!(disk.left(), 1);
        assert!(disk.add(1).is_ok());
        assert!(disk.add(1).is_err());
        assert_eq!(disk.left(), 0);
        assert!(Disk::default().add(u64::MAX).is_err());
    }
}
