//! Renewal of artifacts and blobs: [`Layout::prune`] does not remove them for a while.
//!
//! A process that finds content in a layout, and then records that it uses the content, renews it
//! first. Both operations hold the lock of the index, so the content is either renewed in time or
//! not found.
use std::{fs::File, io::ErrorKind, time::SystemTime};

use domain::digest::Digest;

use crate::{Layout, LayoutError, error::Context as _};

impl Layout {
    /// Marks an artifact as used at this time. Returns false if the layout does not have it with all
    /// its blobs.
    ///
    /// # Errors
    /// Fails if the layout cannot be read or written.
    pub fn renew(
        &self,
        repository: &str,
        digest: &Digest,
        now: SystemTime,
    ) -> Result<bool, LayoutError> {
        if !self.exists() {
            return Ok(false);
        }
        let lock = self.lock()?;
        if !self.complete(digest) || self.set_used(digest, now)?.is_none() {
            return Ok(false);
        }
        // A removal that failed in its middle leaves an artifact without its entry.
        self.add_locked(repository, digest, &lock)?;
        Ok(true)
    }

    /// Marks a blob as used at this time. Returns its size, or `None` if the layout does not have it.
    ///
    /// # Errors
    /// Fails if the blob cannot be read or written.
    pub fn renew_blob(&self, digest: &Digest, now: SystemTime) -> Result<Option<u64>, LayoutError> {
        if !self.exists() {
            return Ok(None);
        }
        let _lock = self.lock()?;
        self.set_used(digest, now)
    }

    /// Returns true if the layout has a directory of blobs. A lock would create it.
    fn exists(&self) -> bool {
        self.blobs().is_dir()
    }

    fn set_used(&self, digest: &Digest, now: SystemTime) -> Result<Option<u64>, LayoutError> {
        let context = || format!("cannot renew the blob {digest}");
        let file = match File::open(self.path(digest)) {
            Err(gone) if gone.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened.context(context)?,
        };
        file.set_modified(now).context(context)?;
        Ok(Some(file.metadata().context(context)?.len()))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        sync::atomic::{AtomicBool, Ordering},
        time::Duration,
    };

    use super::*;
    use crate::{EMPTY, manifest::tests::manifest, prune::Pruning};

    const AGE: Duration = Duration::from_secs(2 * 3600);

    /// Stores an artifact, all of whose files are older than [`AGE`].
    fn old_artifact(layout: &Layout, content: &[u8]) -> Digest {
        let bytes = manifest(content).to_bytes().unwrap();
        let blobs = [content, EMPTY, bytes.as_slice()].map(|blob| layout.put(blob).unwrap());
        layout.add_to_index("shop/web", &blobs[2]).unwrap();
        for blob in &blobs {
            let file = File::open(layout.path(blob)).unwrap();
            file.set_modified(SystemTime::now() - 2 * AGE).unwrap();
        }
        blobs[2].clone()
    }

    fn prune(layout: &Layout) -> u64 {
        let used = BTreeSet::new();
        let now = SystemTime::now();
        layout
            .prune(&Pruning { budget: 0, used: &used, min_age: AGE, kept_versions: 0, now })
            .unwrap()
    }

    #[test]
    fn a_renewed_artifact_stays_with_its_blobs() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        let digests = [1, 2].map(|content| old_artifact(&layout, &[content; 100]));
        assert!(layout.renew("shop/web", &digests[0], SystemTime::now()).unwrap());
        prune(&layout);
        assert!(layout.complete(&digests[0]) && !layout.has(&digests[1]));
        let renewed = layout.renew("shop/web", &digests[1], SystemTime::now());
        assert!(!renewed.unwrap(), "a removed artifact cannot be renewed");
        assert_eq!(layout.renew_blob(&digests[1], SystemTime::now()).unwrap(), None);
    }

    #[test]
    fn a_renewal_during_a_removal_finds_the_whole_artifact_or_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    prune(&layout);
                    // The other thread waits for the lock by polling.
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            let _ended = EndOnDrop(&ended);
            for round in 0_u32..200 {
                let content = round.to_le_bytes();
                let digest = old_artifact(&layout, &content);
                // An upload of a blob that the removal has already selected.
                let layer = layout.put(&content).unwrap();
                let has_layer = layout.renew_blob(&layer, SystemTime::now()).unwrap();
                assert_eq!(has_layer, Some(4), "round {round}");
                if layout.renew("shop/web", &digest, SystemTime::now()).unwrap() {
                    prune(&layout);
                    assert!(layout.complete(&digest), "round {round}");
                }
            }
        });
    }

    /// Ends the other thread also after a panic.
    struct EndOnDrop<'a>(&'a AtomicBool);

    impl Drop for EndOnDrop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}
