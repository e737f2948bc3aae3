//! Kinds that the cluster serves, from its discovery documents.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt, TryStreamExt, stream};
use serde_json::Value;

use crate::{
    cluster::{CONCURRENCY, Cluster, RequestError},
    failure::{Failure, Outcome},
    object::ObjectRef,
    wait::{self, Waiting},
};

/// Kind with the path of its resource.
#[derive(Debug, Clone, PartialEq)]
pub struct Kind {
    api_version: String,
    kind: String,
    plural: String,
    pub is_namespaced: bool,
}

impl Kind {
    fn core(kind: &str, plural: &str, is_namespaced: bool) -> Self {
        let (kind, plural) = (kind.into(), plural.into());
        Kind { api_version: "v1".into(), kind, plural, is_namespaced }
    }

    pub fn namespace() -> Self {
        Kind::core("Namespace", "namespaces", false)
    }

    pub fn secret() -> Self {
        Kind::core("Secret", "secrets", true)
    }

    pub fn config_map() -> Self {
        Kind::core("ConfigMap", "configmaps", true)
    }

    pub fn name(&self) -> &str {
        &self.kind
    }

    pub fn api_version(&self) -> &str {
        &self.api_version
    }

    /// Returns the path of the collection.
    pub fn path(&self, namespace: Option<&str>) -> String {
        let root = if self.api_version.contains('/') { "apis" } else { "api" };
        let (version, plural) = (&self.api_version, &self.plural);
        match namespace.filter(|_| self.is_namespaced) {
            Some(namespace) => format!("/{root}/{version}/namespaces/{namespace}/{plural}"),
            None => format!("/{root}/{version}/{plural}"),
        }
    }
}

/// Kinds of the API versions that a plan refers to.
#[derive(Debug, Default)]
pub struct Kinds {
    kinds: BTreeMap<(String, String), Kind>,
}

impl Kinds {
    /// Reads the kinds of these API versions. Skips versions that the cluster does not serve.
    pub async fn load<'v>(
        cluster: &Cluster,
        api_versions: impl IntoIterator<Item = &'v str>,
    ) -> Outcome<Self> {
        let distinct: BTreeSet<&str> = api_versions.into_iter().collect();
        let lists: Vec<Vec<Kind>> = stream::iter(distinct)
            .map(|api_version| of_version(cluster, api_version))
            .buffered(CONCURRENCY)
            .try_collect()
            .await?;
        let kinds = lists.into_iter().flatten();
        let kinds = kinds.map(|kind| ((kind.api_version.clone(), kind.kind.clone()), kind));
        Ok(Kinds { kinds: kinds.collect() })
    }

    /// Waits until the cluster serves the kinds of these objects, whose definitions this apply
    /// created.
    pub async fn wait_for(
        &mut self,
        cluster: &Cluster,
        objects: impl Iterator<Item = &ObjectRef>,
        waiting: &Waiting<'_>,
    ) -> Outcome<()> {
        let missing: Vec<&ObjectRef> = objects.filter(|one| self.get(one).is_none()).collect();
        let mut pause = wait::SHORTEST_PAUSE;
        loop {
            let versions = missing.iter().map(|object| object.api_version.as_str());
            self.kinds.extend(Kinds::load(cluster, versions).await?.kinds);
            let Some(object) = missing.iter().find(|object| self.get(object).is_none()) else {
                return Ok(());
            };
            if waiting.is_over() {
                return Err(Failure::failed(format!(
                    "the cluster does not serve the kind of {object}; check its \
                     CustomResourceDefinition"
                )));
            }
            waiting.pause(&mut pause).await?;
        }
    }

    /// Loads the kinds of recorded objects. The cluster may no longer serve the recorded version of
    /// a group.
    pub async fn load_recorded(
        cluster: &Cluster,
        recorded: impl Iterator<Item = &ObjectRef>,
    ) -> Outcome<Self> {
        let recorded: Vec<&ObjectRef> = recorded.collect();
        let versions = recorded.iter().map(|object| object.api_version.as_str());
        let mut kinds = Kinds::load(cluster, versions).await?;
        let missing = recorded.iter().filter(|object| kinds.get(object).is_none());
        let groups: BTreeSet<&str> = missing.map(|object| object.group()).collect();
        if !groups.is_empty() {
            let preferred = preferred_versions(cluster).await?;
            let preferred = preferred.iter().map(String::as_str);
            let of_groups = preferred
                .filter(|version| groups.contains(version.split('/').next().unwrap_or_default()));
            kinds.kinds.extend(Kinds::load(cluster, of_groups).await?.kinds);
        }
        Ok(kinds)
    }

    /// Returns the kind of a recorded object, in any version of its group.
    pub fn recorded(&self, object: &ObjectRef) -> Option<&Kind> {
        let is_same = |kind: &&Kind| {
            let group = kind.api_version.rsplit_once('/').map_or("", |(group, _)| group);
            group == object.group() && kind.kind == object.kind
        };
        self.get(object).or_else(|| self.kinds.values().find(is_same))
    }

    pub fn extend(&mut self, other: Kinds) {
        self.kinds.extend(other.kinds);
    }

    pub fn get(&self, object: &ObjectRef) -> Option<&Kind> {
        self.of(&object.api_version, &object.kind)
    }

    pub fn of(&self, api_version: &str, kind: &str) -> Option<&Kind> {
        self.kinds.get(&(api_version.to_owned(), kind.to_owned()))
    }
}

