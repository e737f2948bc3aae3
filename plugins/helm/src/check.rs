//! Checks before the first effect of an apply: every object and every removal is evaluated again, and a
//! change since the plan makes the plan stale.

use futures::{StreamExt, stream};
use schemas::plugin::{ErrorCode, Operation};
use serde_json::Value;
use stead_plugin_kubernetes::{
    cluster::{CONCURRENCY, Cluster},
    decide::{Change, Removal},
    evaluate,
    failure::{Failure, Outcome, listed},
    inventory::Inventory,
    kinds::Kinds,
    managed,
    rejection::OwnWebhooks,
    removal::stale_reason as stale_removal,
};

use crate::{
    access::{self, Access},
    current::{Current, Details},
    destroy,
    helm::Helm,
    plan::{self, Evaluated, Rules, evaluate_object},
    plan_file::{PlanFile, ReleaseObject},
    release,
};

/// Compares the version of Helm with that of the plan.
pub async fn version(helm: &Helm, planned: &str) -> Outcome<()> {
    let version = crate::version::of(helm).await?.to_string();
    match planned == version {
        true => Ok(()),
        false => Err(Failure::stale(format!(
            "the plan was made by Helm {planned}, and this runner has Helm {version}; plan again"
        ))),
    }
}

/// Compares the release with the plan. Returns the kinds of the objects.
pub async fn release_and_kinds(cluster: &Cluster, plan: &PlanFile) -> Outcome<Kinds> {
    let hooks = plan.hooks.iter().map(|one| &one.reference);
    let objects = plan.objects.iter().map(|one| &one.reference).chain(hooks);
    let versions = objects.map(|one| one.api_version.as_str());
    let removed = plan.removals.iter().map(|one| &one.reference).chain(&plan.kept);
    let (records, mut kinds, recorded) = tokio::try_join!(
        release::records(cluster, &plan.release),
        Kinds::load(cluster, versions),
        Kinds::load_recorded(cluster, removed)
    )?;
    if records.last() != plan.last.as_ref() {
        return Err(Failure::stale(format!(
            "another program changed {} after the plan; plan again",
            plan.release
        )));
    }
    kinds.extend(recorded);
    Ok(kinds)
}

/// Evaluates every object again.
///
/// # Errors
/// [`Failure::stale`] with the objects that changed since the plan.
pub async fn objects(
    access: &Access,
    kinds: &Kinds,
    plan: &PlanFile,
    take_ownership: bool,
) -> Outcome<()> {
    let manager = &access.helm_manager(plan.is_server_side);
    let objects = plan.objects.iter().map(|one| (&one.reference, &one.object));
    let webhooks = &OwnWebhooks::of(objects);
    let reasons: Vec<Outcome<Option<String>>> = stream::iter(&plan.objects)
        .map(|planned| async move {
            // Helm decides objects that the plan could not evaluate.
            let Some(expected) = &planned.expected else { return Ok(None) };
            let reference = &planned.reference;
            let Some(kind) = kinds.get(reference) else {
                return Ok(Some(format!("the cluster no longer serves {reference}")));
            };
            let (release, random) = (&plan.release, planned.random.as_slice());
            let rules = Rules { release, random, take_ownership, webhooks };
            match evaluate_object(manager, (kind, reference, &planned.object), &rules).await {
                Ok(now) => Ok(stale_reason(planned, expected, &now)),
                Err(failure) if failure.code == ErrorCode::Refused => Ok(Some(failure.message)),
                Err(failure) => Err(failure),
            }
        })
        .buffered(CONCURRENCY)
        .collect()
        .await;
    let reasons = reasons.into_iter().collect::<Outcome<Vec<_>>>()?;
    let reasons: Vec<String> = reasons.into_iter().flatten().collect();
    match reasons.is_empty() {
        true => Ok(()),
        false => Err(Failure::stale(listed("the cluster changed after the plan", &reasons))),
    }
}

