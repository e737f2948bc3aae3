//! Destination of a copied image, and the outputs that name it.

use std::{fs, io, path::PathBuf, sync::Arc};

use domain::{
    artifact::Upstream,
    digest::Digest,
    image::{ImageReference, is_host, is_tag},
};
use oci_layout::Layout;
use oci_registry::{Endpoint, Location, Target, Tree};
use serde::{Deserialize, Serialize};
use serde_json::{Map, json};

use super::super::{
    contract::{PluginError, Sink},
    plugin::{Halt, IoContext, Operation, Outputs, Work},
    transfer::{TAG_DIGITS, digits, logged_in, registry_error},
    work::private_dir,
};
use crate::{host, images::RegistryChoice};

/// Longest part of an upstream tag in a tag of the install, in bytes.
const MAX_TAG: usize = 100;
/// Name of the sandbox among the components of an install, and among the jobs of a run.
pub(in crate::plugins) const SANDBOX: &str = "sandbox";

/// Registry of the install, or the layout of the runner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(in crate::plugins) enum Destination {
    /// Repository of a registry that clusters can pull from.
    Registry { host: String, name: String, tag: String },
    /// Layout of the runner. The outputs name the image in its upstream registry.
    Layout { repository: String },
}

/// Image of the last sync of a component.
#[derive(Serialize, Deserialize)]
struct Synced {
    /// Registry and repository. Both are empty for the layout of the runner.
    host: String,
    name: String,
    blobs: Vec<Digest>,
    #[serde(default)]
    image: Option<Digest>,
}

/// Registry that a sandbox output names.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum SandboxRegistry {
    /// Repository for all images of the install.
    Repository(String),
    /// Registry with one repository for each component.
    Prefix(String),
}

impl Destination {
    /// Returns the destination of a component: the customer's registry, the registry of the
    /// sandbox, or the layout of the runner.
    pub(in crate::plugins) async fn of(work: &Work<'_>) -> Result<Self, Halt> {
        let refused = |why: String| PluginError::Refused(format!("cannot copy the image: {why}"));
        if let RegistryChoice::Registry(registry) = &work.job.images.registry {
            return Ok(Self::in_registry(registry, work.name, tag(work)).map_err(refused)?);
        }
        let named = of_sandbox(work);
        // A teardown sends nothing to a registry, and the sandbox may not have a state any more.
        if work.operation == Operation::Apply
            && let Some(named) = &named
        {
            require_in_state(work, named).await?;
        }
        match named {
            Some(SandboxRegistry::Prefix(prefix)) => {
                let registry: Location = format!("oci://{prefix}").parse().map_err(refused)?;
                Ok(Self::in_registry(&registry, work.name, tag(work)).map_err(refused)?)
            }
            Some(SandboxRegistry::Repository(repository)) => {
                Ok(Self::in_repository(&repository, work, &tag(work)).map_err(refused)?)
            }
            None => {
                let artifact = work.manifest.artifacts.first();
                let repository = artifact.map(|artifact| artifact.repository.clone());
                Ok(Destination::Layout { repository: repository.unwrap_or_default() })
            }
        }
    }

    fn in_registry(registry: &Location, component: &str, tag: String) -> Result<Self, String> {
        let name = registry.name(component)?;
        Ok(Destination::Registry { host: registry.host.clone(), name, tag })
    }

    /// Returns one repository for all components. The tags begin with the name of the component.
    fn in_repository(repository: &str, work: &Work<'_>, tag: &str) -> Result<Self, String> {
        let reference =
            ImageReference::new(repository, "latest").map_err(|error| error.to_string())?;
        let (host, name) = (reference.host().to_owned(), reference.name().to_owned());
        let tag = shortened(&format!("{}-{tag}", work.name), MAX_TAG + TAG_DIGITS + 1);
        Ok(Destination::Registry { host, name, tag })
    }