async fn of_version(cluster: &Cluster, api_version: &str) -> Outcome<Vec<Kind>> {
    let listed = match api_version.contains('/') {
        true => cluster.client.list_api_group_resources(api_version).await,
        false => cluster.client.list_core_api_resources(api_version).await,
    };
    let list = match listed.map_err(RequestError::from) {
        Ok(list) => list,
        Err(error) if error.has_code(404) => return Ok(vec![]),
        Err(error) => return Err(error.during(&format!("read the kinds of {api_version}"))),
    };
    let own = list.resources.into_iter().filter(|resource| !resource.name.contains('/'));
    Ok(own
        .map(|resource| Kind {
            api_version: api_version.to_owned(),
            kind: resource.kind,
            plural: resource.name,
            is_namespaced: resource.namespaced,
        })
        .collect())
}

/// Returns the preferred version of each group, such as `apps/v1`.
async fn preferred_versions(cluster: &Cluster) -> Outcome<Vec<String>> {
    let groups = cluster.client.list_api_groups().await.map_err(RequestError::from);
    let groups = groups.map_err(|error| error.during("read the API groups"))?;
    let preferred = groups.groups.into_iter().filter_map(|group| {
        let first = group.versions.into_iter().next().map(|version| version.group_version);
        group.preferred_version.map(|version| version.group_version).or(first)
    });
    Ok(preferred.collect())
}

/// Returns every namespaced kind in its preferred version.
pub async fn namespaced(cluster: &Cluster) -> Outcome<Vec<Kind>> {
    let versions = preferred_versions(cluster).await?;
    let versions = versions.iter().map(String::as_str).chain(["v1"]);
    let kinds = Kinds::load(cluster, versions).await?;
    Ok(kinds.kinds.into_values().filter(|kind| kind.is_namespaced).collect())
}

/// Returns whether the kind of an object is namespaced. `None` if the CustomResourceDefinition does
/// not define that kind.
pub fn defined_by(definition: &Value, object: &ObjectRef) -> Option<bool> {
    let spec = &definition["spec"];
    if spec["group"] != object.group() || spec["names"]["kind"] != object.kind.as_str() {
        return None;
    }
    let version = object.api_version.rsplit('/').next().unwrap_or_default();
    let versions = spec["versions"].as_array().into_iter().flatten();
    let is_served = |one: &Value| one["name"] == version && one["served"] != false;
    if !versions.into_iter().any(is_served) && spec["version"] != version {
        return None;
    }
    Some(spec["scope"] != "Cluster")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_follow_group_and_scope() {
        let web = Kind {
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            plural: "deployments".into(),
            is_namespaced: true,
        };
        assert_eq!(web.path(Some("shop")), "/apis/apps/v1/namespaces/shop/deployments");
        assert_eq!(Kind::namespace().path(None), "/api/v1/namespaces");
        assert_eq!(Kind::namespace().path(Some("shop")), "/api/v1/namespaces");
    }

    #[test]
    fn definition_defines_its_served_versions() {
        let definition = json!({ "spec": {
            "group": "example.dev", "names": { "kind": "Widget" }, "scope": "Namespaced",
            "versions": [{ "name": "v1", "served": true }, { "name": "v0", "served": false }],
        } });
        let object = |api_version: &str, kind: &str| ObjectRef {
            api_version: api_version.into(),
            kind: kind.into(),
            namespace: None,
            name: "a".into(),
        };
        assert_eq!(defined_by(&definition, &object("example.dev/v1", "Widget")), Some(true));
        assert_eq!(defined_by(&definition, &object("example.dev/v0", "Widget")), None);
        assert_eq!(defined_by(&definition, &object("example.dev/v1", "Gadget")), None);
    }
}
