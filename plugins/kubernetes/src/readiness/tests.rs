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
    let claim =
        |phase: &str| of("v1", "PersistentVolumeClaim", json!({ "status": { "phase": phase } }));
    waits(claim("Pending"), "Pending");
    assert_eq!(claim("Bound"), Readiness::Ready);
    let balancer = json!({ "spec": { "type": "LoadBalancer", "clusterIP": "10.0.0.1" } });
    waits(of("v1", "Service", balancer), "no address");
    waits(of("batch/v1", "Job", json!({})), "not started");
    let crd = json!({ "status": { "conditions": [{ "type": "Established", "status": "True" }] } });
    assert_eq!(of("apiextensions.k8s.io/v1", "CustomResourceDefinition", crd), Readiness::Ready);
    waits(of("v1", "ConfigMap", json!({ "metadata": { "deletionTimestamp": "t" } })), "deleted");
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
