//! Plans: the changes that an apply or a destroy would make. A plan changes nothing.

use std::{collections::BTreeSet, path::Path};

use futures::{StreamExt, stream};
use schemas::plugin::{
    Action, AttributeDetails, Changes, ErrorCode, Operation, PlanDetails, ResourceChange,
    ResourceDetails,
};
use serde_json::Value;

use crate::{
    cluster::{CONCURRENCY, Cluster},
    decide::{Change, KNOWN_AFTER_APPLY, Purpose, Removal},
    details::{self, ObjectChange},
    evaluate::{self, Evaluated, Subject},
    failure::{Failure, Outcome, listed},
    fields,
    inventory::{Entry, EntryResult, Inventory},
    kinds::Kinds,
    kustomize, managed, manifest,
    object::{ObjectRef, metadata},
    obsolete,
    plan_file::{PlanFile, PlannedObject, PlannedRemoval},
    rejection::OwnWebhooks,
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
    let undesired: Vec<&Entry> =
        inventory.entries().iter().filter(|entry| !is_desired(entry)).collect();
    let recorded = undesired.iter().map(|entry| &entry.reference);
    let kinds = Kinds::load_recorded(&cluster, recorded).await?;
    let mut evaluated = obsolete::evaluate(&cluster, &kinds, undesired, purpose).await?;
    // Old clusters serve some objects in two groups, such as Ingresses. Such an object is desired.
    evaluated.retain(|one| one.uid().is_none_or(|uid| !live.contains(uid)));
    let removals = plan_removals(evaluated, &mut changes);
    changes.noop = changes.resources.is_empty();
    changes.details = changes.details.take().map(|details| details.within(details::LIMIT));
    let mark = inventory.mark();
    PlanFile::new(&cluster.manager, identity, mark, objects, removals).write(plan_file)?;
    Ok(changes)
}

