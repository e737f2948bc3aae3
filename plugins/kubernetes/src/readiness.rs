//! Readiness of an object, by the rules of kstatus (`sigs.k8s.io/cli-utils/pkg/kstatus`). No I/O.

use serde_json::Value;

use crate::object::{ObjectRef, metadata};

/// Progress of an object towards its desired state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    Ready,
    /// The reason to wait.
    Progressing(String),
    /// The reason why waiting does not help.
    Failed(String),
}

/// Reason to wait for an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Barrier {
    /// The next wave starts. A Job must be complete.
    Wave,
    /// The apply ends. A Job must have started, because it can run for hours.
    End,
}

/// Returns the readiness of a live object.
pub fn readiness(reference: &ObjectRef, object: &Value, barrier: Barrier) -> Readiness {
    if metadata(object, "deletionTimestamp").is_some() {
        return progressing("it is being deleted");
    }
    let (generation, status) = (&object["metadata"]["generation"], &object["status"]);
    if let (Some(observed), Some(generation)) =
        (status["observedGeneration"].as_i64(), generation.as_i64())
        && observed < generation
    {
        return progressing("its controller has not observed the change");
    }
    match (reference.group(), reference.kind.as_str()) {
        ("apps", "Deployment") => deployment(object),
        ("apps", "StatefulSet") => stateful_set(object),
        ("apps", "DaemonSet") => daemon_set(object),
        ("apps", "ReplicaSet") => replica_set(object),
        ("", "Pod") => pod(object),
        ("", "PersistentVolumeClaim") => match status["phase"].as_str() {
            Some("Bound") => Readiness::Ready,
            phase => progressing(&format!("its phase is {}", phase.unwrap_or("unknown"))),
        },
        ("", "Service") => service(object),
        ("batch", "Job") => job(object, barrier),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => definition(object),
        ("apiregistration.k8s.io", "APIService") => match condition(object, "Available") {
            Some(("True", ..)) => Readiness::Ready,
            Some((_, _, message)) => {
                Readiness::Progressing(message_or(message, "it is not available"))
            }
            None => progressing("it is not available"),
        },
        _ => generic(object),
    }
}

fn progressing(reason: &str) -> Readiness {
    Readiness::Progressing(reason.to_owned())
}

/// Returns status, reason and message of a condition.
fn condition<'v>(object: &'v Value, kind: &str) -> Option<(&'v str, &'v str, &'v str)> {
    let mut conditions = object["status"]["conditions"].as_array()?.iter();
    let found = conditions.find(|condition| condition["type"] == kind)?;
    let text = |key: &str| found[key].as_str().unwrap_or_default();
    Some((text("status"), text("reason"), text("message")))
}

/// Returns the readiness of an object whose kind has no specific rules.
fn generic(object: &Value) -> Readiness {
    if let Some(("True", _, message)) = condition(object, "Stalled") {
        return Readiness::Failed(message_or(message, "it is stalled"));
    }
    if let Some(("True", _, message)) = condition(object, "Reconciling") {
        return Readiness::Progressing(message_or(message, "it is reconciling"));
    }
    match condition(object, "Ready") {
        Some(("True", ..)) | None => Readiness::Ready,
        Some((_, _, message)) => Readiness::Progressing(message_or(message, "it is not ready")),
    }
}

fn message_or(message: &str, default: &str) -> String {
    if message.is_empty() { default.to_owned() } else { message.to_owned() }
}

fn count(object: &Value, path: &[&str]) -> i64 {
    path.iter().fold(object, |value, key| &value[*key]).as_i64().unwrap_or_default()
}

fn desired_replicas(object: &Value) -> i64 {
    object["spec"]["replicas"].as_i64().unwrap_or(1)
}

/// Compares replica counts with the desired number, and reports the first that is too small.
fn replicas(desired: i64, counts: &[(i64, &str)]) -> Option<Readiness> {
    let short = counts.iter().find(|(found, _)| *found < desired)?;
    let (found, state) = short;
    Some(progressing(&format!("{found} of {desired} replicas are {state}")))
}

fn deployment(object: &Value) -> Readiness {
    if object["spec"]["paused"] == true {
        return paused_deployment(object);
    }
    if let Some((_, "ProgressDeadlineExceeded", message)) = condition(object, "Progressing") {
        return Readiness::Failed(message_or(message, "its progress deadline is exceeded"));
    }
    let status = |key| count(object, &["status", key]);
    let desired = desired_replicas(object);
    if object["status"]["observedGeneration"].is_null() {
        return progressing("its controller has not observed it");
    }
    let updated = status("updatedReplicas");
    if let Some(short) = replicas(desired, &[(updated, "updated")]) {
        return short;
    }
    if status("replicas") > updated {
        let old = status("replicas") - updated;
        return progressing(&format!("{old} old replicas remain"));
    }
    if let Some(surplus) = surplus(object) {
        return surplus;
    }
    let counts = [(status("availableReplicas"), "available"), (status("readyReplicas"), "ready")];
    replicas(desired, &counts).unwrap_or(Readiness::Ready)
}

/// Returns the readiness of a Deployment whose rollout is paused. New pods never start, so the
/// result depends only on whether the existing pods are those of the current template.
fn paused_deployment(object: &Value) -> Readiness {
    let updated = count(object, &["status", "updatedReplicas"]);
    match updated < desired_replicas(object) {
        true => {
            Readiness::Failed("it is paused (spec.paused), so its new replicas never start".into())
        }
        false => Readiness::Ready,
    }
}

