//! Inputs of the component, as the server renders them.

use std::{collections::BTreeMap, fmt, time::Duration};

use serde::{Deserialize, Serialize};
use stead_plugin_kubernetes::{
    failure::{Failure, Outcome},
    manifest,
    settings::{self, OutputField},
};

/// Component of an install whose chart becomes a release.
pub type Component = settings::Component<Settings>;

/// Longest name of a release.
const MAX_RELEASE: usize = 53;

/// Keys of the component file. An unknown key is an error.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Name of the release.
    pub release: String,
    /// Namespace of the release.
    pub namespace: String,
    /// Values by name. A name can be a path, as in `image.tag`.
    #[serde(default)]
    pub values: BTreeMap<String, String>,
    /// Values files. A later file overrides earlier ones, and `values` override all files.
    #[serde(default)]
    pub values_files: Vec<ValuesFile>,
    #[serde(default)]
    pub storage_driver: Option<String>,
    /// Allows the plan to adopt existing objects without an owner, and an existing release.
    #[serde(default)]
    pub take_ownership: bool,
    #[serde(default)]
    pub outputs: BTreeMap<String, OutputField>,
    /// Limit of each wait for objects to become ready or to disappear.
    #[serde(default)]
    pub ready_timeout_ms: Option<u64>,
}

/// Rendered values file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ValuesFile {
    /// Name in messages.
    pub name: String,
    pub text: String,
}

/// Kind of the objects in which Helm stores its releases.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StorageDriver {
    #[default]
    Secret,
    Configmap,
}

impl StorageDriver {
    /// Value of `HELM_DRIVER`.
    pub fn name(self) -> &'static str {
        match self {
            StorageDriver::Secret => "secret",
            StorageDriver::Configmap => "configmap",
        }
    }
}

/// Identity of a release in a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleaseRef {
    pub namespace: String,
    pub name: String,
    pub driver: StorageDriver,
}

/// Address in plans and messages: `HelmRelease shop/web`.
impl fmt::Display for ReleaseRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HelmRelease {}/{}", self.namespace, self.name)
    }
}

impl Settings {
    /// Returns the release of the component.
    ///
    /// # Errors
    /// The name of the release, its namespace or the storage driver is not valid.
    pub fn release(&self) -> Outcome<ReleaseRef> {
        let name = self.release.as_str();
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
        let edge = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        let is_valid = name.len() <= MAX_RELEASE
            && name.bytes().all(plain)
            && edge(name.bytes().next())
            && edge(name.bytes().last());
        if !is_valid {
            return Err(Failure::refused(format!(
                "chart_name {name:?} is not a valid name of a release: use at most {MAX_RELEASE} \
                 lower-case letters, digits, `-` and `.`, and a letter or digit at both ends"
            )));
        }
        // The namespace becomes part of URLs.
        if !manifest::is_name(&self.namespace) {
            return Err(Failure::refused(format!(
                "namespace {:?} is not the name of a namespace; correct `namespace`",
                self.namespace
            )));
        }
        let driver = match self.storage_driver.as_deref().map(str::trim) {
            None | Some("" | "secret" | "secrets") => StorageDriver::Secret,
            Some("configmap" | "configmaps") => StorageDriver::Configmap,
            Some(other) => {
                return Err(Failure::refused(format!(
                    "storage_driver {other:?} is not supported: use secret or configmap"
                )));
            }
        };
        let (namespace, name) = (self.namespace.clone(), name.to_owned());
        Ok(ReleaseRef { namespace, name, driver })
    }

    /// Limit of all waits of an apply.
    pub fn ready_timeout(&self) -> Duration {
        settings::ready_timeout(self.ready_timeout_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(release: &str, driver: Option<&str>) -> Settings {
        let storage_driver = driver.map(str::to_owned);
        let (release, namespace) = (release.to_owned(), "shop".to_owned());
        Settings { release, namespace, storage_driver, ..Settings::default() }
    }

    #[test]
    fn a_release_has_a_valid_name_and_a_driver() {
        let release = settings("web-1", Some("configmaps")).release().unwrap();
        assert_eq!(release.driver, StorageDriver::Configmap);
        assert_eq!(release.to_string(), "HelmRelease shop/web-1");
        assert_eq!(settings("web", None).release().unwrap().driver, StorageDriver::Secret);
        for name in ["", "Web", "-web", "web-", "a_b", "a b", &"a".repeat(54)] {
            let error = settings(name, None).release().unwrap_err().message;
            assert!(error.contains("not a valid name of a release"), "{name}: {error}");
        }
        for namespace in ["", "shop/secrets?x=", "a#b", ".."] {
            let wrong = Settings { namespace: namespace.into(), ..settings("web", None) };
            let error = wrong.release().unwrap_err().message;
            assert!(error.contains("not the name of a namespace"), "{namespace}: {error}");
        }
        let error = settings("web", Some("sql")).release().unwrap_err().message;
        assert!(error.contains("use secret or configmap"), "{error}");
    }
}
