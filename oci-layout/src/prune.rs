//! Disk budget of a layout. [`Layout::prune`] removes the least recently used artifacts first and
//! keeps the two most recently used versions of each repository.
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    time::{Duration, SystemTime},
};

use domain::digest::Digest;
use oci_spec::image::Descriptor;

use crate::{
    Blob, Document, Layout, LayoutError, digest::hex_of, error::Context as _, layout::REPOSITORY,
};

/// Number of most recently used versions of each repository that [`Layout::prune`] keeps regardless
/// of the budget.
const KEPT_VERSIONS: usize = 2;
/// Minimum age at which an unreferenced blob is removed. A younger blob may belong to an artifact
/// that is still being pulled.
const MIN_UNREFERENCED_AGE: Duration = Duration::from_secs(3600);
/// Maximum number of corrupt blobs that stay on disk for examination.
const MAX_QUARANTINED: usize = 4;

impl Layout {
    /// Returns the total bytes of blobs, corrupt blobs and incomplete downloads.
    ///
    /// # Errors
    /// Fails if the directory cannot be read.
    pub fn size(&self) -> Result<u64, LayoutError> {
        let all = [files(&self.blobs())?, files(&self.quarantine_dir())?, self.incomplete()?];
        Ok(all.iter().flatten().map(|file| file.bytes).sum())
    }

    /// Marks an artifact as used at this time.
    pub fn touch(&self, digest: &Digest, now: SystemTime) {
        // Best effort: only the order of removal depends on this time.
        let file = fs::File::open(self.path(digest));
        let _best_effort = file.and_then(|file| file.set_modified(now));
    }

    /// Removes the least recently used artifacts from the index until the rest fits into `budget`
    /// bytes. Always keeps the two most recently used versions of each repository and the artifacts
    /// in `used`. Then deletes old files: unreferenced blobs, incomplete downloads, and corrupt
    /// blobs. Returns the number of deleted bytes.
    ///
    /// # Errors
    /// Fails if the layout cannot be read or written.
    pub fn prune(
        &self,
        budget: u64,
        used: &BTreeSet<Digest>,
        now: SystemTime,
    ) -> Result<u64, LayoutError> {
        let _lock = self.lock()?;
        let mut index = self.index()?;
        let mut newest: Vec<(SystemTime, Listed)> = Vec::new();
        for descriptor in index.manifests().clone() {
            // Drops an entry without a SHA-256 digest or without a stored manifest.
            let Ok(Blob { digest, .. }) = Blob::try_from(&descriptor) else { continue };
            if let Ok(at) = fs::metadata(self.path(&digest)).and_then(|of| of.modified()) {
                newest.push((at, Listed { digest, descriptor }));
            }
        }
        newest.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        let (mut required, mut optional) = (Vec::new(), Vec::new());
        let mut versions: BTreeMap<String, usize> = BTreeMap::new();
        for (_, manifest) in newest {
            let count = versions.entry(manifest.repository()).or_default();
            *count += 1;
            let stays = *count <= KEPT_VERSIONS || used.contains(&manifest.digest);
            if stays { required.push(manifest) } else { optional.push(manifest) }
        }
        let mut referenced = self.referenced(required.iter(), used);
        let mut total = self.bytes_of(&referenced)?;
        for manifest in optional {
            let more = self.referenced([&manifest].into_iter(), &BTreeSet::new());
            let more: BTreeSet<_> = more.difference(&referenced).cloned().collect();
            let bytes = self.bytes_of(&more)?;
            if total + bytes > budget {
                // Older artifacts are removed as well, even if they would fit.
                break;
            }
            total += bytes;
            referenced.extend(more);
            required.push(manifest);
        }
        index.set_manifests(required.into_iter().map(|manifest| manifest.descriptor).collect());
        self.write_index(&index)?;
        self.remove_unreferenced(&referenced, now)
    }

