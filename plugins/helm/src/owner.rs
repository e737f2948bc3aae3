//! Owner of a release, and the objects that belong to it.

use base64::{Engine, engine::general_purpose::STANDARD};
use kube::{api::ListParams, core::Request};
use serde::Deserialize;
use serde_json::Value;
use stead_plugin_kubernetes::{
    cluster::{Cluster, RequestError},
    failure::{Failure, Outcome},
    inventory::{self, Inventory},
    kinds::{Kind, Kinds},
    object::ObjectRef,
};

use crate::{
    access::Access,
    current::{Current, Details},
    objects,
    settings::{Component, ReleaseRef},
};

/// Number of inventories in one response. An inventory can have 1 MiB.
const PAGE: u32 = 50;

/// Refuses another release than that of the last apply, because the earlier release would remain
/// without an owner.
pub fn check_identity(details: &Details, wanted: &ReleaseRef) -> Outcome<()> {
    match &details.release {
        Some(earlier) if earlier != wanted => Err(Failure::refused(format!(
            "the component has {earlier} with the storage driver {}, but its config names {wanted} \
             with {}; restore chart_name, namespace and storage_driver, or tear down the component \
             first",
            earlier.driver.name(),
            wanted.driver.name()
        ))),
        Some(_) | None => Ok(()),
    }
}

/// Refuses an existing release that the component did not create.
pub async fn check_release(
    component: &Component,
    access: &Access,
    release: &ReleaseRef,
    details: &Details,
    current: &Current,
) -> Outcome<()> {
    if current.last.is_none() || details.release.is_some() {
        return Ok(());
    }
    match (component_of(&access.cluster, release).await, component.settings.take_ownership) {
        (Ok(Some(owner)), _) => Err(Failure::refused(format!(
            "{release} belongs to the Stead component {owner}; give one of the two another \
             chart_name or namespace"
        ))),
        (Ok(None), true) => Ok(()),
        (Err(failure), true) => Err(failure),
        // Without the right to list the inventories, the owner is unknown.
        (Ok(None) | Err(_), false) => Err(Failure::refused(format!(
            "{release} exists, and this component did not create it; set take_ownership = true to \
             adopt it, or choose another chart_name"
        ))),
    }
}

/// Returns the component whose inventory names the release, as `install/component`.
///
/// # Errors
/// The inventories cannot be listed. Then the release can belong to any component.
async fn component_of(cluster: &Cluster, release: &ReleaseRef) -> Outcome<Option<String>> {
    let path = Kind::secret().path(Some(inventory::NAMESPACE));
    let mut parameters = ListParams::default().limit(PAGE);
    loop {
        let list = match cluster.send(Request::new(&path).list(&parameters)).await {
            Ok(list) => list,
            Err(error) => return Err(cannot_list(release, error)),
        };
        let secrets = list["items"].as_array().into_iter().flatten();
        let mut owners = secrets.filter_map(|secret| owner_in(secret, release));
        if let Some(owner) = owners.next() {
            return Ok(Some(owner));
        }
        match list["metadata"]["continue"].as_str().filter(|next| !next.is_empty()) {
            Some(next) => parameters.continue_token = Some(next.to_owned()),
            None => return Ok(None),
        }
    }
}

fn cannot_list(release: &ReleaseRef, error: RequestError) -> Failure {
    let namespace = inventory::NAMESPACE;
    match error.is_denied() {
        true => Failure::failed(format!(
            "cannot find out which component owns {release}: RBAC denies list on secrets in \
             {namespace}; allow it for the kubeconfig's user"
        )),
        false => error.during(&format!("list the inventories in {namespace}")),
    }
}

/// Returns the component of an inventory that names the release.
fn owner_in(secret: &Value, release: &ReleaseRef) -> Option<String> {
    let content = STANDARD.decode(secret["data"][inventory::KEY].as_str()?).ok()?;
    let content: Value = serde_json::from_slice(&content).ok()?;
    let details = Details::deserialize(&content["details"]).ok()?;
    let text = |key: &str| content[key].as_str().unwrap_or_default().to_owned();
    let is_same = details
        .release
        .is_some_and(|own| (&own.namespace, &own.name) == (&release.namespace, &release.name));
    is_same.then(|| format!("{}/{}", text("install"), text("component")))
}

/// Returns the objects of the component: those of its inventory, and those of the stored manifests,
/// which another program may have changed.
pub async fn previous(
    cluster: &Cluster,
    inventory: &Inventory,
    current: &Current,
    release: &ReleaseRef,
) -> Outcome<Vec<ObjectRef>> {
    let mut all: Vec<ObjectRef> =
        inventory.entries().iter().map(|entry| entry.reference.clone()).collect();
    let mut desired = vec![];
    for stored in current.release.iter().chain(&current.other) {
        desired.extend(objects::parse(&stored.manifest)?);
    }
    let versions = desired.iter().map(|one| one.reference.api_version.as_str());
    let kinds = Kinds::load(cluster, versions).await?;
    for one in desired {
        let mut reference = one.reference;
        // Without its kind, the object no longer exists.
        let Some(kind) = kinds.get(&reference) else { continue };
        reference.namespace = match kind.is_namespaced {
            true => reference.namespace.or_else(|| Some(release.namespace.clone())),
            false => None,
        };
        if !all.iter().any(|known| known.is_same(&reference)) {
            all.push(reference);
        }
    }
    Ok(all)
}
