//! Address of repositories in a registry.

use std::{fmt, str::FromStr};

use domain::image::{is_host, is_repository};
use serde::{Deserialize, Serialize};

/// Longest prefix of repositories, in bytes. Leaves space for the names of an app and a component.
const MAX_PREFIX: usize = 120;

/// Registry with the prefix of its repositories: `oci://HOST[:PORT]/PREFIX`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Location {
    pub host: String,
    /// Empty if repositories have no prefix.
    pub prefix: String,
}

impl Location {
    /// Returns the repository for a name of Stead, without the host.
    ///
    /// # Errors
    /// The name cannot be part of a repository.
    pub fn name(&self, repository: &str) -> Result<String, String> {
        let repository = repository.to_lowercase();
        if !is_repository(&repository) {
            return Err(format!(
                "{repository:?} cannot be the name of a repository; rename the component: letters and digits, separated by `-`, `_` or `.`"
            ));
        }
        Ok(match self.prefix.as_str() {
            "" => repository,
            prefix => format!("{prefix}/{repository}"),
        })
    }
}

/// Registry of a vendor. Its prefix confines the repositories that a build can push to:
/// `PREFIX/APP/COMPONENT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VendorLocation(Location);

impl VendorLocation {
    pub fn host(&self) -> &str {
        &self.0.host
    }

    /// Returns true if the owner of a build runner chose this registry.
    pub fn is(&self, chosen: &Location) -> bool {
        self.0 == *chosen
    }

    /// Returns the repository of a component, without the host.
    ///
    /// # Errors
    /// The name is not `APP/COMPONENT`, or a registry does not allow it. Upper case is not converted:
    /// the components `Web` and `web` would share a repository.
    pub fn name(&self, repository: &str) -> Result<String, String> {
        let name = format!("{}/{repository}", self.0.prefix);
        if repository.split('/').count() != 2 || !is_repository(&name) {
            return Err(format!(
                "{repository:?} cannot be a repository of a registry; rename the app or the component: lower-case letters and digits, separated by `-`, `_` or `.`"
            ));
        }
        Ok(name)
    }
}

impl FromStr for VendorLocation {
    type Err = String;

    fn from_str(text: &str) -> Result<VendorLocation, String> {
        let location: Location = text.parse()?;
        if location.prefix.is_empty() {
            return Err(format!(
                "write {location}/PREFIX: the prefix limits what builds can change"
            ));
        }
        Ok(VendorLocation(location))
    }
}

impl fmt::Display for VendorLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Location {
    type Err = String;

    fn from_str(text: &str) -> Result<Location, String> {
        let rest = text.strip_prefix("oci://").ok_or("write oci://HOST[:PORT]/PREFIX")?;
        let (host, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.trim_end_matches('/');
        if !is_host(host) {
            return Err(format!("{host:?} is not the host of a registry"));
        }
        if prefix.len() > MAX_PREFIX || (!prefix.is_empty() && !is_repository(prefix)) {
            return Err(format!(
                "{prefix:?} is not a prefix of repositories: use up to {MAX_PREFIX} lower-case letters, digits, `/`, `-`, `_` and `.`"
            ));
        }
        Ok(Location { host: host.to_owned(), prefix: prefix.to_owned() })
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.prefix.as_str() {
            "" => write!(f, "oci://{}", self.host),
            prefix => write!(f, "oci://{}/{prefix}", self.host),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_registry_of_a_vendor_has_one_repository_per_component_below_its_prefix() {
        let registry: VendorLocation = "oci://host.example/acme".parse().unwrap();
        assert_eq!(registry.name("shop/web").unwrap(), "acme/shop/web");
        for other in ["web", "shop/Web", "a/b/c", "../other", "shop/", "/web", "shop/-web", ""] {
            assert!(registry.name(other).is_err(), "{other}");
        }
        for without_prefix in ["oci://host.example", "oci://host.example/"] {
            let error = without_prefix.parse::<VendorLocation>().unwrap_err();
            assert!(error.contains("write oci://host.example/PREFIX"), "{error}");
        }
        assert!(registry.is(&"oci://host.example/acme/".parse().unwrap()));
        assert!(!registry.is(&"oci://host.example".parse().unwrap()));
    }

    #[test]
    fn a_registry_has_a_repository_for_each_component() {
        let registry: Location = "oci://127.0.0.1:5000/acme/shop/".parse().unwrap();
        assert_eq!(registry.host, "127.0.0.1:5000");
        assert_eq!(registry.to_string(), "oci://127.0.0.1:5000/acme/shop");
        assert_eq!(registry.name("img_Web").unwrap(), "acme/shop/img_web");
        let plain: Location = "oci://host.example".parse().unwrap();
        assert_eq!(
            (plain.name("web").unwrap(), plain.to_string()),
            ("web".into(), "oci://host.example".into())
        );
        assert!(registry.name("-web").is_err());
        for invalid in [
            "host/x",
            "https://host/x",
            "oci://",
            "oci://a b/x",
            "oci://host/A",
            "oci://u:p@host/a",
        ] {
            assert!(invalid.parse::<Location>().is_err(), "{invalid}");
        }
    }
}
