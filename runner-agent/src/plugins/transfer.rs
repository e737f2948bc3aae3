//! Copies between registries, for jobs: credentials, progress in the log, and cancellation.

use std::{future::Future, sync::Arc, time::Duration};

use domain::digest::Digest;
use oci_layout::{ArtifactManifest, EMPTY, Layout};
use oci_registry::{Endpoint, Progress, RegistryError, Source, Target, Tree, VendorLocation, copy};
use tokio::time::{MissedTickBehavior, timeout};

use super::{
    cluster::registry_login::CloudRegistry,
    contract::{PluginError, Sink, Stream},
    plugin::{Halt, Work},
    source::{self, layout_error},
};
use crate::{artifacts, images::RegistryChoice};

/// Interval of the lines about the progress of a copy.
const PROGRESS: Duration = Duration::from_secs(5);
/// Longest time for another tag. The artifact is complete without it.
const OTHER_TAG: Duration = Duration::from_secs(60);
/// Number of digits of a digest in a tag.
pub(super) const TAG_DIGITS: usize = 12;

/// Registry that a build pushes its artifact to.
pub(super) enum BuildRegistry {
    /// Registry of the server.
    Server,
    /// Registry of the vendor, which both the manifest and the option of this runner name.
    Vendor(VendorLocation),
}

impl BuildRegistry {
    /// Returns the registry of a build.
    ///
    /// # Errors
    /// The manifest names a registry that the option `--registry` of this runner does not name. So a
    /// server cannot choose the registry that gets the credentials of the runner.
    pub(super) fn of(work: &Work<'_>) -> Result<BuildRegistry, PluginError> {
        let named = work.input("registry");
        BuildRegistry::allowed(named, &work.job.images.registry).map_err(PluginError::Refused)
    }

    fn allowed(named: Option<&str>, choice: &RegistryChoice) -> Result<BuildRegistry, String> {
        let Some(named) = named else { return Ok(BuildRegistry::Server) };
        let refused = |why: String| format!("cannot push the artifact to {named}: {why}");
        let location: VendorLocation = named.parse().map_err(refused)?;
        match choice {
            RegistryChoice::Registry(own) if location.is(own) => {
                Ok(BuildRegistry::Vendor(location))
            }
            RegistryChoice::Registry(own) => Err(refused(format!(
                "this build runner pushes only to {own}; start it with --registry {location}, or correct the option of the server"
            ))),
            RegistryChoice::Sandbox | RegistryChoice::None => Err(refused(format!(
                "this build runner does not allow it; start it with --registry {location}"
            ))),
        }
    }

    /// Returns the repository of a component as the target of a copy. A copy to the vendor's registry
    /// waits for it until the deadline of the job, and the log names the cause.
    pub(super) async fn target(
        &self,
        work: &Work<'_>,
        repository: &str,
        artifact: &Digest,
        sink: &mut dyn Sink,
    ) -> Result<Target, Halt> {
        let (endpoint, name, tag) = match self {
            BuildRegistry::Server => (server(work)?, repository.to_owned(), None),
            BuildRegistry::Vendor(location) => {
                let refused =
                    |why| PluginError::Refused(format!("cannot push the artifact: {why}"));
                let name = location.name(repository).map_err(refused)?;
                let endpoint = Endpoint::of_host(location.host()).map_err(registry_error)?;
                let endpoint = logged_in(endpoint, work, sink).await?;
                let observer = work.job.registry.observer.clone();
                let endpoint = endpoint.without_limit().with_observer(observer);
                let line = format!("pushing to {}/{name}", location.host());
                sink.line(Stream::Runner, line.as_bytes());
                (Arc::new(endpoint), name, Some(format!("build-{}", digits(artifact))))
            }
        };
        Ok(Target::Registry { endpoint, name, tag, known: Arc::default() })
    }
}

/// Returns the digits of a digest for a tag.
pub(super) fn digits(digest: &Digest) -> String {
    let text = digest.to_string();
    text.trim_start_matches("sha256:").chars().take(TAG_DIGITS).collect()
}

/// Pushes an artifact whose layers are in the layout. `tag` is another tag in a registry of the
/// vendor. Returns the digest of the manifest, and the total bytes of manifest, config and layers.
pub(super) async fn push(
    work: &Work<'_>,
    layout: &Layout,
    repository: &str,
    (manifest, tag): (&ArtifactManifest, Option<String>),
    sink: &mut dyn Sink,
) -> Result<(Digest, u64), Halt> {
    let registry = BuildRegistry::of(work)?;
    match registry {
        BuildRegistry::Server => {
            let pushed = artifacts::push(&work.job.registry, layout, repository, manifest);
            source::or_cancelled(work, pushed).await
        }
        BuildRegistry::Vendor(_) => {
            layout.put(EMPTY).map_err(layout_error)?;
            let tree = Tree::of_manifest(manifest).map_err(registry_error)?;
            let target = registry.target(work, repository, &tree.digest, sink).await?;
            let source = Source::Layout(layout.clone());
            transfer(work, &source, &target, &tree, sink).await?;
            if let Some(other) = tag {
                let tagging = async { Ok(tagged(&target, &other, &tree).await) };
                if let Err(why) = or_cancelled(work, tagging).await? {
                    let line = format!(
                        "warning: the tag {other} does not name this artifact: {why}; a deploy does not use the tag"
                    );
                    sink.line(Stream::Runner, line.as_bytes());
                }
            }
            Ok((tree.digest.clone(), tree.size()))
        }
    }
}

