//! Objects that the deletion of a Namespace or a CustomResourceDefinition would also delete.

use futures::{StreamExt, TryStreamExt, stream};
use serde_json::Value;

use crate::{
    cluster::{CONCURRENCY, Cluster},
    failure::{Failure, Outcome},
    inventory::Inventory,
    kinds::{self, Kind, Kinds},
    object::ObjectRef,
};

/// Maximum number of objects of one kind to compare with the inventory.
const LIMIT: u32 = 500;

/// Returns an object that the inventory does not list, in a Namespace or of the kind that a
/// CustomResourceDefinition defines. Ignores generated objects. `None` for other kinds.
pub async fn of(
    cluster: &Cluster,
    inventory: &Inventory,
    object: &ObjectRef,
    live: &Value,
) -> Outcome<Option<String>> {
    if object.is_namespace() {
        let kinds = kinds::namespaced(cluster).await?;
        let kinds = kinds.into_iter().filter(|kind| !is_generated_kind(kind));
        let found: Vec<Option<String>> = stream::iter(kinds)
            .map(|kind| async move {
                first_foreign(cluster, inventory, &kind, Some(&object.name)).await
            })
            .buffered(CONCURRENCY)
            .try_collect()
            .await?;
        return Ok(found.into_iter().flatten().next());
    }
    if object.is_crd() {
        let spec = &live["spec"];
        let group = spec["group"].as_str().unwrap_or_default();
        let kind = spec["names"]["kind"].as_str().unwrap_or_default();
        let versions = spec["versions"].as_array().into_iter().flatten();
        let mut served = versions.filter(|version| version["served"] == true);
        let Some(version) = served.find_map(|version| version["name"].as_str()) else {
            return Ok(None);
        };
        let api_version = format!("{group}/{version}");
        let kinds = Kinds::load(cluster, [api_version.as_str()]).await?;
        return match kinds.of(&api_version, kind) {
            Some(kind) => first_foreign(cluster, inventory, kind, None).await,
            None => Ok(None),
        };
    }
    Ok(None)
}

async fn first_foreign(
    cluster: &Cluster,
    inventory: &Inventory,
    kind: &Kind,
    namespace: Option<&str>,
) -> Outcome<Option<String>> {
    let list = match cluster.list(kind, namespace, LIMIT).await {
        Ok(list) => list,
        // Some kinds support only `create`, such as SubjectAccessReview.
        Err(error) if error.has_code(404) || error.has_code(405) => return Ok(None),
        Err(error) => {
            let failure = error.during(&format!("list the objects of the kind {}", kind.name()));
            return Err(Failure::failed(failure.message));
        }
    };
    let items = list["items"].as_array().into_iter().flatten();
    let references = items.filter(|item| !is_generated(kind, item)).map(|item| ObjectRef {
        api_version: kind.api_version().to_owned(),
        kind: kind.name().to_owned(),
        namespace: item["metadata"]["namespace"].as_str().map(str::to_owned),
        name: item["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
    });
    let mut foreign = references.filter(|reference| inventory.entry(reference).is_none());
    Ok(foreign.next().map(|reference| reference.to_string()))
}

/// Returns whether controllers write the objects of this kind for other objects.
fn is_generated_kind(kind: &Kind) -> bool {
    ["Event", "EndpointSlice", "Endpoints", "Lease", "PodMetrics", "ControllerRevision"]
        .contains(&kind.name())
}

/// Returns whether a controller created the object, for a namespace or for another object.
fn is_generated(kind: &Kind, item: &Value) -> bool {
    let metadata = &item["metadata"];
    let is_owned = metadata["ownerReferences"].as_array().is_some_and(|owners| !owners.is_empty());
    let name = metadata["name"].as_str().unwrap_or_default();
    is_owned
        || match kind.name() {
            "ServiceAccount" => name == "default",
            "ConfigMap" => name == "kube-root-ca.crt" || name == "openshift-service-ca.crt",
            "Secret" => item["type"] == "kubernetes.io/service-account-token",
            _ => false,
        }
}
