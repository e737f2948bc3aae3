//! Kinds that the cluster serves, from its discovery documents.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt, TryStreamExt, stream};
use serde_json::Value;

use crate::{
    cluster::{CONCURRENCY, Cluster, RequestError},
    failure::{Failure, Outcome},
    manifest::Desired,
    object::ObjectRef,
    wait::{self, Waiting},
};

/// Kind with the path of its resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    api_version: String,
    kind: String,
    plural: String,
    pub is_namespaced: bool,
    is_listable: bool,
}

impl Kind {
    fn core(kind: &str, plural: &str, is_namespaced: bool) -> Self {
        let (kind, plural) = (kind.into(), plural.into());
        Kind { api_version: "v1".into(), kind, plural, is_namespaced, is_listable: true }
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

    pub fn service() -> Self {
        Kind::core("Service", "services", true)
    }

    pub fn access_review() -> Self {
        let api_version = "authorization.k8s.io/v1".into();
        let core = Kind::core("SelfSubjectAccessReview", "selfsubjectaccessreviews", false);
        Kind { api_version, ..core }
    }

    pub fn pod() -> Self {
        Kind::core("Pod", "pods", true)
    }

    pub fn storage_class() -> Self {
        let api_version = "storage.k8s.io/v1".into();
        Kind { api_version, ..Kind::core("StorageClass", "storageclasses", false) }
    }

    /// Returns the kind that a CustomResourceDefinition defines, in a served version.
    pub fn defined_by(definition: &Value) -> Option<Self> {
        let spec = &definition["spec"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut versions = spec["versions"].as_array().into_iter().flatten();
        let version = versions.find(|version| version["served"] == true)?;
        Some(Kind {
            api_version: format!("{}/{}", text(&spec["group"]), text(&version["name"])),
            kind: text(&spec["names"]["kind"]),
            plural: text(&spec["names"]["plural"]),
            is_namespaced: spec["scope"] != "Cluster",
            is_listable: true,
        })
    }

    pub fn name(&self) -> &str {
        &self.kind
    }

    /// Returns the name of the resource, such as `deployments`.
    pub fn plural(&self) -> &str {
        &self.plural
    }

    /// Returns the group. The name of the core group is empty.
    pub fn group(&self) -> &str {
        self.api_version.rsplit_once('/').map_or("", |(group, _)| group)
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
        let mut backoff = wait::MIN_BACKOFF;
        loop {
            let versions = missing.iter().map(|object| object.api_version.as_str());
            match waiting.bound(Kinds::load(cluster, versions)).await {
                Ok(found) => self.extend(found),
                Err(failure) if failure.is_cancelled() || waiting.is_over() => return Err(failure),
                // A new kind changes the discovery, which can fail in the meantime.
                Err(_) => {}
            }
            let Some(object) = missing.iter().find(|object| self.get(object).is_none()) else {
                return Ok(());
            };
            if waiting.is_over() {
                return Err(Failure::failed(format!(
                    "the cluster does not serve the kind of {object}; check its \
                     CustomResourceDefinition"
                )));
            }
            waiting.back_off(&mut backoff).await?;
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
            let versions = versions_of_groups(cluster).await?.into_iter().flatten();
            let versions: Vec<String> =
                versions.filter(|version| groups.contains(group_of(version))).collect();
            kinds.extend(Kinds::load(cluster, versions.iter().map(String::as_str)).await?);
        }
        Ok(kinds)
    }

    /// Returns the kind of a recorded object, in any version of its group.
    pub fn recorded(&self, object: &ObjectRef) -> Option<&Kind> {
        let is_same = |kind: &&Kind| kind.group() == object.group() && kind.kind == object.kind;
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
    let kinds = read_version(cluster, api_version).await;
    kinds.map_err(|error| error.during(&format!("read the kinds of {api_version}")))
}

/// Reads the kinds of an API version. A version that the cluster does not serve has none.
async fn read_version(cluster: &Cluster, api_version: &str) -> Result<Vec<Kind>, RequestError> {
    let root = if api_version.contains('/') { "apis" } else { "api" };
    let list = match cluster.read(&format!("/{root}/{api_version}")).await {
        Ok(list) => list,
        Err(error) if error.has_code(404) => return Ok(vec![]),
        Err(error) => return Err(error),
    };
    let resources = list["resources"].as_array().into_iter().flatten();
    let kinds = resources.filter_map(|resource| {
        let plural = resource["name"].as_str().filter(|name| !name.contains('/'))?;
        let verbs = resource["verbs"].as_array().into_iter().flatten();
        Some(Kind {
            api_version: api_version.to_owned(),
            kind: resource["kind"].as_str()?.to_owned(),
            plural: plural.to_owned(),
            is_namespaced: resource["namespaced"] == true,
            is_listable: verbs.into_iter().any(|verb| verb == "list"),
        })
    });
    Ok(kinds.collect())
}

fn group_of(api_version: &str) -> &str {
    api_version.rsplit_once('/').map_or("", |(group, _)| group)
}

/// Returns the versions of each group, such as `apps/v1`, with the preferred one first.
async fn versions_of_groups(cluster: &Cluster) -> Outcome<Vec<Vec<String>>> {
    let groups = cluster.read("/apis").await;
    let groups = groups.map_err(|error| error.during("read the API groups"))?;
    let groups = groups["groups"].as_array().into_iter().flatten();
    let version = |value: &Value| value["groupVersion"].as_str().map(str::to_owned);
    let versions = groups.map(|group| {
        let preferred = version(&group["preferredVersion"]);
        let all = group["versions"].as_array().into_iter().flatten().filter_map(version);
        let others = all.filter(|one| Some(one) != preferred.as_ref());
        preferred.iter().cloned().chain(others).collect()
    });
    Ok(versions.collect())
}

/// Namespaced kinds of a cluster.
pub struct Namespaced {
    /// Kinds that can be listed, each in one version.
    pub kinds: Vec<Kind>,
    /// Messages about the API versions that do not respond, such as those of an aggregated API.
    pub unavailable: Vec<String>,
}

/// Returns every namespaced kind in the preferred version, or in the first version that has it.
pub async fn namespaced(cluster: &Cluster) -> Outcome<Namespaced> {
    let mut groups = versions_of_groups(cluster).await?;
    groups.insert(0, vec!["v1".to_owned()]);
    let versions: Vec<String> = groups.into_iter().flatten().collect();
    let read: Vec<(&String, Result<Vec<Kind>, RequestError>)> = stream::iter(&versions)
        .map(|version| async move { (version, read_version(cluster, version).await) })
        .buffered(CONCURRENCY)
        .collect()
        .await;
    let (mut kinds, mut unavailable): (Vec<Kind>, _) = (vec![], vec![]);
    for (version, result) in read {
        match result {
            Ok(found) => {
                for kind in found.into_iter().filter(|kind| kind.is_namespaced && kind.is_listable)
                {
                    let is_known =
                        |one: &Kind| one.group() == kind.group() && one.kind == kind.kind;
                    if !kinds.iter().any(is_known) {
                        kinds.push(kind);
                    }
                }
            }
            Err(error) => {
                let is_response = error.status().is_some();
                let failure = error.during(&format!("read the kinds of {version}"));
                if !is_response {
                    return Err(failure);
                }
                unavailable.push(failure.message);
            }
        }
    }
    Ok(Namespaced { kinds, unavailable })
}

/// Describes an object whose kind neither the cluster nor the component has.
pub fn unknown(object: &Desired) -> String {
    let Desired { reference, place, .. } = object;
    format!(
        "{place}: the cluster does not serve the kind {} of {}; correct it, or deploy its \
         CustomResourceDefinition first",
        reference.kind, reference.api_version
    )
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
impl Kind {
    /// Namespaced kind of a test.
    pub fn of(api_version: &str, kind: &str) -> Self {
        let api_version = api_version.to_owned();
        Kind { api_version, ..Kind::core(kind, &format!("{}s", kind.to_lowercase()), true) }
    }
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
            is_listable: true,
        };
        assert_eq!(web.path(Some("shop")), "/apis/apps/v1/namespaces/shop/deployments");
        assert_eq!(Kind::namespace().path(None), "/api/v1/namespaces");
        assert_eq!(Kind::namespace().path(Some("shop")), "/api/v1/namespaces");
    }

    #[test]
    fn definition_without_a_served_version_defines_no_kind() {
        let definition = |served: bool| {
            json!({ "spec": { "group": "example.dev", "scope": "Cluster",
                "names": { "kind": "Widget", "plural": "widgets" },
                "versions": [{ "name": "v0", "served": false }, { "name": "v1", "served": served }],
            } })
        };
        let kind = Kind::defined_by(&definition(true)).unwrap();
        assert_eq!(kind.path(None), "/apis/example.dev/v1/widgets");
        assert_eq!(Kind::defined_by(&definition(false)), None);
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