/// Gives an artifact another tag. A registry with immutable tags refuses that for a second build of
/// a version, which must not fail the build.
async fn tagged(target: &Target, tag: &str, tree: &Tree) -> Result<(), String> {
    match timeout(OTHER_TAG, target.tag(tag, tree)).await {
        Ok(tagged) => tagged.map_err(|error| error.to_string()),
        Err(_) => Err(format!("the registry did not respond within {} s", OTHER_TAG.as_secs())),
    }
}

/// Copies a tree, and logs its progress.
pub(super) async fn transfer(
    work: &Work<'_>,
    source: &Source,
    target: &Target,
    tree: &Tree,
    sink: &mut dyn Sink,
) -> Result<(), Halt> {
    sink.phase("copy");
    let progress = Arc::new(Progress::default());
    let mut copying = std::pin::pin!(or_cancelled(work, copy(source, target, tree, &progress)));
    let mut tick = tokio::time::interval(PROGRESS);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick is immediate.
    tick.tick().await;
    loop {
        tokio::select! {
            biased;
            copied = &mut copying => {
                copied?;
                break;
            }
            _ = tick.tick() => {
                sink.line(Stream::Runner, format!("copies {}", progress.text()).as_bytes());
            }
        }
    }
    let line = format!("{}: {}", progress.summary(), tree.digest);
    sink.line(Stream::Runner, line.as_bytes());
    Ok(())
}

/// Returns the registry of the server.
pub(super) fn server(work: &Work<'_>) -> Result<Arc<Endpoint>, Halt> {
    let registry = &work.job.registry;
    let address = (registry.base_url.as_str(), registry.token.as_str());
    let endpoint = Endpoint::of_server(address, registry.http.clone(), registry.idle_timeout);
    let endpoint = endpoint.map_err(registry_error)?.with_observer(registry.observer.clone());
    Ok(Arc::new(endpoint))
}

/// Waits for a registry, or until the job is cancelled.
pub(super) async fn or_cancelled<T>(
    work: &Work<'_>,
    doing: impl Future<Output = Result<T, RegistryError>>,
) -> Result<T, Halt> {
    tokio::select! {
        biased;
        () = work.job.cancel.requested.cancelled() => Err(Halt::cancelled(false)),
        done = doing => done.map_err(registry_error),
    }
}

/// Adds a login to the registry of a cloud, unless Docker's config.json has a credential for it.
pub(super) async fn logged_in(
    endpoint: Endpoint,
    work: &Work<'_>,
    sink: &mut dyn Sink,
) -> Result<Endpoint, Halt> {
    let host = endpoint.host().to_owned();
    let Some(registry) = CloudRegistry::of_host(&host) else { return Ok(endpoint) };
    if or_cancelled(work, endpoint.has_credential()).await? {
        return Ok(endpoint);
    }
    match or_cancelled(work, async { Ok(registry.login(&work.job.env).await) }).await? {
        Ok((user, password)) => {
            work.job.background.secret(password.clone());
            let line = format!("logged in to {host} with the job's cloud credentials");
            sink.line(Stream::Runner, line.as_bytes());
            Ok(endpoint.with_login((user, password)))
        }
        Err(why) if registry.allows_anonymous() => {
            let line = format!("continuing without a login to {host}: {why}");
            sink.line(Stream::Runner, line.as_bytes());
            Ok(endpoint)
        }
        Err(why) => {
            let failed = format!(
                "cannot log in to {host}: {why}; or configure a credential helper in Docker's config.json"
            );
            Err(PluginError::ArtifactUnavailable(failed).into())
        }
    }
}

pub(super) fn registry_error(error: RegistryError) -> Halt {
    match error {
        RegistryError::Layout(error) => layout_error(error),
        other @ (RegistryError::Unreachable { .. }
        | RegistryError::Missing { .. }
        | RegistryError::Denied { .. }
        | RegistryError::Credentials { .. }
        | RegistryError::Status { .. }
        | RegistryError::Invalid { .. }
        | RegistryError::NoPlatform { .. }
        | RegistryError::WrongDigest { .. }
        | RegistryError::Task(_)) => PluginError::ArtifactUnavailable(other.to_string()).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_cannot_choose_the_registry_of_a_build_runner() {
        let named = Some("oci://127.0.0.1:5000/acme");
        let choice = |text: &str| RegistryChoice::parse(text).unwrap();
        let allowed = |named, choice| BuildRegistry::allowed(named, &choice);
        assert!(matches!(
            allowed(named, choice("oci://127.0.0.1:5000/acme")),
            Ok(BuildRegistry::Vendor(_))
        ));
        assert!(matches!(allowed(None, choice("oci://a/b")), Ok(BuildRegistry::Server)));
        for other in ["oci://127.0.0.1:5000/acme2", "oci://127.0.0.1:5001/acme", "none", "sandbox"]
        {
            let error = allowed(named, choice(other)).err().unwrap();
            assert!(error.contains("--registry oci://127.0.0.1:5000/acme"), "{error}");
        }
        assert!(allowed(Some("https://a/b"), choice("oci://a/b")).is_err());
        // Without a prefix, a server could move tags in every repository of the registry.
        let error = allowed(Some("oci://a"), choice("oci://a")).err().unwrap();
        assert!(error.contains("write oci://a/PREFIX"), "{error}");
    }
}