    /// Returns the host of the registry. The layout of the runner has none.
    pub(in crate::plugins) fn host(&self) -> Option<&str> {
        match self {
            Destination::Registry { host, .. } => Some(host),
            Destination::Layout { .. } => None,
        }
    }

    /// Returns the name of the repository, for plans.
    pub(super) fn address(&self, work: &Work<'_>) -> String {
        match self {
            Destination::Registry { host, name, .. } => format!("{host}/{name}"),
            Destination::Layout { repository } => match upstream(work) {
                Some(upstream) => upstream.repository,
                None => repository.clone(),
            },
        }
    }

    /// Returns a warning if clusters cannot pull the copied image, with the remedy.
    pub(in crate::plugins) fn warning(&self, work: &Work<'_>) -> Option<String> {
        let Destination::Layout { .. } = self else { return None };
        let why = match (&work.job.images.registry, named_by_sandbox(work)) {
            (RegistryChoice::None, _) => "the option --registry none is set".to_owned(),
            (_, Some(named)) => {
                format!("{} in the outputs of the sandbox is not its host", named.address())
            }
            (_, None) => "this install has no registry".to_owned(),
        };
        Some(format!(
            "{why}: the image stays on the runner's host, and clusters pull it from its upstream registry by digest; \
             to change that, start the runner with --registry oci://HOST/PREFIX, or return ecr.repository_url, \
             acr.login_server or gar.repository_url from the sandbox"
        ))
    }

    pub(super) async fn target(
        &self,
        work: &Work<'_>,
        known: Arc<Vec<(String, Vec<Digest>)>>,
        sink: &mut dyn Sink,
    ) -> Result<Target, Halt> {
        Ok(match self {
            Destination::Registry { host, name, tag } => {
                let endpoint = Endpoint::of_host(host).map_err(registry_error)?;
                let endpoint = logged_in(endpoint, work, sink).await?;
                let (endpoint, tag) = (Arc::new(endpoint), Some(tag.clone()));
                Target::Registry { endpoint, name: name.clone(), tag, known }
            }
            Destination::Layout { repository } => {
                let layout = Layout::new(&work.job.artifacts_dir);
                Target::Layout { layout, repository: repository.clone(), now: host::system_time() }
            }
        })
    }

    /// Returns the outputs. `REPOSITORY:TAG` is a complete reference in every case.
    pub(super) fn outputs(&self, work: &Work<'_>, image: &Digest) -> Result<Outputs, Halt> {
        let image = match self {
            Destination::Registry { host, name, tag } => {
                json!({ "repository": format!("{host}/{name}"), "tag": tag, "digest": image })
            }
            Destination::Layout { .. } => {
                let missing =
                    || PluginError::Refused("the manifest names no upstream image".into());
                let Upstream { repository, tag, digest } = upstream(work).ok_or_else(missing)?;
                let tag = tag.unwrap_or_else(|| digits(&digest));
                json!({ "repository": repository, "tag": format!("{tag}@{digest}"), "digest": digest })
            }
        };
        let plain = Map::from_iter([("image".to_owned(), image)]);
        Ok(Outputs { plain, ..Outputs::default() })
    }
}

impl SandboxRegistry {
    fn address(&self) -> &str {
        match self {
            SandboxRegistry::Repository(address) | SandboxRegistry::Prefix(address) => address,
        }
    }

    /// Returns true if the host can only be that of a registry. A name without a dot is not one
    /// outside of its network.
    fn has_host(&self) -> bool {
        let address = self.address();
        let host = address.split('/').next().unwrap_or(address);
        host.contains(['.', ':']) && is_host(host)
    }
}

/// Returns the registry in the outputs of the sandbox.
fn named_by_sandbox(work: &Work<'_>) -> Option<SandboxRegistry> {
    SandboxRegistry::deserialize(&work.manifest.inputs["registry"]).ok()
}

