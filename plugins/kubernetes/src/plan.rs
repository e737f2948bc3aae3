//! Plans: the changes that an apply or a destroy would make. A plan changes nothing.

use std::{cmp::Reverse, collections::BTreeSet, path::Path};

use futures::{StreamExt, TryStreamExt, stream};
use schemas::plugin::{Action, Changes, ErrorCode, Operation, ResourceChange};
use serde_json::Value;

use crate::{
    cluster::{CONCURRENCY, Cluster},
    content,
    decide::{Change, KNOWN_AFTER_APPLY, Obsolete, Purpose, Removal, remove},
    evaluate::{self, Subject},
    failure::{Failure, Outcome, listed},
    fields,
    inventory::{Entry, EntryResult, Inventory},
    kinds::Kinds,
    kustomize, manifest,
    object::{ObjectRef, metadata},
    order,
    plan_file::{PlanFile, PlannedObject, PlannedRemoval},
    report,
    resolve::{self, Resolved},
    settings::Component,
};

/// Attribute of an unchanged object that was not ready after an earlier apply.
const NOT_READY: &str = "not ready after the last apply";

/// Creates a plan and writes it to `plan_file`.
pub async fn make(component: &Component, plan_file: &Path) -> Outcome<Changes> {
    let cluster = Cluster::connect(component).await?;
    let identity = cluster.identity().await?;
    let inventory = Inventory::load(&cluster, component).await?;
    let (purpose, desired) = match component.operation {
        Operation::Apply => (Purpose::Prune, desired(component).await?),
        Operation::Destroy => (Purpose::Destroy, vec![]),
    };
    let versions = desired.iter().map(|one| one.reference.api_version.as_str());
    let kinds = Kinds::load(&cluster, versions).await?;
    let namespace = component.settings.namespace.as_deref();
    let resolved = resolve::resolve(&cluster, &kinds, desired, namespace).await?;
    let mut changes = Changes::default();
    let (objects, live) =
        plan_objects(&cluster, component, &inventory, resolved, &mut changes).await?;
    let is_desired =
        |entry: &&Entry| objects.iter().any(|one| one.reference.is_same(&entry.reference));
    let obsolete: Vec<&Entry> =
        inventory.entries().iter().filter(|entry| !is_desired(entry)).collect();
    let obsolete = find_all(&cluster, &inventory, obsolete, purpose).await?;
    // Old clusters serve some objects in two groups, such as Ingresses. Such an object is desired.
    let obsolete = obsolete.into_iter().filter(|one| !one.has_uid_of(&live)).collect();
    let removals = plan_removals(&cluster, obsolete, purpose, &mut changes);
    changes.noop = changes.resources.is_empty();
    let mark = inventory.mark();
    PlanFile::new(&cluster.manager, identity, mark, objects, removals).write(plan_file)?;
    Ok(changes)
}

async fn desired(component: &Component) -> Outcome<Vec<manifest::Desired>> {
    let settings = &component.settings;
    manifest::check(settings)?;
    match (&settings.manifest, &settings.kustomize) {
        (Some(text), _) => manifest::parse(text, manifest::file_name(settings)),
        (None, Some(kustomize)) => kustomize::build(component, kustomize).await,
        (None, None) => Ok(vec![]),
    }
}

/// Plans the desired objects, and returns the UIDs of those that exist.
async fn plan_objects(
    cluster: &Cluster,
    component: &Component,
    inventory: &Inventory,
    resolved: Vec<Resolved>,
    changes: &mut Changes,
) -> Outcome<(Vec<PlannedObject>, BTreeSet<String>)> {
    let take_ownership = component.settings.take_ownership;
    let planned: Vec<Outcome<Planned>> = stream::iter(resolved)
        .map(|one| plan_object(cluster, inventory, one, take_ownership))
        .buffered(CONCURRENCY)
        .collect()
        .await;
    let (mut objects, mut errors) = (vec![], vec![]);
    for one in planned {
        match one {
            Ok(one) => objects.push(one),
            Err(failure) => errors.push(failure),
        }
    }
    if !errors.is_empty() {
        // A failed request, such as denied access, is not an error in the inputs.
        let code = errors.iter().map(|error| error.code).find(|code| *code != ErrorCode::Refused);
        let lines: Vec<String> = errors.into_iter().map(|error| error.message).collect();
        let message = listed("cannot apply the manifest", &lines);
        return Err(match code {
            Some(code) => Failure { code, message },
            None => Failure::refused(message),
        });
    }
    for Planned { object, attributes, .. } in &objects {
        let (reference, attributes) = (&object.reference, attributes.clone());
        let entry = inventory.entry(reference);
        let attributes = match (object.change, entry.map(|entry| entry.result)) {
            (Change::None, Some(EntryResult::Ready)) => continue,
            (Change::None, _) => vec![NOT_READY.to_owned()],
            (Change::Create | Change::Update | Change::Adopt | Change::Replace, _) => attributes,
        };
        let action = match object.change {
            Change::Create => {
                changes.add += 1;
                Action::Create
            }
            Change::None | Change::Update => {
                changes.change += 1;
                Action::Update
            }
            Change::Adopt => {
                changes.change += 1;
                Action::Adopt
            }
            Change::Replace => {
                changes.add += 1;
                changes.destroy += 1;
                Action::Replace
            }
        };
        let address = reference.to_string();
        changes.resources.push(ResourceChange { address, action, attributes });
    }
    let live = objects.iter().filter_map(|one| one.uid.clone()).collect();
    Ok((objects.into_iter().map(|one| one.object).collect(), live))
}

