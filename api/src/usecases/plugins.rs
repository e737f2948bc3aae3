//! Publication of plugins, and the selection of plugins for a config version.
use std::{collections::BTreeSet, sync::Arc};

use app_config::Diagnostic;
use axum::body::Body;
use bytes::Bytes;
use domain::{
    app::App as AppState,
    digest::Digest,
    name::Name,
    plugin::{PinnedPlugin, Plugin, PluginCommand, PluginVersion},
};
use futures::FutureExt as _;
use schemas::plugin::artifact::{
    self, ARTIFACT_TYPE, ENVELOPE_LIMIT, ENVELOPE_TYPE, EXECUTABLE_LIMIT, EXECUTABLE_TYPE,
    PluginStatement, is_platform, is_version, parse_publisher,
};

use crate::{
    configs::Config,
    execute::{Call, Done},
    problem::{Code, Problem},
    registry::{ArtifactError, Repository},
    state::App,
};

/// Maximum number of platforms of a plugin.
const MAX_PLATFORMS: usize = 16;

/// Plugins that the runner implements.
const BUILT_IN: [&str; 6] =
    ["action", "container_image", "external_image", "git", "preflight", "terraform_module"];

/// Validates the name of a plugin and returns its repository.
pub(crate) fn repository(name: &str) -> Result<Repository, Problem> {
    if !domain::name::is_valid(name) || BUILT_IN.contains(&name) {
        let detail = format!(
            "{name:?} is not a valid plugin name: use lower-case letters, digits, - and _, at most {} characters, and \
             no name of a built-in plugin",
            domain::name::MAX_LENGTH
        );
        return Err(Problem::new(Code::Invalid, detail));
    }
    artifact::repository(name).parse().map_err(Problem::internal)
}

/// Publishes a stored artifact as a version of a plugin. `digest` is the digest of its index.
pub(crate) async fn publish(
    app: &App,
    call: &Call,
    name: &str,
    digest: &Digest,
    publisher: &str,
) -> Result<Done<PluginVersion>, Problem> {
    let version = verified(app, name, digest, publisher).await?;
    let name = name.to_owned();
    app.engine
        .transact(call, move |unit| {
            let (name, version) = (name.clone(), version.clone());
            async move {
                let publish = PluginCommand::Publish(version.clone());
                unit.handle::<Plugin>(&name, publish).await?;
                Ok(version)
            }
            .boxed()
        })
        .await
}

/// Stores the blobs of a plugin and publishes its artifact, given by the digest of the index and
/// the public key of the publisher. Returns false if the artifact was published before.
///
/// # Errors
/// A blob cannot be stored, or the artifact is not valid.
pub async fn publish_packed(
    app: &App,
    call: &Call,
    name: &str,
    (digest, publisher): (&Digest, &str),
    blobs: Vec<(Digest, Bytes)>,
) -> Result<bool, Problem> {
    let repository = repository(name)?;
    for (digest, bytes) in blobs {
        // Skips stored blobs. After an interrupted start, some may be missing.
        if app.registry.size(&repository, &digest).await == Some(bytes.len() as u64) {
            continue;
        }
        let stored = app.registry.store(&repository, &digest, Body::from(bytes)).await;
        stored.map_err(|error| {
            Problem::new(Code::Invalid, format!("cannot store the blob {digest}: {error}"))
        })?;
    }
    Ok(publish(app, call, name, digest, publisher).await?.events > 0)
}

