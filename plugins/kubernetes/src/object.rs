//! Identity of an object in a cluster.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Reference to an object. References that differ only in the API version name the same object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectRef {
    /// `v1`, or a group and a version as in `apps/v1`.
    pub api_version: String,
    pub kind: String,
    /// Absent for a cluster-scoped object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    pub name: String,
}

impl ObjectRef {
    pub fn group(&self) -> &str {
        self.api_version.rsplit_once('/').map_or("", |(group, _)| group)
    }

    /// Returns the identity without the version.
    pub fn key(&self) -> (&str, &str, Option<&str>, &str) {
        (self.group(), &self.kind, self.namespace.as_deref(), &self.name)
    }

    pub fn is_same(&self, other: &ObjectRef) -> bool {
        self.key() == other.key()
    }

    /// Returns whether the object has this group and kind. The name of the core group is empty.
    pub fn is_kind(&self, group: &str, kind: &str) -> bool {
        self.group() == group && self.kind == kind
    }

    pub fn is_namespace(&self) -> bool {
        self.is_kind("", "Namespace")
    }

    pub fn is_crd(&self) -> bool {
        self.is_kind("apiextensions.k8s.io", "CustomResourceDefinition")
    }

    pub fn is_secret(&self) -> bool {
        self.is_kind("", "Secret")
    }
}

/// Address in plans and messages: `Deployment.apps shop/web`, `Namespace shop`.
impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        if !self.group().is_empty() {
            write!(f, ".{}", self.group())?;
        }
        f.write_str(" ")?;
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        f.write_str(&self.name)
    }
}

/// Returns a string member of an object's metadata.
pub fn metadata<'v>(object: &'v Value, key: &str) -> Option<&'v str> {
    object["metadata"][key].as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_names_kind_group_namespace_and_name() {
        let object = |api_version: &str, kind: &str, namespace: Option<&str>| ObjectRef {
            api_version: api_version.into(),
            kind: kind.into(),
            namespace: namespace.map(str::to_owned),
            name: "web".into(),
        };
        let web = object("apps/v1", "Deployment", Some("shop"));
        assert_eq!(web.to_string(), "Deployment.apps shop/web");
        assert_eq!(object("v1", "Namespace", None).to_string(), "Namespace web");
        assert!(web.is_same(&object("apps/v1beta1", "Deployment", Some("shop"))));
        assert!(!web.is_same(&object("extensions/v1beta1", "Deployment", Some("shop"))));
    }
}
