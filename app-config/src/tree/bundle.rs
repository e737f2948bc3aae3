//! Layout of a bundle: `app/**`, `source/<component>/**`, `plugins.json`.
use std::collections::BTreeMap;

use domain::digest::Digest;
use serde::{Deserialize, Serialize};

use super::{File, Tree, TreeError};

/// Directory of the app directory's own files.
pub const APP: &str = "app";
/// Parent directory of each component's module directory.
pub const SOURCE: &str = "source";
/// Name of the sandbox's module under [`SOURCE`].
pub const SANDBOX: &str = "sandbox";
/// File that pins plugins.
pub const PLUGINS: &str = "plugins.json";

/// A plugin of the vendor, as the bundle pins it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginPin {
    /// `type` of the components that use the plugin.
    pub name: String,
    pub version: String,
    /// Digest of the executable.
    pub digest: Digest,
}

impl Tree {
    /// Creates a bundle. The keys of `sources` are component names, and [`SANDBOX`] for the
    /// sandbox.
    ///
    /// # Errors
    /// If a path becomes too long.
    pub fn bundle(
        app: &Tree,
        sources: &BTreeMap<String, Tree>,
        plugins: &[PluginPin],
    ) -> Result<Tree, TreeError> {
        let mut bundle = Tree::default();
        for (path, file) in app.iter() {
            bundle.insert(&format!("{APP}/{path}"), file.clone())?;
        }
        for (component, source) in sources {
            for (path, file) in source.iter() {
                bundle.insert(&format!("{SOURCE}/{component}/{path}"), file.clone())?;
            }
        }
        if !plugins.is_empty() {
            let mut pins = plugins.to_vec();
            pins.sort_by(|a, b| a.name.cmp(&b.name));
            let bytes = serde_json::to_vec(&pins)
                .map_err(|e| TreeError::Content { path: PLUGINS, detail: e.to_string() })?;
            bundle.insert(PLUGINS, File { bytes, executable: false })?;
        }
        Ok(bundle)
    }

    /// Files of the app directory.
    pub fn app(&self) -> Tree {
        self.subtree(APP)
    }

    /// Module directory of a component (or of [`SANDBOX`]). Empty if the bundle has none.
    pub fn source(&self, component: &str) -> Tree {
        self.subtree(&format!("{SOURCE}/{component}"))
    }

    /// Plugins that the bundle pins.
    ///
    /// # Errors
    /// If `plugins.json` is not a list of pins, or names a plugin twice.
    pub fn plugins(&self) -> Result<Vec<PluginPin>, TreeError> {
        let refuse = |detail: String| TreeError::Content { path: PLUGINS, detail };
        let Some(file) = self.get(PLUGINS) else { return Ok(Vec::new()) };
        let pins: Vec<PluginPin> =
            serde_json::from_slice(&file.bytes).map_err(|e| refuse(e.to_string()))?;
        for (at, pin) in pins.iter().enumerate() {
            if pins[..at].iter().any(|other| other.name == pin.name) {
                return Err(refuse(format!("duplicate plugin {:?}", pin.name)));
            }
        }
        Ok(pins)
    }
}
