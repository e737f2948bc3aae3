//! Options of the runner about registries.

use std::{collections::BTreeMap, io};

use domain::image::{DOCKER_HUB, is_host, is_repository};
use oci_registry::{Endpoint, Location, RegistryError};
use reqwest::Url;
use serde::{Deserialize, Serialize};

use crate::data::{self, Data};

/// File with the recorded registry, in the data directory.
const FILE: &str = "registry.json";

/// Options about registries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageSettings {
    /// Mirrors of upstream registries, by host.
    #[serde(default)]
    pub mirrors: BTreeMap<String, Mirror>,
    /// Registry that the clusters of the install pull from.
    #[serde(default)]
    pub registry: RegistryChoice,
}

/// Mirror of an upstream registry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mirror {
    /// Origin, without a trailing slash.
    pub origin: String,
    /// Prefix of repositories in the mirror, empty if they have the upstream's names.
    pub prefix: String,
}

/// Registry that the owner of the runner chose: for the images of an install, or for the artifacts of
/// builds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum RegistryChoice {
    /// The registry that the sandbox returns, if there is one.
    #[default]
    Sandbox,
    /// No registry: images stay on the runner's host.
    None,
    Registry(Location),
}

impl ImageSettings {
    /// Returns the registry of a host, or its mirror, and the name of the repository there.
    pub(crate) fn upstream(
        &self,
        host: &str,
        name: &str,
    ) -> Result<(Endpoint, String), RegistryError> {
        match self.mirrors.get(host) {
            Some(mirror) => {
                let authority = mirror.origin.split_once("://").map_or("", |(_, rest)| rest);
                Ok((Endpoint::new(authority, &mirror.origin)?, mirror.name(name)))
            }
            None => Ok((Endpoint::of_host(host)?, name.to_owned())),
        }
    }
}

impl RegistryChoice {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(RegistryChoice::None),
            "sandbox" => Ok(RegistryChoice::Sandbox),
            text => text.parse().map(RegistryChoice::Registry),
        }
    }
}

/// Records the choice of a start in the data directory. Returns the recorded choice.
pub(crate) fn record_registry(
    data: &Data,
    choice: Option<&RegistryChoice>,
) -> io::Result<RegistryChoice> {
    let path = data.path(FILE);
    if let Some(choice) = choice {
        data::replace_json(&path, choice)?;
    }
    Ok(data::read_json(&path)?.unwrap_or_default())
}

/// Parses `HOST=URL`.
pub(crate) fn parse_mirror(text: &str) -> Result<(String, Mirror), String> {
    let (host, url) = text.split_once('=').ok_or("write HOST=URL")?;
    if !is_host(host) {
        return Err(format!("{host:?} is not the host of a registry"));
    }
    let host = match host {
        "index.docker.io" | "registry-1.docker.io" => DOCKER_HUB,
        host => host,
    };
    let parsed = Url::parse(url).map_err(|error| format!("{url:?} is not a URL: {error}"))?;
    if !matches!(parsed.scheme(), "http" | "https") || parsed.host_str().is_none() {
        return Err(format!("{url:?} is not an http or https URL"));
    }
    let has_credential = !parsed.username().is_empty() || parsed.password().is_some();
    if has_credential || parsed.query().is_some() || parsed.fragment().is_some() {
        let rule = "the URL of a mirror has only a host, a port and a path";
        return Err(format!("{rule}; keep credentials in Docker's config.json"));
    }
    let prefix = parsed.path().trim_matches('/').to_owned();
    if !prefix.is_empty() && !is_repository(&prefix) {
        return Err(format!("{prefix:?} is not a prefix of repositories"));
    }
    let origin = parsed.origin().ascii_serialization();
    Ok((host.to_owned(), Mirror { origin, prefix }))
}

impl Mirror {
    /// Returns the name of a repository in the mirror.
    pub(crate) fn name(&self, repository: &str) -> String {
        match self.prefix.as_str() {
            "" => repository.to_owned(),
            prefix => format!("{prefix}/{repository}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrors_have_a_host_and_a_url_without_credentials() {
        let (host, mirror) = parse_mirror("docker.io=http://127.0.0.1:5000").unwrap();
        assert_eq!((host.as_str(), mirror.origin.as_str()), ("docker.io", "http://127.0.0.1:5000"));
        assert_eq!(mirror.name("library/nginx"), "library/nginx");
        let (host, mirror) = parse_mirror("index.docker.io=https://cache.example/hub/").unwrap();
        assert_eq!((host.as_str(), mirror.name("a/b").as_str()), ("docker.io", "hub/a/b"));
        for invalid in [
            "docker.io",
            "=http://x",
            "docker.io=ftp://x",
            "docker.io=https://me:secret@x",
            "docker.io=https://x/?a=b",
            "docker.io=https://x/UPPER",
        ] {
            let error = parse_mirror(invalid).unwrap_err();
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_start_without_a_choice_uses_the_recorded_registry() {
        let dir = tempfile::tempdir().unwrap();
        let data = Data::open(dir.path()).unwrap();
        let recorded = |text: Option<&str>| {
            let choice = text.map(|text| RegistryChoice::parse(text).unwrap());
            record_registry(&data, choice.as_ref()).unwrap()
        };
        assert_eq!(recorded(None), RegistryChoice::Sandbox);
        let registry = recorded(Some("oci://host.example/acme"));
        assert!(matches!(&registry, RegistryChoice::Registry(of) if of.prefix == "acme"));
        assert_eq!(recorded(None), registry);
        assert_eq!(recorded(Some("none")), RegistryChoice::None);
        assert_eq!(recorded(Some("sandbox")), RegistryChoice::Sandbox);
    }
}
