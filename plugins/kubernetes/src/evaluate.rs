//! Live state, dry run and decision of one object. A plan and the start of its apply use the same
//! evaluation.

use kube::core::Status;
use serde_json::Value;

use crate::{
    cluster::{Cluster, RequestError},
    decide::{Candidate, Change, Decision, DryRun, decide},
    failure::{Failure, Outcome},
    fields,
    inventory::Entry,
    kinds::Kind,
    managed,
    object::ObjectRef,
};

/// Object with its kind, before the evaluation.
pub struct Subject<'s> {
    pub kind: &'s Kind,
    pub reference: &'s ObjectRef,
    pub object: &'s Value,
    /// Entry of the inventory, if it lists the object.
    pub entry: Option<&'s Entry>,
    pub take_ownership: bool,
}

/// Evaluation of one object.
#[derive(Debug)]
pub struct Evaluated {
    pub decision: Decision,
    pub live: Option<Value>,
    /// Object after the apply, as the dry run returned it.
    pub after: Option<Value>,
}

/// Reads an object, applies it in a dry run and decides its change.
///
/// # Errors
/// [`Failure::refused`] with the reason why the object cannot be applied.
pub async fn evaluate(cluster: &Cluster, subject: &Subject<'_>) -> Outcome<Evaluated> {
    let Subject { kind, reference, object, entry, take_ownership } = *subject;
    let (live, dry_run) = dry_run(cluster, kind, reference, object).await?;
    let candidate = Candidate {
        object: reference,
        live: live.as_ref(),
        dry_run: &dry_run,
        manager: &cluster.manager,
        is_listed: entry.is_some_and(|entry| entry.is_of(live.as_ref())),
        take_ownership,
    };
    let decision = decide(&candidate).map_err(Failure::refused)?;
    Ok(Evaluated { decision, live, after: dry_run.after() })
}

/// Reads an object and applies it in a dry run.
pub async fn dry_run(
    cluster: &Cluster,
    kind: &Kind,
    reference: &ObjectRef,
    object: &Value,
) -> Outcome<(Option<Value>, DryRun)> {
    let (live, applied) =
        tokio::join!(cluster.live(kind, reference), cluster.apply(kind, reference, object, true));
    let live = live?;
    let dry_run = match applied {
        Ok(after) => DryRun::Applied(after),
        Err(error) => explain(cluster, (kind, reference, object), live.is_some(), error).await?,
    };
    Ok((live, dry_run))
}

/// Interprets the error of a dry run.
async fn explain(
    cluster: &Cluster,
    (kind, reference, object): (&Kind, &ObjectRef, &Value),
    exists: bool,
    error: RequestError,
) -> Outcome<DryRun> {
    let Some(status) = error.status() else { return Err(apply_failure(reference, error)) };
    let conflicts = managed::conflicts(status);
    if !conflicts.is_empty() {
        return Ok(DryRun::Conflict(conflicts));
    }
    let is_webhook_absent = status.code == 500 && status.message.contains("failed calling");
    if is_webhook_absent || status.message.contains("does not support dry run") {
        return Ok(DryRun::Unknown);
    }
    if status.code == 422 && exists {
        // The server validates a new object before it checks for an existing one. A 409 therefore
        // means that the object is valid and only the change is not.
        let created = cluster.create_dry_run(kind, reference, object).await;
        if created.is_err_and(|error| error.has_code(409)) {
            return Ok(DryRun::Immutable(invalid_fields(status)));
        }
    }
    Err(apply_failure(reference, error))
}

/// Returns the failure of an apply. If the server rejects a Secret with 400 or 422, the message
/// omits the server's text, which can quote values.
pub fn apply_failure(reference: &ObjectRef, error: RequestError) -> Failure {
    let is_rejected = error.is_rejection();
    let text = match error.status() {
        Some(status) if status.code == 422 || status.code == 400 => {
            let withheld = || {
                let reason = if status.reason.is_empty() { "Invalid" } else { &status.reason };
                format!("{reason}; check its type, keys and base64 values")
            };
            invalid_text(status).or_else(|| reference.is_secret().then(withheld))
        }
        Some(_) | None => None,
    };
    match text {
        Some(text) => Failure::refused(format!("{reference} is invalid: {text}")),
        None => {
            let failure = error.during(&format!("apply {reference}"));
            if is_rejected { Failure::refused(failure.message) } else { failure }
        }
    }
}

fn invalid_fields(status: &Status) -> Vec<String> {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let mut fields: Vec<String> = causes.map(|cause| cause.field.clone()).collect();
    fields.retain(|field| !field.is_empty());
    fields.sort();
    fields.dedup();
    fields
}

/// Returns fields and reasons of an invalid object, without values. `None` if the response has no
/// details.
fn invalid_text(status: &Status) -> Option<String> {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let causes = causes.map(|cause| {
        let reason = without_value(&cause.message);
        match cause.field.is_empty() {
            true => reason,
            false => format!("{}: {reason}", cause.field),
        }
    });
    let causes: Vec<String> = causes.collect();
    (!causes.is_empty()).then(|| causes.join("; "))
}

