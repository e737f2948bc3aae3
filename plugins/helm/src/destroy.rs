//! Plans of an uninstall. Makes no change.

use std::{cmp::Reverse, collections::BTreeSet, path::Path};

use schemas::plugin::{Action, Changes, Operation};
use serde_json::Value;
use stead_plugin_kubernetes::{
    cluster::Cluster,
    content,
    decide::Removal,
    details::LIMIT,
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
    former_hooks::{self, FormerHooks, Leftover},
    hooks, objects, owner,
    plan_file::PlanFile,
    release,
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
    let removals = removals(cluster, (&inventory, &details, &current), &release).await?;
    let version = version::of(&access.helm).await?;
    let is_server_side = version.has_server_side_apply();
    let mut changes = Changes::default();
    summary::add_removals(&mut changes, &removals);
    let made = (cluster.manager.clone(), identity, version.to_string(), inventory.mark());
    let mut plan = PlanFile::new(made, Operation::Destroy, release.clone(), current.last);
    plan.is_server_side = is_server_side;
    if current.last.is_some() {
        let context = hooks::Context {
            cluster: &access.helm_manager(is_server_side),
            release: &release,
            former: FormerHooks::of(&details, &current)?,
            is_server_side,
            objects: vec![],
        };
        let stored = current.release.as_ref().map(|stored| stored.hooks()).unwrap_or_default();
        let runs = hooks::runs(cluster, (stored, stored), "delete", &release, &[]).await?;
        for hook in context.plan(runs).await? {
            plan.hooks.push(hook.to_plan());
            summary::add_hook(&mut changes, hook);
        }
        summary::add(&mut changes, (Action::Delete, &release), vec![], vec![]);
    }
    changes.noop = changes.resources.is_empty();
    changes.details = changes.details.take().map(|details| details.within(LIMIT));
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
    (inventory, details, current): (&Inventory, &Details, &Current),
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
    let mut leftovers = vec![];
    if current.last.is_some() {
        deleted.extend(release::uids(cluster, release).await?);
        leftovers = former_hooks::leftovers(cluster, details, current, release).await?;
        leftovers.retain(|one| !decided.iter().any(|(own, _, _)| own.is_same(&one.reference)));
        deleted.extend(leftovers.iter().filter_map(|one| one.uid.clone()));
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
    for Leftover { reference, stays, .. } in leftovers {
        let is_namespace = |one: &&PlannedRemoval| {
            one.reference.is_namespace()
                && Some(&one.reference.name) == reference.namespace.as_ref()
        };
        // The object disappears with a namespace of the release.
        let is_in_deleted =
            removals.iter().find(is_namespace).is_some_and(|namespace| namespace.uid.is_some());
        let stays = stays.filter(|_| !is_in_deleted);
        removals.push(PlannedRemoval { reference, wave: 0, uid: None, stays });
    }
    match errors.is_empty() {
        true => Ok(removals),
        false => Err(Failure::refused(listed("cannot uninstall the release", &errors))),
    }
}

/// Returns what Helm does with an object of the component.
fn listed_as(manifest: &[Desired], object: &ObjectRef, release: &ReleaseRef) -> Listed {
    match manifest.iter().find(|one| objects::names(&one.reference, object, release)) {
        None => Listed::No,
        Some(one) if decide::is_kept(&one.object) => Listed::Kept,
        Some(_) => Listed::Deleted,
    }
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
