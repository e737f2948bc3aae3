//! Live state, dry run and decision of one object. A plan and the start of its apply use the same
//! evaluation.

use serde_json::Value;

use crate::{
    cluster::{Cluster, RequestError},
    decide::{Candidate, Change, Decision, DryRun, decide},
    failure::{Failure, Outcome},
    fields,
    inventory::Entry,
    kinds::Kind,
    managed,
    object::{ObjectRef, metadata},
    plan_file::PlannedObject,
    rejection::{OwnWebhooks, absent_webhook, apply_failure, immutable_fields},
};

/// Object with its kind, before the evaluation.
pub struct Subject<'s> {
    pub kind: &'s Kind,
    pub reference: &'s ObjectRef,
    pub object: &'s Value,
    /// Entry of the inventory, if it lists the object.
    pub entry: Option<&'s Entry>,
    pub take_ownership: bool,
    pub webhooks: &'s OwnWebhooks,
    /// Paths whose values the server chooses, as the plan found them. A second dry run finds them
    /// if they are absent.
    pub chosen: Option<&'s [String]>,
}

/// Evaluation of one object.
#[derive(Debug)]
pub struct Evaluated {
    pub decision: Decision,
    pub live: Option<Value>,
    /// Object after the apply, as the dry run returned it. Absent for a replacement.
    pub after: Option<Value>,
    /// Paths whose values the server chooses.
    pub chosen: Vec<String>,
    /// Paths of the component's fields that the apply changes.
    pub changes: Vec<String>,
}

impl Evaluated {
    /// Returns the UID of the live object.
    pub fn uid(&self) -> Option<&str> {
        self.live.as_ref().and_then(|live| metadata(live, "uid"))
    }
}

/// Reads an object, applies it in a dry run and decides its change.
///
/// # Errors
/// [`Failure::refused`] with the reason why the object cannot be applied.
pub async fn evaluate(cluster: &Cluster, subject: &Subject<'_>) -> Outcome<Evaluated> {
    let Subject { kind, reference, object, entry, take_ownership, .. } = *subject;
    let (live, mut dry_run) = dry_run(cluster, subject).await?;
    let is_listed = entry.is_some_and(|entry| entry.refers_to(live.as_ref()));
    let is_own = is_listed
        || live
            .as_ref()
            .is_some_and(|live| managed::applied_fields(live, &cluster.manager).is_some());
    let mut is_forced = false;
    if let DryRun::Conflict(conflicts) = &dry_run
        && take_ownership
        && !is_own
        && managed::are_of_kubectl(conflicts)
    {
        let forced = cluster.forced_dry_run(kind, reference, object).await;
        let forced = forced.map_err(|error| apply_failure(reference, error))?;
        (dry_run, is_forced) = (DryRun::Applied(forced), true);
    }
    let chosen = match (subject.chosen, &dry_run) {
        (Some(chosen), _) => chosen.to_vec(),
        (None, DryRun::Applied(first)) if differs(live.as_ref(), first) => {
            let second = match is_forced {
                true => cluster.forced_dry_run(kind, reference, object).await,
                false => cluster.apply(kind, reference, object, true).await,
            };
            chosen(first, &second.map_err(|error| apply_failure(reference, error))?)
        }
        (None, _) => vec![],
    };
    let candidate = Candidate {
        object: reference,
        desired: object,
        live: live.as_ref(),
        dry_run: &dry_run,
        chosen: &chosen,
        manager: &cluster.manager,
        is_listed,
        take_ownership,
    };
    let decision = decide(&candidate).map_err(Failure::refused)?;
    let after = match dry_run {
        DryRun::Applied(after) if decision.change != Change::Replace => Some(after),
        DryRun::Applied(_) | DryRun::Conflict(_) | DryRun::Immutable(_) | DryRun::Unknown => None,
    };
    let changes = match (&live, &after) {
        (Some(live), Some(after)) => managed::changes(live, after, &cluster.manager, &chosen),
        (None, _) | (_, None) => Default::default(),
    };
    let changes = changes.into_iter().collect();
    Ok(Evaluated { decision, live, after, chosen, changes })
}

fn differs(live: Option<&Value>, after: &Value) -> bool {
    live.is_none_or(|live| fields::normalize(live) != fields::normalize(after))
}

/// Reads an object, then applies it in a dry run. A webhook that does not respond is an error,
/// unless the component itself contains it.
pub async fn dry_run(cluster: &Cluster, subject: &Subject<'_>) -> Outcome<(Option<Value>, DryRun)> {
    let Subject { kind, reference, object, webhooks, .. } = *subject;
    let live = cluster.live(kind, reference).await?;
    let dry_run = match cluster.apply(kind, reference, object, true).await {
        Ok(after) => DryRun::Applied(after),
        Err(error) => explain(reference, webhooks, live.is_some(), error)?,
    };
    Ok((live, dry_run))
}

/// Interprets the error of a dry run.
fn explain(
    reference: &ObjectRef,
    webhooks: &OwnWebhooks,
    exists: bool,
    error: RequestError,
) -> Outcome<DryRun> {
    let Some(status) = error.status() else { return Err(apply_failure(reference, error)) };
    let conflicts = managed::conflicts(status);
    if !conflicts.is_empty() {
        return Ok(DryRun::Conflict(conflicts));
    }
    if let Some(webhook) = absent_webhook(status) {
        return match webhooks.contain(&webhook) {
            true => Ok(DryRun::Unknown),
            false => Err(Failure::failed(format!(
                "cannot evaluate {reference}: the webhook {} does not respond; restore it, then \
                 plan again",
                webhook.name
            ))),
        };
    }
    if status.message.contains("does not support dry run") {
        return Ok(DryRun::Unknown);
    }
    match immutable_fields(reference, status).filter(|_| exists) {
        Some(fields) => Ok(DryRun::Immutable(fields)),
        None => Err(apply_failure(reference, error)),
    }
}