/// Returns the registry in the outputs of the sandbox, if it is valid and the customer allows it.
fn of_sandbox(work: &Work<'_>) -> Option<SandboxRegistry> {
    match &work.job.images.registry {
        RegistryChoice::None | RegistryChoice::Registry(_) => None,
        RegistryChoice::Sandbox => named_by_sandbox(work).filter(SandboxRegistry::has_host),
    }
}

/// Refuses a registry that the state of the sandbox does not name. Otherwise the server could choose
/// the registry that gets the credentials of the runner.
async fn require_in_state(work: &Work<'_>, named: &SandboxRegistry) -> Result<(), Halt> {
    let outputs = work.job.outputs_of(SANDBOX).await?;
    let keys: &[(&str, &str)] = match named {
        SandboxRegistry::Repository(_) => &[("ecr", "repository_url")],
        SandboxRegistry::Prefix(_) => &[("acr", "login_server"), ("gar", "repository_url")],
    };
    let is_named = keys.iter().any(|(cloud, key)| {
        let address = outputs.get(*cloud).and_then(|output| output[key].as_str());
        // The server shortens the address in the same way.
        let address = address.map(|text| text.trim_start_matches("https://").trim_end_matches('/'));
        address == Some(named.address())
    });
    match is_named {
        true => Ok(()),
        false => Err(PluginError::Refused(format!(
            "cannot copy the image: the state of the sandbox does not name the registry {}; reprovision the sandbox, or start the runner with --registry oci://HOST/PREFIX",
            named.address()
        ))
        .into()),
    }
}

fn upstream(work: &Work<'_>) -> Option<Upstream> {
    serde_json::from_value(work.manifest.inputs["upstream"].clone()).ok()
}

/// Tag in the registry of the install: the upstream tag with the beginning of the digest. A tag
/// that moved upstream is another tag here, so that registries with immutable tags accept it.
fn tag(work: &Work<'_>) -> String {
    let digest = work.manifest.artifacts.first().map(|artifact| digits(&artifact.digest));
    let digest = digest.unwrap_or_default();
    match upstream(work).and_then(|upstream| upstream.tag) {
        Some(tag) => format!("{}-{digest}", shortened(&tag, MAX_TAG)),
        None => digest,
    }
}

/// Returns a valid tag of at most this length. Keeps the end of the text.
fn shortened(text: &str, most: usize) -> String {
    let start = text.len().saturating_sub(most);
    let text: String = text.chars().skip(start).collect();
    let text = text.trim_start_matches(['-', '.']);
    match is_tag(text) {
        true => text.to_owned(),
        false => "image".to_owned(),
    }
}

/// Records the image of a component, for mounts across repositories and for the next plan.
pub(super) fn record(work: &Work<'_>, to: &Destination, tree: &Tree) -> Result<(), Halt> {
    let (host, name, blobs) = match to {
        Destination::Registry { host, name, .. } => {
            let blobs = tree.blobs.iter().map(|blob| blob.digest.clone()).collect();
            (host.clone(), name.clone(), blobs)
        }
        Destination::Layout { .. } => (String::new(), String::new(), vec![]),
    };
    let synced = Synced { host, name, blobs, image: Some(tree.digest.clone()) };
    let context = || "cannot record the copied image".to_owned();
    private_dir(&directory(work))?;
    let bytes = serde_json::to_vec(&synced).map_err(io::Error::from).doing(context)?;
    Ok(fs::write(file(work), bytes).doing(context)?)
}

