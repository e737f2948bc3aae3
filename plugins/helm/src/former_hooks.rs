//! Objects of hooks that ran before. Helm neither marks them with their release nor records them,
//! and leaves most of them in the cluster. So the inventory lists them.

use futures::{StreamExt, TryStreamExt, stream};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stead_plugin_kubernetes::{
    cluster::{CONCURRENCY, Cluster},
    decide::protection,
    failure::Outcome,
    kinds::Kinds,
    object::{ObjectRef, metadata},
};

use crate::{
    current::{Current, Details},
    decide, hooks, objects,
    plan_file::PlanFile,
    settings::ReleaseRef,
};

/// Object of a hook in the inventory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookEntry {
    #[serde(flatten)]
    pub reference: ObjectRef,
    /// UID. Absent if an operation was interrupted that may have created the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

impl HookEntry {
    fn refers_to(&self, live: &Value) -> bool {
        self.uid.is_none() || self.uid.as_deref() == metadata(live, "uid")
    }
}

/// Hooks that the component ran before.
pub struct FormerHooks<'f> {
    entries: &'f [HookEntry],
    /// Hooks of a release that another program changed, or that the component adopts.
    stored: Vec<ObjectRef>,
}

impl<'f> FormerHooks<'f> {
    pub fn of(details: &'f Details, current: &Current) -> Outcome<Self> {
        let is_newest = |last| last <= details.revision;
        let is_own =
            details.release.is_some() && current.last.is_none_or(|last| is_newest(last.version));
        let stored = if is_own { vec![] } else { stored(current)? };
        Ok(FormerHooks { entries: &details.hooks, stored })
    }

    /// Returns whether a former run created the live object of a hook.
    pub fn have(&self, reference: &ObjectRef, live: &Value, release: &ReleaseRef) -> bool {
        let mut known = self.entries.iter().filter(|entry| entry.reference.is_same(reference));
        known.any(|entry| entry.refers_to(live))
            || self.stored.iter().any(|one| objects::names(one, reference, release))
    }
}

/// Returns all hooks of the stored revisions, also those that only `helm test` runs.
fn stored(current: &Current) -> Outcome<Vec<ObjectRef>> {
    let mut found = vec![];
    for stored in current.release.iter().chain(&current.other) {
        found.extend(objects::hook_objects(stored.hooks())?.into_iter().map(|one| one.0));
    }
    Ok(found)
}

/// Adds the hooks that an operation may create.
pub fn begin(entries: &mut Vec<HookEntry>, plan: &PlanFile) {
    for hook in &plan.hooks {
        entries.retain(|entry| !entry.reference.is_same(&hook.reference));
        entries.push(HookEntry { reference: hook.reference.clone(), uid: None });
    }
}

/// Returns the entries whose objects exist after an operation, with their UIDs.
pub async fn existing(cluster: &Cluster, entries: &[HookEntry]) -> Outcome<Vec<HookEntry>> {
    let kinds = Kinds::load_recorded(cluster, entries.iter().map(|one| &one.reference)).await?;
    let kinds = &kinds;
    let read = stream::iter(entries).map(|entry| async move {
        let Some(kind) = kinds.recorded(&entry.reference) else { return Ok(None) };
        let live = cluster.live(kind, &entry.reference).await?;
        let live = live.filter(|live| hooks::is_hook(live) && entry.refers_to(live));
        Ok(live.map(|live| {
            let uid = metadata(&live, "uid").map(str::to_owned);
            HookEntry { reference: entry.reference.clone(), uid }
        }))
    });
    let read = read.buffered(CONCURRENCY).try_filter_map(|one| async move { Ok(one) });
    read.try_collect().await
}

/// Object of a hook at an uninstall.
#[derive(Debug)]
pub struct Leftover {
    pub reference: ObjectRef,
    /// Reason why the object stays. `None` if it does not exist.
    pub stays: Option<String>,
    /// UID of an object that may disappear with its namespace.
    pub uid: Option<String>,
}

/// Returns the objects of hooks that `helm uninstall` leaves in the cluster.
pub async fn leftovers(
    cluster: &Cluster,
    details: &Details,
    current: &Current,
    release: &ReleaseRef,
) -> Outcome<Vec<Leftover>> {
    let mut known: Vec<ObjectRef> =
        details.hooks.iter().map(|entry| entry.reference.clone()).collect();
    known.extend(stored(current)?);
    let kinds = Kinds::load_recorded(cluster, known.iter()).await?;
    let mut running = vec![];
    for hook in current.release.iter().flat_map(|stored| stored.hooks()) {
        if hook.events.iter().any(|event| event == "pre-delete" || event == "post-delete") {
            let policies = hooks::policies(hook);
            let objects = objects::hook_objects(std::slice::from_ref(hook))?.into_iter();
            running.extend(objects.map(|(reference, _)| (reference, policies.clone())));
        }
    }
    let mut found: Vec<Leftover> = vec![];
    for mut reference in known {
        let Some(kind) = kinds.recorded(&reference) else { continue };
        reference.namespace = match kind.is_namespaced {
            true => reference.namespace.or_else(|| Some(release.namespace.clone())),
            false => None,
        };
        if found.iter().any(|one| one.reference.is_same(&reference)) {
            continue;
        }
        let run = running.iter().find(|(run, _)| objects::names(run, &reference, release));
        if let Some((_, policies)) = run {
            let stays = hooks::stays_after_success(&reference, policies);
            let stays = stays.then(|| "Helm leaves this hook after its success".to_owned());
            found.push(Leftover { reference, stays, uid: None });
            continue;
        }
        let entry = details.hooks.iter().find(|entry| entry.reference.is_same(&reference));
        let live = cluster.live(kind, &reference).await?.filter(|live| {
            hooks::is_hook(live)
                && decide::other_owner(live, release).is_none()
                && entry.is_none_or(|entry| entry.refers_to(live))
        });
        let stays = live.as_ref().map(|_| "an uninstall does not delete hooks".to_owned());
        let live = live.filter(|live| protection(&reference, live).is_none());
        let uid = live.and_then(|live| metadata(&live, "uid").map(str::to_owned));
        found.push(Leftover { reference, stays, uid });
    }
    Ok(found)
}