async fn desired(component: &Component) -> Outcome<Vec<manifest::Desired>> {
    let settings = &component.settings;
    manifest::check(settings)?;
    match (&settings.manifest, &settings.kustomize) {
        (Some(text), _) => manifest::parse(text, manifest::file_name(settings)),
        (None, Some(kustomize)) => {
            match kustomize::shipped::read(&component.source_dir, kustomize)? {
                Some(objects) => Ok(objects),
                None => {
                    kustomize::build(&component.source_dir, &component.work_dir, kustomize).await
                }
            }
        }
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
    let webhooks = OwnWebhooks::of(resolved.iter().map(|one| (&one.reference, &one.object)));
    let options = (component.settings.take_ownership, &webhooks);
    let planned: Vec<Outcome<Planned>> = stream::iter(resolved)
        .map(|one| plan_object(cluster, inventory, one, options))
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
    let mut details = vec![];
    for Planned { object, attributes, fields } in &objects {
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
        details.push(ResourceDetails {
            address: address.clone(),
            action,
            attributes: fields.clone(),
            omitted: 0,
        });
        changes.resources.push(ResourceChange { address, action, attributes });
    }
    changes.details = Some(PlanDetails { resources: details, outputs: vec![], omitted: 0 });
    let live = objects.iter().filter_map(|one| one.object.uid.clone()).collect();
    Ok((objects.into_iter().map(|one| one.object).collect(), live))
}

struct Planned {
    object: PlannedObject,
    attributes: Vec<String>,
    /// Changed fields with their values.
    fields: Vec<AttributeDetails>,
}

async fn plan_object(
    cluster: &Cluster,
    inventory: &Inventory,
    resolved: Resolved,
    (take_ownership, webhooks): (bool, &OwnWebhooks),
) -> Outcome<Planned> {
    let Resolved { reference, object, place, kind } = resolved;
    let Some(kind) = kind else {
        return plan_unserved(cluster, inventory, reference, object).await;
    };
    let entry = inventory.entry(&reference);
    let (reference, object, chosen) = (&reference, &object, None);
    let kind = &kind;
    let subject = Subject { kind, reference, object, entry, take_ownership, webhooks, chosen };
    let evaluated = evaluate::evaluate(cluster, &subject).await.map_err(|failure| {
        let message = format!("{place}: {}", failure.message);
        Failure { message, ..failure }
    })?;
    let immutable = match evaluated.decision.change {
        Change::Replace => evaluated.decision.attributes.as_slice(),
        Change::None | Change::Create | Change::Update | Change::Adopt => &[],
    };
    let changed = ObjectChange {
        reference,
        before: evaluated.live.as_ref(),
        after: evaluated.after.as_ref().or(Some(object)),
        chosen: &evaluated.chosen,
        immutable,
    };
    // Without a dry run, only the fields of the manifest are known.
    let changed_fields = match evaluated.after {
        Some(_) => details::of(&changed),
        None => details::of_manifest(&changed),
    };
    let expected = evaluated.after.as_ref().map(fields::normalize);
    let uid = evaluated.uid().map(str::to_owned);
    let Evaluated { decision, chosen, changes, .. } = evaluated;
    let (reference, object) = (reference.clone(), object.clone());
    let change = decision.change;
    let object = PlannedObject { reference, change, uid, object, expected, chosen, changes };
    let attributes = shortened(decision.attributes);
    Ok(Planned { object, attributes, fields: changed_fields })
}

/// Plans an object whose kind or namespace the component itself creates. The object can exist in
/// another version of its kind, whose definition gains a version.
async fn plan_unserved(
    cluster: &Cluster,
    inventory: &Inventory,
    reference: ObjectRef,
    object: Value,
) -> Outcome<Planned> {
    let kinds = Kinds::load_recorded(cluster, [&reference].into_iter()).await?;
    let live = match kinds.recorded(&reference) {
        Some(kind) => cluster.live(kind, &reference).await?,
        None => None,
    };
    let is_listed = inventory.entry(&reference).is_some_and(|entry| entry.refers_to(live.as_ref()));
    let uid = live.as_ref().and_then(|live| metadata(live, "uid")).map(str::to_owned);
    let change = match &live {
        None => Change::Create,
        Some(live) if is_listed || managed::applied_fields(live, &cluster.manager).is_some() => {
            Change::Update
        }
        Some(_) => {
            return Err(Failure::refused(format!(
                "{reference} exists in another version of its kind, and this component does not \
                 own it; install its CustomResourceDefinition first"
            )));
        }
    };
    let changed = ObjectChange {
        reference: &reference,
        before: live.as_ref(),
        after: Some(&object),
        chosen: &[],
        immutable: &[],
    };
    let fields = details::of_manifest(&changed);
    let (expected, chosen, changes) = (None, vec![], vec![]);
    let object = PlannedObject { reference, change, uid, object, expected, chosen, changes };
    Ok(Planned { object, attributes: vec![KNOWN_AFTER_APPLY.into()], fields })
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

fn plan_removals(
    evaluated: Vec<obsolete::Evaluated<'_>>,
    changes: &mut Changes,
) -> Vec<PlannedRemoval> {
    let mut removals = vec![];
    for one in evaluated {
        let reference = one.entry.reference.clone();
        let (action, attributes, uid, stays) = match &one.removal {
            Removal::Gone => (None, vec![], None, None),
            Removal::Delete => {
                changes.destroy += 1;
                (Some(Action::Delete), vec![], one.uid().map(str::to_owned), None)
            }
            Removal::Forget(reason) => {
                report::log(format!("{reference} stays in the cluster: {reason}"));
                let attributes = vec![format!("stays: {reason}")];
                (Some(Action::Forget), attributes, None, Some(reason.clone()))
            }
        };
        if let Some(action) = action {
            let address = reference.to_string();
            if let Some(details) = &mut changes.details {
                let (address, attributes) = (address.clone(), vec![]);
                details.resources.push(ResourceDetails { address, action, attributes, omitted: 0 });
            }
            changes.resources.push(ResourceChange { address, action, attributes });
        }
        removals.push(PlannedRemoval { reference, wave: one.entry.wave, uid, stays });
    }
    removals
}