    /// Returns the file names of the manifests and blobs of these artifacts, and of the artifacts
    /// in `used`.
    fn referenced<'m>(
        &self,
        manifests: impl Iterator<Item = &'m Listed>,
        used: &BTreeSet<Digest>,
    ) -> BTreeSet<String> {
        let mut referenced = BTreeSet::new();
        for digest in manifests.map(|manifest| &manifest.digest).chain(used) {
            referenced.insert(hex_of(digest));
            let Ok(document) = self.document(digest) else { continue };
            referenced.extend(document.blobs().map(|blob| hex_of(&blob.digest)));
            if let Document::List(list) = &document {
                let listed = list.images().iter();
                let manifests = listed.filter_map(|image| self.manifest(&image.blob.digest).ok());
                for manifest in manifests {
                    referenced.extend(manifest.blobs().map(|blob| hex_of(&blob.digest)));
                }
            }
        }
        referenced
    }

    fn bytes_of(&self, names: &BTreeSet<String>) -> Result<u64, LayoutError> {
        let all = files(&self.blobs())?;
        Ok(all.iter().filter(|file| names.contains(&file.name)).map(|file| file.bytes).sum())
    }

    /// Returns files that are being written, and files that a killed process left behind.
    fn incomplete(&self) -> Result<Vec<File>, LayoutError> {
        let mut files = files(self.drafts())?;
        files.retain(|file| file.name.starts_with(".tmp"));
        Ok(files)
    }

    fn remove_unreferenced(
        &self,
        referenced: &BTreeSet<String>,
        now: SystemTime,
    ) -> Result<u64, LayoutError> {
        let is_old =
            |file: &File| now.duration_since(file.at).is_ok_and(|age| age > MIN_UNREFERENCED_AGE);
        let mut removed = 0;
        let unreferenced =
            files(&self.blobs())?.into_iter().filter(|file| !referenced.contains(&file.name));
        let mut corrupt = files(&self.quarantine_dir())?;
        corrupt.sort_by_key(|file| std::cmp::Reverse(file.at));
        let corrupt =
            corrupt.into_iter().skip(MAX_QUARANTINED).map(|file| (self.quarantine_dir(), file));
        let incomplete = self.incomplete()?.into_iter().filter(is_old);
        let incomplete = incomplete.map(|file| (self.drafts().to_owned(), file));
        let unreferenced = unreferenced.filter(is_old).map(|file| (self.blobs(), file));
        for (dir, file) in unreferenced.chain(corrupt).chain(incomplete) {
            fs::remove_file(dir.join(&file.name))
                .context(|| format!("cannot remove the blob {}", file.name))?;
            removed += file.bytes;
        }
        Ok(removed)
    }
}

struct Listed {
    digest: Digest,
    descriptor: Descriptor,
}

impl Listed {
    fn repository(&self) -> String {
        let annotations = self.descriptor.annotations().as_ref();
        annotations.and_then(|all| all.get(REPOSITORY)).cloned().unwrap_or_default()
    }
}

struct File {
    name: String,
    bytes: u64,
    at: SystemTime,
}

fn files(dir: &Path) -> Result<Vec<File>, LayoutError> {
    if !dir.exists() {
        return Ok(Vec::new());
    }
    let entries = fs::read_dir(dir).context(|| format!("cannot read {}", dir.display()))?;
    let file = |entry: fs::DirEntry| {
        let (name, of) = (entry.file_name().into_string().ok()?, entry.metadata().ok()?);
        Some(File { name, bytes: of.len(), at: of.modified().ok()? })
    };
    Ok(entries.filter_map(Result::ok).filter_map(file).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EMPTY, manifest::tests::manifest};

    /// Stores an artifact that was last used `hours` + 2 hours ago.
    fn artifact(layout: &Layout, repository: &str, content: u8, hours: u64) -> Digest {
        let layer = vec![content; 1000];
        let bytes = manifest(&layer).to_bytes().unwrap();
        let (layer, empty) = (layout.put(&layer).unwrap(), layout.put(EMPTY).unwrap());
        let digest = layout.put(&bytes).unwrap();
        layout.add_to_index(repository, &digest).unwrap();
        let then = SystemTime::now() - Duration::from_secs(3600 * (hours + 2));
        for blob in [&layer, &empty, &digest] {
            fs::File::open(layout.path(blob)).unwrap().set_modified(then).unwrap();
        }
        digest
    }

    #[test]
    fn prune_keeps_two_versions_of_each_component() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        let api: Vec<_> =
            (0..5).map(|at| artifact(&layout, "a/api", at, 50 - u64::from(at))).collect();
        let web: Vec<_> = (5..7).map(|at| artifact(&layout, "a/web", at, 99)).collect();
        // Version 0 is used again, as after a rollback, and an open job uses version 1.
        layout.touch(&api[0], SystemTime::now());
        let used = BTreeSet::from([api[1].clone()]);
        assert!(layout.prune(1, &used, SystemTime::now()).unwrap() > 2_000);
        let left = |digest: &Digest| layout.complete(digest);
        assert_eq!(api.iter().map(left).collect::<Vec<_>>(), [true, true, false, false, true]);
        assert!(web.iter().all(left), "two versions stay, however old they are");
        assert_eq!(layout.index().unwrap().manifests().len(), 5);
        // With an unlimited budget, `prune` removes nothing else.
        assert_eq!(layout.prune(u64::MAX, &used, SystemTime::now()).unwrap(), 0);
    }

    #[test]
    fn prune_keeps_recent_downloads() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        let (arriving, left) = (layout.put(b"new").unwrap(), layout.put(b"old").unwrap());
        let then = SystemTime::now() - 2 * MIN_UNREFERENCED_AGE;
        fs::File::open(layout.path(&left)).unwrap().set_modified(then).unwrap();
        // One active download, and one whose process was killed.
        let (active, killed) = (layout.drafts().join(".tmpA"), layout.drafts().join(".tmpB"));
        for path in [&active, &killed] {
            fs::write(path, "part").unwrap();
        }
        fs::File::open(&killed).unwrap().set_modified(then).unwrap();
        let before = layout.size().unwrap();
        assert_eq!(layout.prune(0, &BTreeSet::new(), SystemTime::now()).unwrap(), 3 + 4);
        assert!(layout.has(&arriving) && !layout.has(&left));
        assert!(active.exists() && !killed.exists());
        assert_eq!(layout.size().unwrap(), before - 7);
    }
}
