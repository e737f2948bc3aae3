//! Plans of an uninstall. Makes no change.

use std::{cmp::Reverse, collections::BTreeSet, path::Path};

use schemas::plugin::{Action, Changes, Operation};
use serde_json::Value;
use stead_plugin_kubernetes::{
    cluster::Cluster,
    content,
    decide::Removal,
    failure::{Failure, Outcome, listed},
    inventory::Inventory,
    kinds::Kinds,
    manifest::Desired,
    object::{ObjectRef, metadata},
    order,
    plan_file::PlannedRemoval,
};

use crate::{
    access::Access,
    current::{Current, Details},
    decide::{self, Listed},
    objects, owner,
    plan_file::PlanFile,
    release::{self, Hook},
    settings::{Component, ReleaseRef},
    summary, version,
};

/// Creates the plan of a destroy and writes it to `plan_file`.
pub async fn make(component: &Component, plan_file: &Path) -> Outcome<Changes> {
    let wanted = component.settings.release()?;
    let access = Access::open(component).await?;
    let cluster = &access.cluster;
    let inventory = Inventory::load(cluster, component).await?;
    let details = Details::of(&inventory);
    let identity = cluster.identity().await?;
    // Without an apply, the component has no release, even if one of this name exists.
    let release = details.release.clone().unwrap_or(wanted);
    let current = current(cluster, &release, &details).await?;
    let removals = removals(cluster, (&inventory, &current), &release).await?;
    let mut changes = Changes::default();
    summary::add_removals(&mut changes, &removals);
    let last = current.last;
    if last.is_some() {
        let hooks = current.release.as_ref().map(|stored| stored.hooks()).unwrap_or_default();
        add_hooks(&mut changes, hooks, &release)?;
        summary::add(&mut changes, Action::Delete, &release, vec![]);
    }
    changes.noop = changes.resources.is_empty();
    let version = version::of(&access.helm).await?.to_string();
    let made = (cluster.manager.clone(), identity, version, inventory.mark());
    let mut plan = PlanFile::new(made, Operation::Destroy, release, last);
    plan.removals = removals;
    plan.write(plan_file)?;
    Ok(changes)
}

/// Reads the release that an uninstall removes.
pub async fn current(
    cluster: &Cluster,
    release: &ReleaseRef,
    details: &Details,
) -> Outcome<Current> {
    match details.release {
        Some(_) => Current::load_newest(cluster, release, details).await,
        None => Ok(Current::default()),
    }
}

/// Decides about all objects of the component, in the order of their removal.
///
/// # Errors
/// Names the objects that Helm would delete although others use them.
pub async fn removals(
    cluster: &Cluster,
    (inventory, current): (&Inventory, &Current),
    release: &ReleaseRef,
) -> Outcome<Vec<PlannedRemoval>> {
    let manifest = current.release.as_ref().map_or("", |stored| stored.manifest.as_str());
    let manifest = objects::parse(manifest)?;
    let mut objects = owner::previous(cluster, inventory, current, release).await?;
    objects.sort_by_key(|one| Reverse(order::rank_of_kind(one, 0)));
    let kinds = Kinds::load_recorded(cluster, objects.iter()).await?;
    let (mut decided, mut errors) = (vec![], vec![]);
    for reference in objects {
        let live = match kinds.recorded(&reference) {
            Some(kind) => cluster.live(kind, &reference).await?,
            None => None,
        };
        let listed = listed_as(&manifest, &reference, release);
        let removal = match (reference.is_crd() && listed == Listed::No, &live) {
            (true, Some(_)) => {
                Ok(Removal::Forget("Helm never deletes definitions of crds/".into()))
            }
            (true, None) => Ok(Removal::Gone),
            (false, live) => decide::uninstall(&reference, live.as_ref(), release, listed),
        };
        match removal {
            Ok(removal) => decided.push((reference, live, removal)),
            Err(error) => errors.push(error),
        }
    }
    let deletes = decided.iter().filter(|(_, _, removal)| *removal == Removal::Delete);
    let uid_of = |live: &Option<Value>| {
        live.as_ref().and_then(|live| metadata(live, "uid")).map(str::to_owned)
    };
    let mut deleted: BTreeSet<String> = deletes.filter_map(|(_, live, _)| uid_of(live)).collect();
    if current.last.is_some() {
        deleted.extend(release::uids(cluster, release).await?);
    }
    let mut removals = vec![];
    for (reference, live, removal) in decided {
        if let (Removal::Delete, Some(live)) = (&removal, &live)
            && let Some(why) = content::reason_to_keep(cluster, &deleted, &reference, live).await?
        {
            errors.push(format!(
                "{reference} would be deleted with everything in it: {why}; remove that first, or \
                 add helm.sh/resource-policy: keep to {reference} in the chart and deploy it"
            ));
        }
        let (uid, stays) = match removal {
            Removal::Gone => (None, None),
            Removal::Delete => (uid_of(&live), None),
            Removal::Forget(reason) => (None, Some(reason)),
        };
        removals.push(PlannedRemoval { reference, wave: 0, uid, stays });
    }
    match errors.is_empty() {
        true => Ok(removals),
        false => Err(Failure::refused(listed("cannot uninstall the release", &errors))),
    }
}

/// Returns what Helm does with an object of the component.
fn listed_as(manifest: &[Desired], object: &ObjectRef, release: &ReleaseRef) -> Listed {
    let is_same = |one: &&Desired| {
        let own = &one.reference;
        let namespace = own.namespace.as_deref().unwrap_or(&release.namespace);
        (own.group(), &own.kind, &own.name) == (object.group(), &object.kind, &object.name)
            && object.namespace.as_deref().is_none_or(|of| of == namespace)
    };
    match manifest.iter().find(is_same) {
        None => Listed::No,
        Some(one) if decide::is_kept(&one.object) => Listed::Kept,
        Some(_) => Listed::Deleted,
    }
}

fn add_hooks(changes: &mut Changes, hooks: &[Hook], release: &ReleaseRef) -> Outcome<()> {
    for event in ["pre-delete", "post-delete"] {
        let running = hooks.iter().filter(|hook| hook.events.iter().any(|one| one == event));
        for hook in running {
            for (reference, _) in objects::hook_objects(std::slice::from_ref(hook))? {
                summary::add_hook(changes, &reference, event, hook, release);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::StorageDriver;

    #[test]
    fn an_object_of_another_namespace_is_not_that_of_the_manifest() {
        let text = "---\napiVersion: v1\nkind: Secret\nmetadata: {name: a}\n---\napiVersion: v1\nkind: \
                    Secret\nmetadata: {name: a, namespace: other, annotations: \
                    {helm.sh/resource-policy: keep}}\n";
        let manifest = objects::parse(text).unwrap();
        let driver = StorageDriver::Secret;
        let release = ReleaseRef { namespace: "shop".into(), name: "web".into(), driver };
        let of = |kind: &str, namespace: &str| {
            let (api_version, kind) = ("v1".to_owned(), kind.to_owned());
            let namespace = Some(namespace.to_owned());
            let object = ObjectRef { api_version, kind, namespace, name: "a".into() };
            listed_as(&manifest, &object, &release)
        };
        assert_eq!(of("Secret", "shop"), Listed::Deleted);
        assert_eq!(of("Secret", "other"), Listed::Kept);
        assert_eq!(of("Secret", "third"), Listed::No);
        assert_eq!(of("ConfigMap", "shop"), Listed::No);
    }
}
