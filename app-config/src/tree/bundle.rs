//! How a bundle is laid out: `app/**`, `source/<component>/**`, `plugins.json`.
use std::collections::BTreeMap;

use domain::digest::Digest;
use serde::{Deserialize, Serialize};

use super::{File, Tree, TreeError};

/// Where the app directory's own files are.
pub const APP: &str = "app";
/// Where the module directory of each component is.
pub const SOURCE: &str = "source";
/// The name under [`SOURCE`] of the sandbox's module.
pub const SANDBOX: &str = "sandbox";
/// The file that pins plugins.
pub const PLUGINS: &str = "plugins.json";

/// A plugin of the vendor's, as the bundle pins it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginPin {
    /// What components name as their `type`.
    pub name: String,
    pub version: String,
    /// Of the executable.
    pub digest: Digest,
}

impl Tree {
    /// Puts a bundle together. `sources` are by component name, and [`SANDBOX`] for the sandbox.
    ///
    /// # Errors
    /// When a path becomes too long.
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

    /// The app directory's files.
    pub fn app(&self) -> Tree {
        self.subtree(APP)
    }

    /// The module directory of a component (or [`SANDBOX`]); empty when the bundle has none.
    pub fn source(&self, component: &str) -> Tree {
        self.subtree(&format!("{SOURCE}/{component}"))
    }

    /// The plugins that the bundle pins.
    ///
    /// # Errors
    /// When `plugins.json` is no list of pins or names a plugin twice.
    pub fn plugins(&self) -> Result<Vec<PluginPin>, TreeError> {
        let refuse = |detail: String| TreeError::Content { path: PLUGINS, detail };
        let Some(file) = self.get(PLUGINS) else { return Ok(Vec::new()) };
        let pins: Vec<PluginPin> =
            serde_json::from_slice(&file.bytes).map_err(|e| refuse(e.to_string()))?;
        for (at, pin) in pins.iter().enumerate() {
            if pins[..at].iter().any(|other| other.name == pin.name) {
                return Err(refuse(format!("the plugin {:?} is named twice", pin.name)));
            }
        }
        Ok(pins)
    }
}
