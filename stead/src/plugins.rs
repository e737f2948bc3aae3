//! Plugins that are installed with `stead`: executables in `libexec/`, in the directory of the
//! program. At its start, `stead up` publishes them, signed with the key in its data directory.
//! `stead serve` does not: an attacker who controls a public server with such a key could sign
//! executables that customers trust.
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use api::{App, Call, new_ulid, publish_plugin};
use cli::plugins::{
    key::public,
    pack::{Executable, pack_as},
};
use domain::{actor::Actor, digest::Digest};
use ed25519_dalek::SigningKey;
use event_log::Meta;
use tracing::{info, warn};

/// Prefix of the name of every plugin executable.
const PREFIX: &str = "stead-plugin-";

/// Publishes the installed plugins, signed with the key of this server. The first start with an
/// installed plugin creates the key. The enrol command pins the key if this server has published a
/// plugin with it. If the publication of a plugin fails, the server starts without that plugin.
pub(crate) async fn publish_installed(app: &App, data: &Path) {
    let installed = installed_executables();
    if installed.is_empty() {
        return;
    }
    let key = api::keys::publisher::load_or_create(&data.join("keys"), api::system_clock()());
    let key = match key {
        Ok(key) => key,
        Err(error) => return warn!(error = %error, "Cannot sign the installed plugins"),
    };
    let mut is_used = false;
    for (name, executables) in installed {
        match publish(app, &name, &executables, &key).await {
            Ok(version) => {
                is_used = true;
                if let Some(version) = version {
                    info!(plugin = %name, version = %version, "Published the plugin");
                }
            }
            Err(error) => {
                warn!(plugin = %name, error = %error, "Cannot publish the installed plugin")
            }
        }
    }
    if is_used {
        // Only this call sets it.
        let _first = app.config.plugin_publisher.set(public(&key));
    }
}

/// Publishes one plugin. Returns its version, or `None` if it was published before.
async fn publish(
    app: &App,
    name: &str,
    executables: &[Executable],
    key: &SigningKey,
) -> anyhow::Result<Option<String>> {
    let packed = pack_as(executables, key, published_version).await;
    let packed = packed.map_err(|failure| anyhow::anyhow!(failure.text().trim_end().to_owned()))?;
    anyhow::ensure!(
        packed.name == name,
        "the executable {PREFIX}{name} reports the name {}; rename the file to {PREFIX}{0}",
        packed.name
    );
    let call = Call::of(Meta::new(Actor::System, new_ulid().to_string()));
    let (digest, publisher) = (packed.digest, packed.publisher);
    let published =
        publish_plugin(app, &call, &packed.name, (&digest, &publisher), packed.blobs).await;
    let is_new = published.map_err(|problem| anyhow::anyhow!(problem.detail))?;
    Ok(is_new.then_some(packed.version))
}

/// Returns the published version. Its suffix distinguishes builds of one release and signatures by
/// other keys, because a published version never changes.
fn published_version(version: &str, content: &Digest) -> String {
    format!("{version}+{}", &content.to_string()["sha256:".len()..][..8])
}

/// Returns the installed executables by plugin: `libexec/stead-plugin-<name>`, and executables for
/// other platforms in subdirectories.
fn installed_executables() -> BTreeMap<String, Vec<Executable>> {
    let program = std::env::current_exe().and_then(fs::canonicalize).ok();
    let Some(dir) = program.as_deref().and_then(Path::parent) else { return BTreeMap::new() };
    let mut found: BTreeMap<String, Vec<Executable>> = BTreeMap::new();
    let mut add = |path: PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()?.strip_prefix(PREFIX));
        if let Some(name) = name.map(str::to_owned).filter(|_| path.is_file()) {
            found.entry(name).or_default().push(Executable { platform: None, path });
        }
    };
    let entries = |dir: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    };
    for path in entries(&dir.join("libexec")) {
        match path.is_dir() {
            true => entries(&path).into_iter().for_each(&mut add),
            false => add(path),
        }
    }
    found
}