/// Decides about every removal again. Helm deletes by name.
///
/// # Errors
/// [`Failure::stale`] with the objects whose removal the plan would now decide differently.
pub async fn removals(
    cluster: &Cluster,
    inventory: &Inventory,
    details: &Details,
    plan: &PlanFile,
) -> Outcome<()> {
    let release = &plan.release;
    let decided = match plan.operation {
        Operation::Apply => {
            let current = Current::load(cluster, release, details).await?;
            let removals = plan::removals(cluster, (inventory, &current), release, &plan.objects);
            removals.await.map(|(removals, _)| removals)
        }
        Operation::Destroy => {
            let current = destroy::current(cluster, release, details).await?;
            destroy::removals(cluster, (inventory, details, &current), release).await
        }
    };
    let now = match decided {
        Err(failure) if failure.code == ErrorCode::Refused => {
            return Err(Failure::stale(failure.message));
        }
        decided => decided?,
    };
    let reasons: Vec<String> = plan
        .removals
        .iter()
        .filter_map(|planned| {
            let now = now.iter().find(|one| one.reference.is_same(&planned.reference));
            let removal = now.map(|one| match (&one.uid, &one.stays) {
                (Some(_), _) => Removal::Delete,
                (None, Some(reason)) => Removal::Forget(reason.clone()),
                (None, None) => Removal::Gone,
            });
            stale_removal(planned, removal.as_ref(), now.and_then(|one| one.uid.as_deref()))
        })
        .collect();
    match reasons.is_empty() {
        true => Ok(()),
        false => Err(Failure::stale(listed("the cluster changed after the plan", &reasons))),
    }
}

/// Returns why an evaluation no longer matches the plan. Fields of other managers can change at any
/// time, such as the replicas of an autoscaled Deployment.
fn stale_reason(planned: &ReleaseObject, expected: &Value, now: &Evaluated) -> Option<String> {
    let reference = &planned.reference;
    if now.decision.change != planned.change {
        return Some(format!("{reference} changed since the plan"));
    }
    if planned.change == Change::None {
        return None;
    }
    let after = now.after.as_ref()?;
    // The dry run returns the fields that Helm applies.
    let all = Value::Null;
    let owned = managed::applied_fields(after, access::MANAGER).unwrap_or(&all);
    let differing = evaluate::unexpected(owned, expected, after, &planned.chosen);
    (!differing.is_empty())
        .then(|| format!("{reference} changed since the plan: {}", differing.join(", ")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use stead_plugin_kubernetes::{decide::Decision, fields, object::ObjectRef};

    use super::*;

    /// Deployment whose image Helm applies, and whose replicas an autoscaler sets.
    fn web(image: &str, replicas: u32) -> Value {
        json!({ "metadata": { "managedFields": [{ "manager": "helm", "operation": "Apply",
            "fieldsV1": { "f:spec": { "f:image": {} } } }] },
            "spec": { "image": image, "replicas": replicas } })
    }

    #[test]
    fn only_fields_of_the_release_make_a_plan_stale() {
        let expected = fields::normalize(&web("web:2", 3));
        let planned = ReleaseObject {
            reference: ObjectRef {
                api_version: "apps/v1".into(),
                kind: "Deployment".into(),
                namespace: Some("shop".into()),
                name: "web".into(),
            },
            change: Change::Update,
            object: Value::Null,
            expected: Some(expected.clone()),
            chosen: vec![],
            random: vec![],
        };
        let stale = |after: Value| {
            let decision = Decision { change: Change::Update, attributes: vec![] };
            let now = Evaluated { decision, live: None, after: Some(after) };
            stale_reason(&planned, &expected, &now)
        };
        assert_eq!(stale(web("web:2", 5)), None, "an autoscaler");
        assert!(stale(web("web:3", 3)).unwrap().ends_with("changed since the plan: spec.image"));
        // Without managed fields, every field counts.
        let bare = json!({ "spec": { "image": "web:2", "replicas": 5 } });
        assert!(stale(bare).unwrap().ends_with("spec.replicas"));
    }
}
