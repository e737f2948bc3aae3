//! Retention in the layouts of the server. In a registry of the vendor, the server deletes nothing.
use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::Path,
    time::{Duration, SystemTime},
};

use domain::{artifact::Artifact, digest::Digest};
use oci_layout::{Layout, Pruning};

use super::{
    ArtifactError, Registry, Repository,
    store::{at, run_blocking},
};

/// Number of most recently pushed artifacts of each component that always stay.
const KEPT_VERSIONS: usize = 2;

/// Artifacts of an app that stay.
#[derive(Debug)]
pub struct Retained {
    /// Digests of the artifacts.
    pub artifacts: BTreeSet<Digest>,
    /// Components whose builds are in progress. All their artifacts stay.
    pub building: BTreeSet<String>,
}

impl Registry {
    /// Marks an artifact as used, so that the retention keeps it until the log names its use. Returns
    /// false if the retention removed it.
    ///
    /// # Errors
    /// The name of its repository is invalid, or a file operation failed.
    pub async fn renew(
        &self,
        artifact: &Artifact,
        now: impl Into<SystemTime>,
    ) -> Result<bool, ArtifactError> {
        let Ok(repository) = artifact.repository.parse::<Repository>() else { return Ok(false) };
        let is_stored = self.renew_stored(&repository, &artifact.digest, now).await?;
        Ok(is_stored || self.vendor.is_some())
    }

    /// Marks an artifact of the directory as used. Returns false if the directory does not have it.
    ///
    /// # Errors
    /// A file operation failed.
    pub async fn renew_stored(
        &self,
        repository: &Repository,
        digest: &Digest,
        now: impl Into<SystemTime>,
    ) -> Result<bool, ArtifactError> {
        let (layout, digest, now) = (self.layout(repository), digest.clone(), now.into());
        let name = repository.to_string();
        run_blocking(move || layout.renew(&name, &digest, now)).await
    }

    /// Marks a blob of the directory as used, so that the retention keeps it until the artifact that
    /// names it is complete. Returns its size, or `None` if it does not exist.
    ///
    /// # Errors
    /// A file operation failed.
    pub async fn renew_blob(
        &self,
        repository: &Repository,
        digest: &Digest,
        now: impl Into<SystemTime>,
    ) -> Result<Option<u64>, ArtifactError> {
        let (layout, digest, now) = (self.layout(repository), digest.clone(), now.into());
        run_blocking(move || layout.renew_blob(&digest, now)).await
    }

    /// Returns true if the server deletes artifacts that nothing needs.
    pub fn has_retention(&self) -> bool {
        self.vendor.is_none()
    }

    /// Returns the bytes of the artifacts of each app, by its name.
    ///
    /// # Errors
    /// A file operation failed.
    pub async fn usage(&self) -> Result<BTreeMap<String, u64>, ArtifactError> {
        let directory = self.directory.clone();
        blocking(move || {
            let mut usage = BTreeMap::new();
            for (app, path) in subdirectories(&directory)? {
                let mut bytes = 0_u64;
                for (_, path) in subdirectories(&path)? {
                    bytes = bytes.saturating_add(Layout::new(path).blobs_size()?);
                }
                if app != schemas::plugin::artifact::REPOSITORY {
                    usage.insert(app, bytes);
                }
            }
            Ok(usage)
        })
        .await
    }

    /// Deletes artifacts of an app until `excess` bytes are free: those of the largest components
    /// first, and of each component the least recently used ones. Returns the number of deleted
    /// bytes.
    ///
    /// # Errors
    /// A file operation failed.
    pub async fn prune(
        &self,
        app: &str,
        excess: u64,
        retained: Retained,
        (min_age, now): (Duration, SystemTime),
    ) -> Result<u64, ArtifactError> {
        let (directory, uploads) = (self.directory.join(app), self.directory.join(".uploads"));
        blocking(move || {
            let mut layouts = vec![];
            for (component, path) in subdirectories(&directory)? {
                let layout = Layout::new(path).with_drafts(&uploads);
                if !retained.building.contains(&component) {
                    layouts.push((layout.blobs_size()?, layout));
                }
            }
            layouts.sort_by_key(|(size, _)| std::cmp::Reverse(*size));
            let mut removed = 0_u64;
            for (size, layout) in layouts {
                let left = excess.saturating_sub(removed);
                let (budget, used) = (size.saturating_sub(left), &retained.artifacts);
                let kept_versions = KEPT_VERSIONS;
                let limits = Pruning { budget, used, min_age, kept_versions, now };
                removed = removed.saturating_add(layout.prune(&limits)?);
            }
            Ok(removed)
        })
        .await
    }
}

