//! Plugins that are installed with `stead`: executables in `libexec/` beside the program. At its start
//! the server publishes them, signed with the key in its data directory.
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use api::{App, Call, new_ulid, publish_plugin};
use cli::plugins::pack::{Executable, pack_as};
use domain::actor::Actor;
use ed25519_dalek::SigningKey;
use event_log::Meta;
use tracing::{info, warn};

/// Start of the name of every plugin executable.
const PREFIX: &str = "stead-plugin-";
/// Component types of the format. In a development build, their plugins lie beside the program.
const OF_THE_FORMAT: [&str; 2] = ["kubernetes_manifest", "helm_chart"];

/// Returns the key of this server's own plugins, which the first start creates. Servers of one log
/// share it, like the other keys in this directory, which may be read-only. Returns `None` if there
/// is no key.
pub(crate) fn publisher_key(data: &Path) -> Option<SigningKey> {
    match api::keys::publisher::load_or_create(&data.join("keys"), api::system_clock()()) {
        Ok(key) => Some(key),
        Err(error) => {
            warn!(error = %error, "Cannot sign the installed plugins");
            None
        }
    }
}

/// Publishes the installed plugins. An error concerns one plugin, and the server starts without it.
pub(crate) async fn publish_installed(app: &App, key: Option<&SigningKey>) {
    let Some(key) = key else { return };
    for (name, executables) in installed() {
        match publish(app, &executables, key).await {
            Ok(Some(version)) => info!(plugin = %name, version = %version, "Published the plugin"),
            Ok(None) => {}
            Err(error) => {
                warn!(plugin = %name, error = %error, "Cannot publish the installed plugin")
            }
        }
    }
}

/// Publishes one plugin. Returns its version, or `None` if it was published before.
async fn publish(
    app: &App,
    executables: &[Executable],
    key: &SigningKey,
) -> anyhow::Result<Option<String>> {
    // The digest in the version distinguishes builds of one release.
    let version = |version: &str, digest: &domain::digest::Digest| {
        format!("{version}+{}", &digest.to_string()["sha256:".len()..][..8])
    };
    let packed = pack_as(executables, key, version).await;
    let packed = packed.map_err(|failure| anyhow::anyhow!(failure.text().trim_end().to_owned()))?;
    let call = Call::of(Meta::new(Actor::System, new_ulid().to_string()));
    let (digest, publisher) = (packed.digest, packed.publisher);
    let published =
        publish_plugin(app, &call, &packed.name, (&digest, &publisher), packed.blobs).await;
    let is_new = published.map_err(|problem| anyhow::anyhow!(problem.detail))?;
    Ok(is_new.then_some(packed.version))
}

/// Returns the installed executables by plugin: `libexec/stead-plugin-<name>`, and further platforms
/// in directories below.
fn installed() -> BTreeMap<String, Vec<Executable>> {
    let program = std::env::current_exe().and_then(fs::canonicalize).ok();
    let Some(beside) = program.as_deref().and_then(Path::parent) else { return BTreeMap::new() };
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
    for path in entries(&beside.join("libexec")) {
        match path.is_dir() {
            true => entries(&path).into_iter().for_each(&mut add),
            false => add(path),
        }
    }
    for name in OF_THE_FORMAT {
        let path = beside.join(format!("{PREFIX}{name}"));
        if path.is_file() && !found.contains_key(name) {
            found.insert(name.to_owned(), vec![Executable { platform: None, path }]);
        }
    }
    found
}