/// Verifies the types, the completeness and the signed statements of a stored artifact.
async fn verified(
    app: &App,
    name: &str,
    digest: &Digest,
    publisher: &str,
) -> Result<PluginVersion, Problem> {
    let repository = repository(name)?;
    let key = parse_publisher(publisher).ok_or_else(|| {
        invalid("its publisher is not a public key of 64 hexadecimal digits".into())
    })?;
    let missing = |digest: &Digest| invalid(format!("the blob {digest} is not stored"));
    let index = app.registry.platform_index(&repository, digest).await.map_err(unreadable)?;
    let index = index.ok_or_else(|| missing(digest))?;
    if index.artifact_type() != ARTIFACT_TYPE {
        return Err(invalid(format!("its index does not have the artifact type {ARTIFACT_TYPE}")));
    }
    if index.manifests().is_empty() || index.manifests().len() > MAX_PLATFORMS {
        let count = index.manifests().len();
        return Err(invalid(format!(
            "its index has {count} platforms, outside 1 to {MAX_PLATFORMS}"
        )));
    }
    let mut size_bytes = app.registry.size(&repository, digest).await.unwrap_or_default();
    let (mut version, mut platforms) = (None, Vec::new());
    for (platform, entry) in index.manifests() {
        let wrong = |why: String| invalid(format!("{platform}: {why}"));
        let manifest = app.registry.manifest(&repository, &entry.digest).await;
        let manifest = manifest.map_err(unreadable)?.ok_or_else(|| missing(&entry.digest))?;
        let is_plugin = manifest.image().artifact_type().as_ref();
        let is_plugin = is_plugin.is_some_and(|kind| kind.as_ref() == ARTIFACT_TYPE);
        let [executable, envelope] = manifest.layers() else {
            return Err(wrong("its OCI manifest does not have two layers".into()));
        };
        if !is_plugin
            || manifest.blobs().next() != Some(&oci_layout::Blob::empty())
            || executable.media_type.as_ref() != EXECUTABLE_TYPE
            || envelope.media_type.as_ref() != ENVELOPE_TYPE
        {
            return Err(wrong("its OCI manifest does not have the types of a plugin".into()));
        }
        for blob in manifest.blobs().chain([entry]) {
            match app.registry.size(&repository, &blob.digest).await {
                Some(size) if size == blob.size => size_bytes += size,
                Some(_) => return Err(wrong(format!("the blob {} has another size", blob.digest))),
                None => return Err(missing(&blob.digest)),
            }
        }
        if executable.size > EXECUTABLE_LIMIT {
            return Err(wrong(format!(
                "its executable exceeds the limit of {EXECUTABLE_LIMIT} bytes"
            )));
        }
        let bytes = app.registry.small_blob(&repository, &envelope.digest, ENVELOPE_LIMIT).await;
        let bytes = bytes.map_err(unreadable)?;
        let bytes = bytes.ok_or_else(|| {
            wrong(format!("its envelope exceeds the limit of {ENVELOPE_LIMIT} bytes"))
        })?;
        let statement =
            PluginStatement::verify(&bytes, &key).map_err(|error| wrong(error.to_string()))?;
        let first = version.get_or_insert_with(|| statement.version.clone());
        let matches = statement.name == name
            && statement.version == *first
            && statement.platform == *platform
            && statement.executable == executable.digest
            && statement.size_bytes == executable.size;
        if !matches || !is_version(&statement.version) || !is_platform(platform) {
            return Err(wrong("the signed statement does not match the artifact".into()));
        }
        platforms.push(platform.clone());
    }
    let (name, digest) = (name.to_owned(), digest.clone());
    let (version, publisher) = (version.unwrap_or_default(), publisher.to_owned());
    Ok(PluginVersion { name, version, digest, size_bytes, platforms, publisher })
}

fn invalid(why: String) -> Problem {
    Problem::new(
        Code::Invalid,
        format!("cannot publish the plugin: {why}; use `stead plugins push`"),
    )
}

fn unreadable(error: ArtifactError) -> Problem {
    match error {
        ArtifactError::Layout(oci_layout::LayoutError::Manifest { digest, reason }) => {
            invalid(format!("the blob {digest} is not valid: {reason}"))
        }
        ArtifactError::Layout(_)
        | ArtifactError::Io { .. }
        | ArtifactError::BodyEnded(_)
        | ArtifactError::Vendor(_)
        | ArtifactError::Manifest(_) => Problem::internal(error),
    }
}