/// Returns the paths whose values the server chooses: those that differ between two dry runs.
pub fn chosen(first: &Value, second: &Value) -> Vec<String> {
    let (first, second) = (fields::normalize(first), fields::normalize(second));
    fields::differences(&first, &second).into_iter().collect()
}

/// Returns the paths of owned fields that differ from the expected state, except those whose values
/// the server chooses. `owned` has the format `FieldsV1`.
pub fn unexpected(
    owned: &Value,
    expected: &Value,
    actual: &Value,
    chosen: &[String],
) -> Vec<String> {
    let expected = managed::project(owned, &fields::normalize(expected));
    let actual = managed::project(owned, &fields::normalize(actual));
    let found = fields::differences(&expected, &actual).into_iter();
    found.filter(|path| !fields::is_below(path, chosen)).collect()
}

/// Returns the reason why an evaluation no longer matches the plan. Fields of other managers can
/// change at any time, such as the replicas of an autoscaled Deployment.
pub fn stale_reason(planned: &PlannedObject, now: &Evaluated, manager: &str) -> Option<String> {
    let reference = &planned.reference;
    if now.decision.change != planned.change {
        return Some(format!(
            "{reference}: the plan has {}, and now it would be {}",
            change_name(planned.change),
            change_name(now.decision.change)
        ));
    }
    if now.uid() != planned.uid.as_deref() {
        return Some(format!("{reference} was deleted and created again since the plan"));
    }
    let (Some(expected), Some(after)) = (&planned.expected, &now.after) else { return None };
    if planned.change == Change::None {
        return None;
    }
    let owned = managed::applied_fields(after, manager);
    let mut differing =
        owned.map(|owned| unexpected(owned, expected, after, &planned.chosen)).unwrap_or_default();
    differing.extend(planned.changes.iter().filter(|path| !now.changes.contains(path)).cloned());
    differing.extend(now.changes.iter().filter(|path| !planned.changes.contains(path)).cloned());
    differing.sort();
    differing.dedup();
    (!differing.is_empty())
        .then(|| format!("{reference} changed since the plan: {}", differing.join(", ")))
}

fn change_name(change: Change) -> &'static str {
    match change {
        Change::None => "no change",
        Change::Create => "create",
        Change::Update => "update",
        Change::Adopt => "adopt",
        Change::Replace => "replace",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const OWN: &str = "stead:ins_1/web";

    /// Deployment whose image the component sets, and whose replicas an autoscaler sets.
    fn web(image: &str, replicas: u32) -> Value {
        json!({ "metadata": { "uid": "u1", "managedFields": [{ "manager": OWN,
            "operation": "Apply", "fieldsV1": { "f:spec": { "f:image": {} } } }] },
            "spec": { "image": image, "replicas": replicas } })
    }

    fn evaluated(live: Value, after: Value) -> Evaluated {
        let changes = managed::changes(&live, &after, OWN, &[]).into_iter().collect();
        let decision = Decision { change: Change::Update, attributes: vec![] };
        Evaluated { decision, live: Some(live), after: Some(after), chosen: vec![], changes }
    }

    fn stale(now: &Evaluated, uid: &str) -> Option<String> {
        let planned = evaluated(web("web:1", 3), web("web:2", 3));
        let reference = ObjectRef {
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            namespace: Some("shop".into()),
            name: "web".into(),
        };
        let planned = PlannedObject {
            reference,
            change: Change::Update,
            uid: Some(uid.to_owned()),
            object: Value::Null,
            expected: planned.after.as_ref().map(fields::normalize),
            chosen: vec![],
            changes: planned.changes,
        };
        stale_reason(&planned, now, OWN)
    }

    #[test]
    fn autoscaled_object_does_not_make_the_plan_stale() {
        assert_eq!(stale(&evaluated(web("web:1", 5), web("web:2", 5)), "u1"), None);
    }

    #[test]
    fn other_results_and_other_objects_make_the_plan_stale() {
        let other = stale(&evaluated(web("web:1", 3), web("web:3", 3)), "u1").unwrap();
        assert!(other.contains("changed since the plan: spec.image"), "{other}");
        let another = stale(&evaluated(web("web:1", 3), web("web:2", 3)), "u0").unwrap();
        assert!(another.contains("created again"), "{another}");
        let mut none = evaluated(web("web:2", 3), web("web:2", 3));
        none.decision.change = Change::None;
        assert!(stale(&none, "u1").unwrap().contains("now it would be no change"));
    }

    #[test]
    fn chosen_and_foreign_values_are_expected() {
        let owned = json!({ "f:spec": { "f:image": {} } });
        let of = |chosen: &[String]| unexpected(&owned, &web("a", 1), &web("b", 2), chosen);
        assert_eq!(of(&[]), ["spec.image"]);
        assert!(of(&["spec.image".to_owned()]).is_empty());
        assert_eq!(chosen(&web("a", 1), &web("b", 1)), ["spec.image"]);
    }
}