struct Planned {
    object: PlannedObject,
    attributes: Vec<String>,
    /// UID of the live object.
    uid: Option<String>,
}

async fn plan_object(
    cluster: &Cluster,
    inventory: &Inventory,
    resolved: Resolved,
    take_ownership: bool,
) -> Outcome<Planned> {
    let Resolved { reference, object, place, kind } = resolved;
    let Some(kind) = kind else {
        let change = Change::Create;
        let object = PlannedObject { reference, change, object, expected: None, chosen: vec![] };
        return Ok(Planned { object, attributes: vec![KNOWN_AFTER_APPLY.into()], uid: None });
    };
    let entry = inventory.entry(&reference);
    let subject =
        Subject { kind: &kind, reference: &reference, object: &object, entry, take_ownership };
    let evaluated = evaluate::evaluate(cluster, &subject).await.map_err(|failure| {
        let message = format!("{place}: {}", failure.message);
        Failure { message, ..failure }
    })?;
    let chosen = match (&evaluated.live, &evaluated.after) {
        (None, Some(first)) => match cluster.apply(&kind, &reference, &object, true).await {
            Ok(second) => evaluate::chosen(first, &second),
            Err(error) => return Err(evaluate::apply_failure(&reference, error)),
        },
        (Some(_), _) | (None, None) => vec![],
    };
    let expected = evaluated.after.as_ref().map(fields::normalize);
    let uid = evaluated.live.as_ref().and_then(|live| metadata(live, "uid")).map(str::to_owned);
    let (change, attributes) = (evaluated.decision.change, evaluated.decision.attributes);
    let object = PlannedObject { reference, change, object, expected, chosen };
    Ok(Planned { object, attributes: shortened(attributes), uid })
}

/// Maximum number of attributes of one object in a summary.
const MAX_ATTRIBUTES: usize = 50;

fn shortened(mut attributes: Vec<String>) -> Vec<String> {
    let more = attributes.len().saturating_sub(MAX_ATTRIBUTES);
    if more > 0 {
        attributes.truncate(MAX_ATTRIBUTES);
        attributes.push(format!("and {more} more"));
    }
    attributes
}

/// Object of the inventory with its live state.
struct Found<'i> {
    entry: &'i Entry,
    live: Option<Value>,
    content: Option<String>,
}

impl Found<'_> {
    fn has_uid_of(&self, live: &BTreeSet<String>) -> bool {
        let uid = self.live.as_ref().and_then(|object| metadata(object, "uid"));
        uid.is_some_and(|uid| live.contains(uid))
    }
}

/// Reads the live state of objects, in the order of their removal.
async fn find_all<'i>(
    cluster: &Cluster,
    inventory: &Inventory,
    entries: Vec<&'i Entry>,
    purpose: Purpose,
) -> Outcome<Vec<Found<'i>>> {
    let recorded = entries.iter().map(|entry| &entry.reference);
    let kinds = Kinds::load_recorded(cluster, recorded).await?;
    let mut found: Vec<Found<'i>> = stream::iter(entries)
        .map(|entry| find(cluster, &kinds, inventory, entry, purpose))
        .buffered(CONCURRENCY)
        .try_collect()
        .await?;
    found.sort_by_key(|one| Reverse(order::rank_of_kind(&one.entry.reference, one.entry.wave)));
    Ok(found)
}

async fn find<'i>(
    cluster: &Cluster,
    kinds: &Kinds,
    inventory: &Inventory,
    entry: &'i Entry,
    purpose: Purpose,
) -> Outcome<Found<'i>> {
    let object: &ObjectRef = &entry.reference;
    // If the cluster does not serve the kind, it has no object of that kind.
    let live = match kinds.recorded(object) {
        Some(kind) => cluster.live(kind, object).await?,
        None => None,
    };
    let content = match (&live, purpose) {
        (Some(live), Purpose::Destroy) => content::of(cluster, inventory, object, live).await?,
        (Some(_), Purpose::Prune) | (None, _) => None,
    };
    Ok(Found { entry, live, content })
}

fn plan_removals(
    cluster: &Cluster,
    obsolete: Vec<Found<'_>>,
    purpose: Purpose,
    changes: &mut Changes,
) -> Vec<PlannedRemoval> {
    let mut removals = vec![];
    for Found { entry, live, content } in obsolete {
        let reference = entry.reference.clone();
        let obsolete = Obsolete {
            object: &reference,
            uid: entry.uid.as_deref(),
            live: live.as_ref(),
            manager: &cluster.manager,
            purpose,
            content: content.as_deref(),
        };
        let (action, attributes, uid, stays) = match remove(&obsolete) {
            Removal::Gone => (None, vec![], None, None),
            Removal::Delete => {
                changes.destroy += 1;
                let uid = live.as_ref().and_then(|live| metadata(live, "uid"));
                (Some(Action::Delete), vec![], uid.map(str::to_owned), None)
            }
            Removal::Forget(reason) => {
                report::log(format!("{reference} stays in the cluster: {reason}"));
                (Some(Action::Forget), vec![format!("stays: {reason}")], None, Some(reason))
            }
        };
        if let Some(action) = action {
            let address = reference.to_string();
            changes.resources.push(ResourceChange { address, action, attributes });
        }
        removals.push(PlannedRemoval { reference, wave: entry.wave, uid, stays });
    }
    removals
}
