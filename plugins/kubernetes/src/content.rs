//! Objects that the deletion of a Namespace or a CustomResourceDefinition would also delete.

use std::collections::BTreeSet;

use futures::{StreamExt, TryStreamExt, stream};
use serde_json::Value;

use crate::{
    cluster::{CONCURRENCY, Cluster, RequestError},
    failure::Outcome,
    kinds::{self, Kind},
    object::{ObjectRef, metadata},
};

/// Number of objects in one response.
const PAGE: u32 = 500;
/// Maximum number of responses for one kind. A kind with more objects counts as in use.
const MAX_PAGES: usize = 100;

/// Returns the reason to keep a Namespace or a CustomResourceDefinition: an object that the plan
/// does not delete, in the namespace or of the kind that the definition defines. `deleted` contains
/// the UIDs of the objects that the plan deletes. `None` for other kinds.
pub async fn reason_to_keep(
    cluster: &Cluster,
    deleted: &BTreeSet<String>,
    object: &ObjectRef,
    live: &Value,
) -> Outcome<Option<String>> {
    if object.is_namespace() {
        return content_of_namespace(cluster, deleted, &object.name).await;
    }
    if object.is_crd() {
        let Some(kind) = Kind::defined_by(live) else {
            return Ok(Some(unverified("the cluster serves no version of its kind")));
        };
        // The objects of a kind belong to anyone in the cluster, even those with an owner.
        let is_deleted = |item: &Value| has_uid_in(item, deleted);
        return first_other(cluster, &kind, None, &is_deleted).await;
    }
    Ok(None)
}

async fn content_of_namespace(
    cluster: &Cluster,
    deleted: &BTreeSet<String>,
    namespace: &str,
) -> Outcome<Option<String>> {
    let served = kinds::namespaced(cluster).await?;
    let mut dependents = Dependents { deleted, owners: BTreeSet::new(), services: BTreeSet::new() };
    dependents.owners.extend(served.kinds.iter().map(|kind| (kind.group(), kind.name())));
    let (mut services, service) = (BTreeSet::new(), Kind::service());
    let listed = visit(cluster, &service, Some(namespace), |item| {
        services.extend(metadata(item, "name").map(str::to_owned));
        false
    });
    match listed.await {
        Ok(_) => dependents.services = services,
        Err(error) => return unverifiable(&service, error).map(Some),
    }
    let dependents = &dependents;
    let kinds = served.kinds.iter().filter(|kind| !is_generated_kind(kind));
    let found: Vec<Option<String>> = stream::iter(kinds)
        .map(|kind| async move {
            let is_dependent = |item: &Value| dependents.contains(kind, item);
            first_other(cluster, kind, Some(namespace), &is_dependent).await
        })
        .buffered(CONCURRENCY)
        .try_collect()
        .await?;
    let unavailable = served.unavailable.first().map(|reason| unverified(reason));
    Ok(found.into_iter().flatten().next().or(unavailable))
}

/// Returns a reason that names the first object without `is_own`.
async fn first_other(
    cluster: &Cluster,
    kind: &Kind,
    namespace: Option<&str>,
    is_own: &(impl Fn(&Value) -> bool + Sync),
) -> Outcome<Option<String>> {
    let mut other = None;
    let visited = visit(cluster, kind, namespace, |item| {
        if !is_own(item) {
            other = Some(ObjectRef {
                api_version: kind.api_version().to_owned(),
                kind: kind.name().to_owned(),
                namespace: metadata(item, "namespace").map(str::to_owned),
                name: metadata(item, "name").unwrap_or_default().to_owned(),
            });
        }
        other.is_some()
    });
    let visited = visited.await;
    match (visited, other) {
        (_, Some(other)) => Ok(Some(format!("it contains {other}"))),
        (Ok(Visited::All), None) => Ok(None),
        (Ok(Visited::Some), None) => {
            Ok(Some(unverified(&format!("it has too many objects of the kind {}", kind.name()))))
        }
        // The kind was deleted after the discovery, together with its objects.
        (Err(error), None) if error.has_code(404) && namespace.is_some() => Ok(None),
        (Err(error), None) => unverifiable(kind, error).map(Some),
    }
}

fn unverified(reason: &str) -> String {
    format!("cannot verify that it is empty: {reason}")
}

/// Returns the reason to keep a container whose objects of this kind cannot be listed.
///
/// # Errors
/// Fails if the API server does not respond at all.
fn unverifiable(kind: &Kind, error: RequestError) -> Outcome<String> {
    let is_response = error.status().is_some();
    let failure = error.during(&format!("list the objects of the kind {}", kind.name()));
    match is_response {
        true => Ok(unverified(&failure.message)),
        false => Err(failure),
    }
}

/// Extent of a listing.
#[derive(Debug, PartialEq)]
enum Visited {
    All,
    Some,
}

/// Visits the metadata of all objects of a kind, until `stops` returns true.
async fn visit(
    cluster: &Cluster,
    kind: &Kind,
    namespace: Option<&str>,
    mut stops: impl FnMut(&Value) -> bool,
) -> Result<Visited, RequestError> {
    let mut next: Option<String> = None;
    for _ in 0..MAX_PAGES {
        let list = cluster.list_metadata(kind, namespace, PAGE, next.as_deref()).await?;
        for item in list["items"].as_array().into_iter().flatten() {
            if stops(item) {
                return Ok(Visited::Some);
            }
        }
        let more = metadata(&list, "continue").filter(|more| !more.is_empty());
        let Some(more) = more else { return Ok(Visited::All) };
        next = Some(more.to_owned());
    }
    Ok(Visited::Some)
}

