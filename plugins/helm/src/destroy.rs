//! Plans of an uninstall. Makes no change.

use std::{cmp::Reverse, path::Path};

use schemas::plugin::{Action, Changes, Operation};
use stead_plugin_kubernetes::{
    decide::Removal,
    failure::{Failure, Outcome, listed},
    inventory::Inventory,
    kinds::Kinds,
    object::metadata,
    order,
    plan_file::PlannedRemoval,
};

use crate::{
    access::Access,
    current::{Current, Details},
    decide, objects, owner,
    plan_file::PlanFile,
    release::Hook,
    settings::Component,
    summary,
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
    let current = match details.release {
        Some(_) => Current::load(cluster, &release, &details).await?,
        None => Current::default(),
    };
    let stored = current.release.as_ref();
    let manifest = objects::parse(stored.map_or("", |stored| &stored.manifest))?;
    let is_in_manifest = |kind: &str, name: &str, is_kept: bool| {
        manifest.iter().any(|one| {
            (one.reference.kind.as_str(), one.reference.name.as_str()) == (kind, name)
                && (!is_kept || decide::is_kept(&one.object))
        })
    };
    let mut changes = Changes::default();
    let mut objects = owner::previous(cluster, &inventory, &current, &release).await?;
    objects.sort_by_key(|one| Reverse(order::rank_of_kind(one, 0)));
    let kinds = Kinds::load_recorded(cluster, objects.iter()).await?;
    let (mut removals, mut errors) = (vec![], vec![]);
    for reference in objects {
        let live = match kinds.recorded(&reference) {
            Some(kind) => cluster.live(kind, &reference).await?,
            None => None,
        };
        let (kind, name) = (&reference.kind, &reference.name);
        let is_definition = reference.is_crd() && !is_in_manifest(kind, name, false);
        let removal = match (is_definition, &live) {
            (true, Some(_)) => {
                Ok(Removal::Forget("Helm never deletes definitions of crds/".into()))
            }
            (true, None) => Ok(Removal::Gone),
            (false, live) => {
                let is_kept = is_in_manifest(kind, name, true);
                // An object that an upgrade marked as kept is not in the manifest any more.
                let is_marked = !is_in_manifest(kind, name, false)
                    && live.as_ref().is_some_and(decide::is_kept);
                decide::uninstall(&reference, live.as_ref(), &release, is_kept || is_marked)
            }
        };
        let uid = live.as_ref().and_then(|live| metadata(live, "uid")).map(str::to_owned);
        let (uid, stays) = match removal {
            Err(error) => {
                errors.push(error);
                continue;
            }
            Ok(Removal::Gone) => (None, None),
            Ok(Removal::Delete) => (uid, None),
            Ok(Removal::Forget(reason)) => (None, Some(reason)),
        };
        summary::add_removal(&mut changes, &reference, uid.is_some(), stays.as_deref());
        removals.push(PlannedRemoval { reference, wave: 0, uid, stays });
    }
    if !errors.is_empty() {
        return Err(Failure::refused(listed("cannot uninstall the release", &errors)));
    }
    let last = current.last;
    if last.is_some() {
        let hooks = stored.map(|stored| stored.hooks()).unwrap_or_default();
        add_hooks(&mut changes, hooks, &release)?;
        summary::add(&mut changes, Action::Delete, &release, vec![]);
    }
    changes.noop = changes.resources.is_empty();
    let made = (cluster.manager.clone(), identity, inventory.mark());
    let mut plan = PlanFile::new(made, Operation::Destroy, release, last);
    plan.removals = removals;
    plan.write(plan_file)?;
    Ok(changes)
}

fn add_hooks(
    changes: &mut Changes,
    hooks: &[Hook],
    release: &crate::settings::ReleaseRef,
) -> Outcome<()> {
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