/// Selects the plugins for these component types. If the newest version of the app has the same
/// bundle, it keeps each plugin whose publisher is unchanged. After a change of the publisher, the
/// former key may be lost. All other types use the newest version of their plugin.
pub(crate) async fn resolve(
    app: &App,
    app_name: &str,
    bundle: &Digest,
    types: BTreeSet<String>,
) -> Result<Vec<PinnedPlugin>, Problem> {
    if types.is_empty() {
        return Ok(vec![]);
    }
    // The selection is a decision, so it must not use cached states: another server may have published
    // a plugin, for example with the new key of its publisher.
    let log = app.log();
    let name = domain::name::stream("app", app_name);
    let owner = log.reload::<Name>(&name).await?.state.owner.clone();
    let state = match owner {
        Some(id) => log.reload::<AppState>(&id).await?.state,
        None => Arc::default(),
    };
    let same = state.latest().filter(|latest| latest.bundle == *bundle);
    let mut pins = Vec::new();
    // Skips invalid names: they have no plugin, and the log may not be able to store them.
    for name in types.into_iter().filter(|name| domain::name::is_valid(name)) {
        let known = same.and_then(|latest| latest.plugins.iter().find(|pin| pin.name == name));
        let plugin = log.reload::<Plugin>(&name).await?;
        let newest = plugin.state.newest().map(PluginVersion::pin);
        pins.extend(chosen(known, newest));
    }
    Ok(pins)
}

/// Returns a warning for each plugin with another publisher than in the previous version. A runner
/// that does not trust the new key refuses the plugin.
pub(crate) fn changed_publishers(before: Option<&Config>, config: &Config) -> Vec<Diagnostic> {
    let before = before.map(|before| before.plugins.as_slice()).unwrap_or_default();
    let changed = config.plugins.iter().filter_map(|plugin| {
        let known = before.iter().find(|known| known.name == plugin.name)?;
        if known.publisher == plugin.publisher {
            return None;
        }
        let PinnedPlugin { name, version, publisher, .. } = plugin;
        let message = format!(
            "the plugin {name} {version} has another publisher than in the previous version: {publisher} instead of {}",
            known.publisher
        );
        let remedy = "ask the customers to trust the new key, or publish the plugin with the former key";
        Some(Diagnostic::warning("new_publisher", message, remedy))
    });
    changed.collect()
}

/// Returns the pin of the version with the same bundle, unless the publisher changed. Otherwise
/// returns the newest version.
fn chosen(known: Option<&PinnedPlugin>, newest: Option<PinnedPlugin>) -> Option<PinnedPlugin> {
    let changed = |pin: &PinnedPlugin| {
        newest.as_ref().is_some_and(|newest| newest.publisher != pin.publisher)
    };
    match known {
        Some(pin) if !changed(pin) => Some(pin.clone()),
        Some(_) | None => newest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_bundle_keeps_its_plugin_unless_the_publisher_changed() {
        let pin = |version: &str, publisher: &str| {
            let digest = oci_layout::sha256(format!("{version} {publisher}").as_bytes());
            PluginVersion {
                name: "vault".into(),
                version: version.into(),
                digest,
                size_bytes: 1,
                platforms: vec!["linux/amd64".into()],
                publisher: publisher.into(),
            }
            .pin()
        };
        let known = pin("1", "one");
        let kept = chosen(Some(&known), Some(pin("2", "one")));
        assert_eq!(kept, Some(known.clone()));
        assert_eq!(chosen(Some(&known), None), Some(known.clone()));
        assert_eq!(chosen(Some(&known), Some(pin("1", "two"))), Some(pin("1", "two")));
        assert_eq!(chosen(None, Some(pin("2", "one"))), Some(pin("2", "one")));
        assert_eq!(chosen(None, None), None);
    }
}