/// Runs file operations on a blocking thread.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ArtifactError> + Send + 'static,
) -> Result<T, ArtifactError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|why| at(Path::new("registry"))(io::Error::other(why)))?
}

/// Returns the directories in a directory with their names, without hidden ones.
fn subdirectories(directory: &Path) -> Result<Vec<(String, std::path::PathBuf)>, ArtifactError> {
    let mut found = vec![];
    for entry in fs::read_dir(directory).map_err(at(directory))? {
        let entry = entry.map_err(at(directory))?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if !name.starts_with('.') && entry.path().is_dir() {
            found.push((name, entry.path()));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use oci_layout::{ArtifactManifest, EMPTY};
    use serde_json::json;

    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    /// Stores an artifact that was pushed some days ago.
    fn push(registry: &Registry, repository: &str, content: &[u8], days: u32) -> Artifact {
        let of: Repository = repository.parse().unwrap();
        let layout = registry.layout(&of);
        let blob = |kind: &str, bytes: &[u8]| json!({"mediaType": kind, "digest": oci_layout::sha256(bytes), "size": bytes.len()});
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": blob("application/vnd.oci.empty.v1+json", EMPTY),
            "layers": [blob("application/x", content)],
        })
        .to_string();
        ArtifactManifest::parse(manifest.as_bytes()).unwrap();
        let blobs = [content, EMPTY, manifest.as_bytes()].map(|blob| layout.put(blob).unwrap());
        layout.add_to_index(repository, &blobs[2]).unwrap();
        for blob in &blobs {
            let file = File::open(layout.path(blob)).unwrap();
            file.set_modified(SystemTime::now() - DAY * days).unwrap();
        }
        let digest = blobs[2].clone();
        Artifact { repository: repository.into(), digest, size_bytes: 1, upstream: None }
    }

    #[tokio::test]
    async fn only_old_artifacts_without_a_use_are_removed() {
        let data = tempfile::tempdir().unwrap();
        let registry = Registry::open(data.path(), 1 << 20, None).unwrap();
        let now = SystemTime::now();
        let web: Vec<Artifact> = (0..6_u8)
            .map(|at| push(&registry, "shop/web", &[at; 2000], 20 - u32::from(at)))
            .collect();
        let db: Vec<Artifact> =
            (0..4_u8).map(|at| push(&registry, "shop/db", &[at; 9000], 9)).collect();
        push(&registry, "other/web", &[9; 9000], 9);
        push(&registry, "stead.plugins/x", &[9; 9000], 9);
        let before = registry.usage().await.unwrap();
        assert_eq!(before.keys().collect::<Vec<_>>(), ["other", "shop"]);
        // A change of an install is about to use one artifact, and an install uses another one.
        assert!(registry.renew(&web[1], now).await.unwrap());
        let retained = Retained {
            artifacts: BTreeSet::from([web[2].digest.clone()]),
            building: BTreeSet::from(["db".to_owned()]),
        };
        let removed = registry.prune("shop", u64::MAX, retained, (DAY, now)).await.unwrap();
        assert!(removed > 4000, "{removed}");
        let mut left = vec![];
        for artifact in &web {
            left.push(registry.renew(artifact, now).await.unwrap());
        }
        // Artifacts 1 and 5 are the most recently used ones.
        assert_eq!(left, [false, true, true, false, false, true]);
        for artifact in &db {
            assert!(registry.renew(artifact, now).await.unwrap());
        }
        let after = registry.usage().await.unwrap();
        assert_eq!(after["other"], before["other"]);
        assert_eq!(after["shop"], before["shop"] - removed);
    }
}
