//! Disk budget of a layout. [`Layout::prune`] removes the least recently used artifacts first.
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

/// Minimum age at which an unreferenced blob is removed. A younger blob may belong to an artifact
/// that is still being pulled.
const MIN_UNREFERENCED_AGE: Duration = Duration::from_secs(3600);
/// Maximum number of corrupt blobs that stay on disk for examination.
const MAX_QUARANTINED: usize = 4;

/// Limits of [`Layout::prune`].
#[derive(Debug, Clone, Copy)]
pub struct Pruning<'u> {
    /// Bytes into which the artifacts must fit. More remain if the other limits require it.
    pub budget: u64,
    /// Artifacts that stay.
    pub used: &'u BTreeSet<Digest>,
    /// Artifacts and blobs that were used or renewed within this time stay. Blobs stay for at least
    /// one hour.
    pub min_age: Duration,
    /// Number of most recently used versions of each repository that stay.
    pub kept_versions: usize,
    pub now: SystemTime,
}

impl Pruning<'_> {
    fn is_recent(&self, used_at: SystemTime, age: Duration) -> bool {
        // A time in the future is recent, too.
        self.now.duration_since(used_at).map_or(true, |elapsed| elapsed <= age)
    }

    fn removes_blob(&self, used_at: SystemTime) -> bool {
        !self.is_recent(used_at, self.min_age.max(MIN_UNREFERENCED_AGE))
    }
}

impl Layout {
    /// Returns the total bytes of all blobs.
    ///
    /// # Errors
    /// Fails if the directory cannot be read.
    pub fn blobs_size(&self) -> Result<u64, LayoutError> {
        Ok(files(&self.blobs())?.iter().map(|file| file.bytes).sum())
    }

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

    /// Removes the least recently used artifacts from the index until the rest fits into the budget.
    /// Then deletes old files: unreferenced blobs, incomplete downloads, and corrupt blobs. Returns
    /// the number of deleted bytes.
    ///
    /// # Errors
    /// Fails if the layout cannot be read or written.
    pub fn prune(&self, limits: &Pruning<'_>) -> Result<u64, LayoutError> {
        let Pruning { budget, used, min_age, kept_versions, now: _ } = *limits;
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
        for (at, manifest) in newest {
            let count = versions.entry(manifest.repository()).or_default();
            *count += 1;
            let stays = *count <= kept_versions
                || used.contains(&manifest.digest)
                || (!min_age.is_zero() && limits.is_recent(at, min_age));
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
        self.remove_unreferenced(&referenced, limits)
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
        limits: &Pruning<'_>,
    ) -> Result<u64, LayoutError> {
        let mut removed = 0;
        for file in files(&self.blobs())? {
            if !referenced.contains(&file.name) && limits.removes_blob(file.at) {
                removed += self.remove_blob(&file.name, limits)?;
            }
        }
        let mut corrupt = files(&self.quarantine_dir())?;
        corrupt.sort_by_key(|file| std::cmp::Reverse(file.at));
        let corrupt =
            corrupt.into_iter().skip(MAX_QUARANTINED).map(|file| (self.quarantine_dir(), file));
        let incomplete = self.incomplete()?.into_iter();
        let incomplete = incomplete.filter(|file| limits.removes_blob(file.at));
        let incomplete = incomplete.map(|file| (self.drafts().to_owned(), file));
        for (dir, file) in corrupt.chain(incomplete) {
            fs::remove_file(dir.join(&file.name))
                .context(|| format!("cannot remove the blob {}", file.name))?;
            removed += file.bytes;
        }
        Ok(removed)
    }

    /// Deletes an old blob. An upload can publish the blob again at any time, without the lock. So
    /// the blob is renamed first, and comes back if the file of that name was a new one.
    fn remove_blob(&self, name: &str, limits: &Pruning<'_>) -> Result<u64, LayoutError> {
        let context = || format!("cannot remove the blob {name}");
        let path = self.blobs().join(name);
        let renamed = self.drafts().join(format!(".tmp-removed-{name}"));
        fs::rename(&path, &renamed).context(context)?;
        let metadata = fs::metadata(&renamed).context(context)?;
        if limits.removes_blob(metadata.modified().context(context)?) {
            fs::remove_file(&renamed).context(context)?;
            return Ok(metadata.len());
        }
        fs::rename(&renamed, &path).context(context)?;
        Ok(0)
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

    fn prune(layout: &Layout, budget: u64, used: &BTreeSet<Digest>) -> u64 {
        let (min_age, now) = (Duration::ZERO, SystemTime::now());
        layout.prune(&Pruning { budget, used, min_age, kept_versions: 2, now }).unwrap()
    }

    #[test]
    fn a_blob_that_is_uploaded_again_during_its_removal_stays() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        let digest = layout.put(b"new").unwrap();
        let used = BTreeSet::new();
        let (min_age, now) = (Duration::ZERO, SystemTime::now());
        let limits = Pruning { budget: 0, used: &used, min_age, kept_versions: 0, now };
        assert_eq!(layout.remove_blob(&hex_of(&digest), &limits).unwrap(), 0);
        assert!(layout.has(&digest));
        let later = Pruning { now: now + 2 * MIN_UNREFERENCED_AGE, ..limits };
        assert_eq!(layout.remove_blob(&hex_of(&digest), &later).unwrap(), 3);
        assert!(!layout.has(&digest));
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
        assert!(prune(&layout, 1, &used) > 2_000);
        let left = |digest: &Digest| layout.complete(digest);
        assert_eq!(api.iter().map(left).collect::<Vec<_>>(), [true, true, false, false, true]);
        assert!(web.iter().all(left), "two versions stay, however old they are");
        assert_eq!(layout.index().unwrap().manifests().len(), 5);
        // With an unlimited budget, `prune` removes nothing else.
        assert_eq!(prune(&layout, u64::MAX, &used), 0);
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
        assert_eq!(prune(&layout, 0, &BTreeSet::new()), 3 + 4);
        assert!(layout.has(&arriving) && !layout.has(&left));
        assert!(active.exists() && !killed.exists());
        assert_eq!(layout.size().unwrap(), before - 7);
    }
}