/// Reports replicas beyond the desired number, which still run.
fn surplus(object: &Value) -> Option<Readiness> {
    let surplus = count(object, &["status", "replicas"]) - desired_replicas(object);
    (surplus > 0).then(|| progressing(&format!("{surplus} old replicas remain")))
}

fn stateful_set(object: &Value) -> Readiness {
    if object["spec"]["updateStrategy"]["type"] == "OnDelete" {
        return Readiness::Ready;
    }
    let status = |key| count(object, &["status", key]);
    let desired = desired_replicas(object);
    let counts = [(status("replicas"), "created"), (status("readyReplicas"), "ready")];
    if let Some(short) = replicas(desired, &counts) {
        return short;
    }
    if let Some(surplus) = surplus(object) {
        return surplus;
    }
    let partition = count(object, &["spec", "updateStrategy", "rollingUpdate", "partition"]);
    if partition > 0 {
        let updated = [(status("updatedReplicas"), "updated")];
        return replicas(desired - partition, &updated).unwrap_or(Readiness::Ready);
    }
    match object["status"]["currentRevision"] == object["status"]["updateRevision"] {
        true => Readiness::Ready,
        false => progressing("its replicas are being updated"),
    }
}

fn daemon_set(object: &Value) -> Readiness {
    if object["status"]["observedGeneration"].is_null() {
        return progressing("its controller has not observed it");
    }
    let status = |key| count(object, &["status", key]);
    // With OnDelete, a pod has the new template only after someone deletes the old pod.
    let is_manual = object["spec"]["updateStrategy"]["type"] == "OnDelete";
    let updated = if is_manual { i64::MAX } else { status("updatedNumberScheduled") };
    let counts = [
        (status("currentNumberScheduled"), "scheduled"),
        (updated, "updated"),
        (status("numberAvailable"), "available"),
        (status("numberReady"), "ready"),
    ];
    replicas(status("desiredNumberScheduled"), &counts).unwrap_or(Readiness::Ready)
}

fn replica_set(object: &Value) -> Readiness {
    if let Some(surplus) = surplus(object) {
        return surplus;
    }
    let status = |key| count(object, &["status", key]);
    let counts = [
        (status("fullyLabeledReplicas"), "labeled"),
        (status("availableReplicas"), "available"),
        (status("readyReplicas"), "ready"),
    ];
    replicas(desired_replicas(object), &counts).unwrap_or(Readiness::Ready)
}

fn pod(object: &Value) -> Readiness {
    match object["status"]["phase"].as_str() {
        Some("Succeeded") => Readiness::Ready,
        Some("Failed") => Readiness::Failed("it failed".into()),
        Some("Running") => match (condition(object, "Ready"), crashing(object)) {
            (Some(("True", ..)), _) => Readiness::Ready,
            (_, Some(container)) => {
                Readiness::Failed(format!("its container {container} is in CrashLoopBackOff"))
            }
            (_, None) => progressing("it is running and not ready"),
        },
        phase => progressing(&format!("its phase is {}", phase.unwrap_or("unknown"))),
    }
}

fn crashing(pod: &Value) -> Option<&str> {
    let statuses = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
    let mut crashing =
        statuses.filter(|container| container["state"]["waiting"]["reason"] == "CrashLoopBackOff");
    crashing.find_map(|container| container["name"].as_str())
}

fn service(object: &Value) -> Readiness {
    let (spec, status) = (&object["spec"], &object["status"]);
    let has_address = spec["clusterIP"].as_str().is_some_and(|ip| !ip.is_empty());
    let ingress = status["loadBalancer"]["ingress"].as_array();
    match spec["type"].as_str() {
        Some("LoadBalancer") if !has_address => progressing("it has no cluster IP"),
        Some("LoadBalancer") if ingress.is_none_or(Vec::is_empty) => {
            progressing("its load balancer has no address")
        }
        _ => Readiness::Ready,
    }
}

/// Returns the readiness of a Job. The next wave starts after its end, because it can depend on the
/// result.
fn job(object: &Value, barrier: Barrier) -> Readiness {
    match (condition(object, "Failed"), condition(object, "Complete")) {
        (Some(("True", _, message)), _) => {
            return Readiness::Failed(message_or(message, "it failed"));
        }
        (_, Some(("True", ..))) => return Readiness::Ready,
        _ => {}
    }
    let has_started = !object["status"]["startTime"].is_null();
    match (object["spec"]["suspend"] == true, barrier) {
        (true, Barrier::Wave) => {
            Readiness::Failed("it is suspended, and the next wave waits for its end".into())
        }
        (true, Barrier::End) => Readiness::Ready,
        (false, _) if !has_started => progressing("it has not started"),
        (false, Barrier::Wave) => progressing("it is running"),
        (false, Barrier::End) => Readiness::Ready,
    }
}

fn definition(object: &Value) -> Readiness {
    if let Some(("False", _, message)) = condition(object, "NamesAccepted") {
        return Readiness::Failed(message_or(message, "its names are not accepted"));
    }
    match condition(object, "Established") {
        Some(("True", ..)) => Readiness::Ready,
        _ => progressing("it is not established"),
    }
}

#[cfg(test)]
mod tests;