/// Removes the value from a message such as `Invalid value: "x": must be a number`.
pub fn without_value(message: &str) -> String {
    let Some((kind, rest)) = message.split_once(" value: ") else { return message.to_owned() };
    let reason = if let Some(quoted) = rest.strip_prefix('"') {
        let mut escaped = false;
        let end = quoted.char_indices().find(|(_, c)| {
            let is_end = *c == '"' && !escaped;
            escaped = *c == '\\' && !escaped;
            is_end
        });
        end.and_then(|(at, _)| quoted.get(at + 1..)).unwrap_or_default()
    } else if let Some(at) = rest.rfind("}: ") {
        &rest[at + 1..]
    } else {
        rest.find(": ").map_or("", |at| &rest[at..])
    };
    format!("{kind} value{reason}")
}

/// Returns the paths whose values the server chooses: those that differ between two dry runs.
pub fn chosen(first: &Value, second: &Value) -> Vec<String> {
    let (first, second) = (fields::normalize(first), fields::normalize(second));
    fields::differences(&first, &second).into_iter().collect()
}

/// Returns the paths that differ from the expected state, except those that the server chooses.
pub fn unexpected(
    reference: &ObjectRef,
    expected: &Value,
    actual: &Value,
    chosen: &[String],
) -> Vec<String> {
    let is_chosen = |path: &String| {
        chosen.iter().any(|one| path.starts_with(one.as_str())) || is_allocated(reference, path)
    };
    fields::differences(expected, actual).into_iter().filter(|path| !is_chosen(path)).collect()
}

/// Returns whether the path is a field of a Service that the server allocates on creation. Each
/// dry run allocates other values.
fn is_allocated(reference: &ObjectRef, path: &str) -> bool {
    reference.is_kind("", "Service")
        && (path.starts_with("spec.clusterIP")
            || path.starts_with("spec.healthCheckNodePort")
            || (path.starts_with("spec.ports") && path.ends_with(".nodePort")))
}

/// Returns the reason why an evaluation no longer matches the plan.
pub fn stale_reason(
    reference: &ObjectRef,
    planned: (Change, Option<&Value>, &[String]),
    now: &Evaluated,
) -> Option<String> {
    let (change, expected, chosen) = planned;
    if now.decision.change != change {
        return Some(format!(
            "{reference}: the plan has {}, and now it would be {}",
            word(change),
            word(now.decision.change)
        ));
    }
    let (Some(expected), Some(after)) = (expected, &now.after) else { return None };
    if change == Change::None {
        return None;
    }
    let differing = unexpected(reference, expected, &fields::normalize(after), chosen);
    (!differing.is_empty())
        .then(|| format!("{reference} changed since the plan: {}", differing.join(", ")))
}

fn word(change: Change) -> &'static str {
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

    #[test]
    fn messages_of_invalid_objects_have_no_values() {
        for (message, expected) in [
            ("Invalid value: \"pa\\\"ss: word\": must be short", "Invalid value: must be short"),
            ("Invalid value: 0: must be greater", "Invalid value: must be greater"),
            (
                "Invalid value: core.Pod{A: \"x\"}: field is immutable",
                "Invalid value: field is immutable",
            ),
            (
                "Unsupported value: \"secret\": supported values: \"a\"",
                "Unsupported value: supported values: \"a\"",
            ),
            ("Required value", "Required value"),
        ] {
            assert_eq!(without_value(message), expected);
        }
    }

    #[test]
    fn rejection_of_a_secret_does_not_quote_it() {
        let reference = |kind: &str| ObjectRef {
            api_version: "v1".into(),
            kind: kind.into(),
            namespace: Some("shop".into()),
            name: "db".into(),
        };
        let status: Status = serde_json::from_value(json!({ "code": 400, "reason": "BadRequest",
            "message": "illegal base64 data, error found near |hunter2|" }))
        .unwrap();
        let of = |kind: &str| {
            let error = RequestError::Status(Box::new(status.clone()));
            apply_failure(&reference(kind), error).message
        };
        assert!(!of("Secret").contains("hunter2") && of("Secret").contains("BadRequest"));
        assert!(of("ConfigMap").contains("illegal base64"));
    }

    #[test]
    fn fields_that_the_server_chooses_do_not_count() {
        let service = ObjectRef {
            api_version: "v1".into(),
            kind: "Service".into(),
            namespace: Some("shop".into()),
            name: "web".into(),
        };
        let of = |ip: &str, node_port: u32, port: u32| {
            json!({ "spec": { "clusterIP": ip, "clusterIPs": [ip],
                              "ports": [{ "port": port, "nodePort": node_port }] } })
        };
        let none: &[String] = &[];
        assert!(unexpected(&service, &of("a", 1, 80), &of("b", 2, 80), none).is_empty());
        assert!(!unexpected(&service, &of("a", 1, 80), &of("a", 1, 81), none).is_empty());
        let job = ObjectRef { kind: "Job".into(), api_version: "batch/v1".into(), ..service };
        let uid = |uid: &str| json!({ "spec": { "selector": { "matchLabels": { "uid": uid } } } });
        let chosen = chosen(&uid("a"), &uid("b"));
        assert!(unexpected(&job, &uid("a"), &uid("c"), &chosen).is_empty());
        assert!(!unexpected(&job, &uid("a"), &uid("c"), none).is_empty());
    }
}
