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
mod tests {
    use serde_json::json;

    use super::*;

    fn of(api_version: &str, kind: &str, object: Value) -> Readiness {
        let reference = ObjectRef {
            api_version: api_version.into(),
            kind: kind.into(),
            namespace: None,
            name: "a".into(),
        };
        readiness(&reference, &object, Barrier::End)
    }

    fn waits(readiness: Readiness, part: &str) {
        assert!(
            matches!(&readiness, Readiness::Progressing(reason) if reason.contains(part)),
            "{readiness:?} does not contain {part}"
        );
    }

    fn web(status: Value) -> Readiness {
        let object =
            json!({ "metadata": { "generation": 2 }, "spec": { "replicas": 2 }, "status": status });
        of("apps/v1", "Deployment", object)
    }

    #[test]
    fn deployment_waits_for_all_new_replicas() {
        waits(web(json!({})), "not observed it");
        waits(web(json!({ "observedGeneration": 1 })), "not observed the change");
        let status = |updated, total, available| {
            json!({ "observedGeneration": 2, "updatedReplicas": updated, "replicas": total,
                    "availableReplicas": available, "readyReplicas": available })
        };
        waits(web(status(1, 2, 2)), "1 of 2 replicas are updated");
        waits(web(status(2, 3, 2)), "1 old replicas");
        waits(web(status(2, 2, 0)), "0 of 2 replicas are available");
        assert_eq!(web(status(2, 2, 2)), Readiness::Ready);
        let exceeded = json!({ "observedGeneration": 2, "conditions": [{ "type": "Progressing",
            "status": "False", "reason": "ProgressDeadlineExceeded", "message": "too slow" }] });
        assert_eq!(web(exceeded), Readiness::Failed("too slow".into()));
    }

    #[test]
    fn stateful_set_waits_for_its_revision() {
        let set = |ready, current: &str| {
            of(
                "apps/v1",
                "StatefulSet",
                json!({ "spec": { "replicas": 1 }, "status": {
                "replicas": 1, "readyReplicas": ready, "currentRevision": current,
                "updateRevision": "r2" } }),
            )
        };
        waits(set(0, "r2"), "0 of 1 replicas are ready");
        waits(set(1, "r1"), "updated");
        assert_eq!(set(1, "r2"), Readiness::Ready);
    }

    #[test]
    fn pod_that_crashes_fails() {
        let pod = |status: Value| of("v1", "Pod", json!({ "status": status }));
        waits(pod(json!({ "phase": "Pending" })), "Pending");
        let crash = json!({ "phase": "Running", "containerStatuses": [
            { "name": "web", "state": { "waiting": { "reason": "CrashLoopBackOff" } } }] });
        assert!(matches!(pod(crash), Readiness::Failed(reason) if reason.contains("web")));
        let ready = json!({ "phase": "Running",
                            "conditions": [{ "type": "Ready", "status": "True" }] });
        assert_eq!(pod(ready), Readiness::Ready);
    }

    #[test]
    fn other_objects_follow_their_conditions() {
        assert_eq!(of("v1", "ConfigMap", json!({})), Readiness::Ready);
        let widget = |status: &str| {
            of(
                "example.dev/v1",
                "Widget",
                json!({ "status": { "conditions": [
                { "type": "Ready", "status": status, "message": "no disk" }] } }),
            )
        };
        waits(widget("False"), "no disk");
        assert_eq!(widget("True"), Readiness::Ready);
        let claim = |phase: &str| {
            of("v1", "PersistentVolumeClaim", json!({ "status": { "phase": phase } }))
        };
        waits(claim("Pending"), "Pending");
        assert_eq!(claim("Bound"), Readiness::Ready);
        let balancer = json!({ "spec": { "type": "LoadBalancer", "clusterIP": "10.0.0.1" } });
        waits(of("v1", "Service", balancer), "no address");
        waits(of("batch/v1", "Job", json!({})), "not started");
        let crd =
            json!({ "status": { "conditions": [{ "type": "Established", "status": "True" }] } });
        assert_eq!(
            of("apiextensions.k8s.io/v1", "CustomResourceDefinition", crd),
            Readiness::Ready
        );
        waits(
            of("v1", "ConfigMap", json!({ "metadata": { "deletionTimestamp": "t" } })),
            "deleted",
        );
    }

    #[test]
    fn old_replicas_beyond_the_desired_number_are_awaited() {
        let status = json!({ "observedGeneration": 1, "replicas": 3, "updatedReplicas": 3,
            "availableReplicas": 3, "readyReplicas": 3, "fullyLabeledReplicas": 3,
            "currentRevision": "r", "updateRevision": "r" });
        for kind in ["Deployment", "ReplicaSet", "StatefulSet"] {
            let object = json!({ "spec": { "replicas": 1 }, "status": status });
            waits(of("apps/v1", kind, object), "2 old replicas remain");
        }
    }

    #[test]
    fn paused_rollout_is_not_awaited() {
        let paused = |updated: u32| {
            json!({ "spec": { "replicas": 2, "paused": true },
                    "status": { "observedGeneration": 1, "updatedReplicas": updated } })
        };
        let failed = of("apps/v1", "Deployment", paused(0));
        assert!(matches!(failed, Readiness::Failed(reason) if reason.contains("it is paused")));
        assert_eq!(of("apps/v1", "Deployment", paused(2)), Readiness::Ready);
        let manual = json!({ "spec": { "updateStrategy": { "type": "OnDelete" } },
            "status": { "observedGeneration": 1, "desiredNumberScheduled": 2,
                "currentNumberScheduled": 2, "updatedNumberScheduled": 0, "numberAvailable": 2,
                "numberReady": 2 } });
        assert_eq!(of("apps/v1", "DaemonSet", manual), Readiness::Ready);
    }

    #[test]
    fn next_wave_waits_for_the_end_of_a_job() {
        let reference = ObjectRef {
            api_version: "batch/v1".into(),
            kind: "Job".into(),
            namespace: None,
            name: "a".into(),
        };
        let running = json!({ "status": { "startTime": "t" } });
        waits(readiness(&reference, &running, Barrier::Wave), "it is running");
        assert_eq!(readiness(&reference, &running, Barrier::End), Readiness::Ready);
        let suspended = json!({ "spec": { "suspend": true } });
        assert_eq!(readiness(&reference, &suspended, Barrier::End), Readiness::Ready);
        let blocked = readiness(&reference, &suspended, Barrier::Wave);
        assert!(matches!(blocked, Readiness::Failed(reason) if reason.contains("suspended")));
    }

    #[test]
    fn aggregated_api_must_be_available() {
        let api = |status: &str| {
            json!({ "status": { "conditions": [
                { "type": "Available", "status": status, "message": "no endpoints" }] } })
        };
        waits(of("apiregistration.k8s.io/v1", "APIService", api("False")), "no endpoints");
        assert_eq!(of("apiregistration.k8s.io/v1", "APIService", api("True")), Readiness::Ready);
    }
}