/// Removes the record of a component.
pub(super) fn forget(work: &Work<'_>) -> Result<(), Halt> {
    match fs::remove_file(file(work)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).doing(|| "cannot remove the record of the image".into())?
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Returns the blobs of other components in the same registry. A record that cannot be read only
/// prevents a mount.
pub(super) fn known_blobs(work: &Work<'_>, to: &Destination) -> Vec<(String, Vec<Digest>)> {
    let Destination::Registry { host: own, .. } = to else { return vec![] };
    let records = fs::read_dir(directory(work)).into_iter().flatten().flatten();
    let records = records.filter_map(|record| recorded(record.path()));
    records.filter(|synced| synced.host == *own).map(|synced| (synced.name, synced.blobs)).collect()
}

/// Returns the image of the last sync, if this runner made it.
pub(super) fn last_image(work: &Work<'_>) -> Option<Digest> {
    recorded(file(work)).and_then(|synced| synced.image)
}

fn recorded(path: PathBuf) -> Option<Synced> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

fn directory(work: &Work<'_>) -> PathBuf {
    work.job.artifacts_dir.join("images")
}

fn file(work: &Work<'_>) -> PathBuf {
    directory(work).join(format!("{}.json", work.name))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::state::StateStore;

    #[test]
    fn a_tag_of_the_install_is_valid_and_keeps_its_end() {
        assert_eq!(shortened("1.29", 100), "1.29");
        assert_eq!(shortened(&format!("{}-end", "a".repeat(200)), 4), "end");
        assert_eq!(shortened("ä/ö", 100), "image");
    }

    #[test]
    fn a_registry_of_the_sandbox_is_a_repository_or_a_prefix() {
        let read = |value: Value| SandboxRegistry::deserialize(&value);
        assert!(matches!(read(json!({"prefix": "h/x"})), Ok(SandboxRegistry::Prefix(_))));
        assert!(matches!(read(json!({"repository": "h/x"})), Ok(SandboxRegistry::Repository(_))));
        assert!(read(json!({"other": "h/x"})).is_err());
        let has_host = |address: &str| SandboxRegistry::Prefix(address.to_owned()).has_host();
        assert!(has_host("acme.azurecr.io") && has_host("127.0.0.1:5000/x"));
        assert!(!has_host("login-server-9970") && !has_host("") && !has_host("a.b c"));
    }

    #[tokio::test]
    async fn only_the_state_of_the_sandbox_names_its_registry() {
        let dir = tempfile::tempdir().unwrap();
        let job = crate::plugins::plans::context(dir.path());
        let state = StateStore::new(&job.state_dir, SANDBOX);
        fs::create_dir_all(state.dir()).unwrap();
        let outputs = json!({ "lineage": "a", "outputs": {
            "ecr": { "value": { "repository_url": "1.dkr.ecr.example/acme" } },
            "acr": { "value": { "login_server": "https://acme.azurecr.io/" } } } });
        fs::write(state.file(), outputs.to_string()).unwrap();
        let of = async |operation: &str, registry: Value| {
            let manifest = serde_json::from_value(json!({
                "version": 1, "job": job.job, "kind": "plan", "class": "pure",
                "plugin": {"name": "container_image", "version": "1"},
                "inputs": {"component": "web", "operation": operation, "registry": registry},
                "limits": {"output_bytes": 1}, "timeouts": {"deadline_ms": 1, "grace_ms": 1},
            }))
            .unwrap();
            let work = Work::new(&manifest, &job).unwrap();
            match Destination::of(&work).await {
                Ok(destination) => Ok(destination.address(&work)),
                Err(Halt::Error(error)) => Err(error.to_string()),
                Err(Halt::Outcome(outcome)) => panic!("{outcome:?}"),
            }
        };
        let repository = json!({ "repository": "1.dkr.ecr.example/acme" });
        assert_eq!(of("apply", repository).await.unwrap(), "1.dkr.ecr.example/acme");
        assert_eq!(
            of("apply", json!({ "prefix": "acme.azurecr.io" })).await.unwrap(),
            "acme.azurecr.io/web"
        );
        for other in [
            json!({ "repository": "ghcr.io/acme/shop" }),
            json!({ "prefix": "127.0.0.1:2375" }),
            json!({ "prefix": "1.dkr.ecr.example/acme" }),
        ] {
            let error = of("apply", other.clone()).await.unwrap_err();
            assert!(error.contains("does not name the registry"), "{other}: {error}");
            assert!(of("destroy", other).await.is_ok(), "a teardown sends nothing");
        }
    }
}