/// Objects of a namespace that need no protection.
struct Dependents<'d> {
    /// UIDs of the objects that the plan deletes.
    deleted: &'d BTreeSet<String>,
    /// Group and kind of all namespaced kinds.
    owners: BTreeSet<(&'d str, &'d str)>,
    /// Names of the Services of the namespace.
    services: BTreeSet<String>,
}

impl Dependents<'_> {
    /// Returns whether the plan deletes the object, or a controller created it for the namespace or
    /// for another object of the namespace. That object is found itself.
    fn contains(&self, kind: &Kind, item: &Value) -> bool {
        let (name, annotations) = (metadata(item, "name"), &item["metadata"]["annotations"]);
        let is_generated = match (kind.group(), kind.name()) {
            ("", "ServiceAccount") => name == Some("default"),
            ("", "ConfigMap") => {
                name == Some("kube-root-ca.crt") || name == Some("openshift-service-ca.crt")
            }
            ("", "Secret") => annotations["kubernetes.io/service-account.uid"].is_string(),
            // The endpoints controller deletes the Endpoints of a deleted Service soon after it.
            ("", "Endpoints") => {
                name.is_some_and(|name| self.services.contains(name)) || is_of_controller(item)
            }
            _ => false,
        };
        is_generated || has_uid_in(item, self.deleted) || self.has_owner(item)
    }

    fn has_owner(&self, item: &Value) -> bool {
        let owners = item["metadata"]["ownerReferences"].as_array();
        let Some(owners) = owners.filter(|owners| !owners.is_empty()) else { return false };
        owners.iter().all(|owner| {
            let api_version = owner["apiVersion"].as_str().unwrap_or_default();
            let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
            self.owners.contains(&(group, owner["kind"].as_str().unwrap_or_default()))
        })
    }
}

/// Returns whether the controller manager of Kubernetes wrote the object.
fn is_of_controller(item: &Value) -> bool {
    let entries = item["metadata"]["managedFields"].as_array().into_iter().flatten();
    entries.into_iter().any(|entry| entry["manager"] == "kube-controller-manager")
}

fn has_uid_in(item: &Value, uids: &BTreeSet<String>) -> bool {
    metadata(item, "uid").is_some_and(|uid| uids.contains(uid))
}

/// Returns whether controllers write all objects of this kind.
fn is_generated_kind(kind: &Kind) -> bool {
    const GENERATED: [(&str, &str); 4] = [
        ("", "Event"),
        ("events.k8s.io", "Event"),
        ("coordination.k8s.io", "Lease"),
        ("metrics.k8s.io", "PodMetrics"),
    ];
    GENERATED.contains(&(kind.group(), kind.name()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn is_dependent(kind: &Kind, item: Value) -> bool {
        let deleted = BTreeSet::from(["own".to_owned()]);
        let owners = BTreeSet::from([("apps", "ReplicaSet"), ("", "Service")]);
        let services = BTreeSet::from(["web".to_owned()]);
        Dependents { deleted: &deleted, owners, services }
            .contains(kind, &json!({ "metadata": item }))
    }

    #[test]
    fn only_deleted_and_generated_objects_are_dependent() {
        let secret = Kind::secret();
        assert!(is_dependent(&secret, json!({ "name": "a", "uid": "own" })));
        // An object that the plan forgets is listed in the inventory, and must stay.
        assert!(!is_dependent(&secret, json!({ "name": "a", "uid": "kept" })));
        let token = json!({ "kubernetes.io/service-account.uid": "u" });
        assert!(is_dependent(&secret, json!({ "name": "default-token", "annotations": token })));
    }

    #[test]
    fn owner_must_be_an_object_of_the_namespace() {
        let owned_by = |api_version: &str, kind: &str| {
            let owner = json!({ "apiVersion": api_version, "kind": kind, "uid": "o" });
            is_dependent(&Kind::secret(), json!({ "name": "a", "ownerReferences": [owner] }))
        };
        assert!(owned_by("apps/v1", "ReplicaSet"));
        assert!(!owned_by("example.dev/v1", "ReplicaSet"), "the group is part of the kind");
        assert!(!owned_by("v1", "Node"));
    }

    #[test]
    fn handwritten_endpoints_and_leases_of_other_groups_are_not_generated() {
        let endpoints = Kind::of("v1", "Endpoints");
        assert!(is_dependent(&endpoints, json!({ "name": "web", "uid": "e" })));
        assert!(!is_dependent(&endpoints, json!({ "name": "database", "uid": "e" })));
        let managed =
            |manager: &str| json!({ "name": "deleted", "managedFields": [{ "manager": manager }] });
        assert!(is_dependent(&endpoints, managed("kube-controller-manager")));
        assert!(!is_dependent(&endpoints, managed("kubectl-create")));
        assert!(is_generated_kind(&Kind::of("coordination.k8s.io/v1", "Lease")));
        assert!(!is_generated_kind(&Kind::of("example.dev/v1", "Lease")));
        assert!(!is_generated_kind(&Kind::of("discovery.k8s.io/v1", "EndpointSlice")));
    }
}
