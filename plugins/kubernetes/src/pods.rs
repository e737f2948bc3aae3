//! Reasons why pods are not ready, which the status of their workload does not name.

use std::collections::BTreeSet;

use kube::api::ListParams;
use kube::core::Request;
use serde_json::Value;

use crate::{
    cluster::Cluster,
    kinds::Kind,
    object::{ObjectRef, metadata},
};

/// Maximum number of pods that are read.
const MAX_PODS: u32 = 50;
/// Maximum number of reasons, and bytes of each.
const MAX_REASONS: usize = 3;
const MAX_BYTES: usize = 300;

/// Adds the reasons of the pods of a workload to the reason why it is not ready. A request that fails
/// adds nothing, because the plugin may not have the permission to list pods.
pub async fn explain(
    cluster: &Cluster,
    object: &ObjectRef,
    live: &Value,
    reason: String,
) -> String {
    let Some(selector) = selector(object, live) else { return reason };
    let parameters = ListParams::default().labels(&selector).limit(MAX_PODS);
    let path = Kind::pod().path(object.namespace.as_deref());
    let Ok(pods) = cluster.send(Request::new(path).list(&parameters)).await else { return reason };
    let reasons = reasons(pods["items"].as_array().map_or(&[][..], Vec::as_slice));
    if reasons.is_empty() { reason } else { format!("{reason} ({})", reasons.join("; ")) }
}

/// Returns the label selector of a workload, if it has only labels. Expressions are rare.
fn selector(object: &ObjectRef, live: &Value) -> Option<String> {
    let has_pods = object.group() == "apps" || object.is_kind("batch", "Job");
    let selector = &live["spec"]["selector"];
    if !has_pods || !selector["matchExpressions"].is_null() {
        return None;
    }
    let labels = selector["matchLabels"].as_object().filter(|labels| !labels.is_empty())?;
    let equal = |(key, value): (&String, &Value)| Some(format!("{key}={}", value.as_str()?));
    Some(labels.iter().map(equal).collect::<Option<Vec<_>>>()?.join(","))
}

/// Returns the distinct reasons of pods that are not ready, without the names of the pods: replicas
/// usually have the same reason.
fn reasons(pods: &[Value]) -> Vec<String> {
    let live = pods.iter().filter(|pod| metadata(pod, "deletionTimestamp").is_none());
    let all: BTreeSet<String> = live.flat_map(reasons_of).collect();
    all.into_iter().take(MAX_REASONS).collect()
}

fn reasons_of(pod: &Value) -> Vec<String> {
    let status = &pod["status"];
    let list = |key: &str| status[key].as_array().into_iter().flatten();
    let unscheduled = list("conditions")
        .filter(|condition| condition["type"] == "PodScheduled" && condition["status"] == "False");
    let unscheduled = unscheduled
        .map(|condition| text("pod is not scheduled", &condition["reason"], &condition["message"]));
    let containers = list("initContainerStatuses").chain(list("containerStatuses"));
    unscheduled.chain(containers.filter_map(of_container)).collect()
}

fn of_container(container: &Value) -> Option<String> {
    let name = format!("container {}", container["name"].as_str()?);
    let waiting = &container["state"]["waiting"];
    let last = &container["lastState"]["terminated"];
    // A pod that just started waits for its containers.
    let is_starting = ["ContainerCreating", "PodInitializing"]
        .iter()
        .any(|reason| waiting["reason"] == *reason && waiting["message"].is_null());
    if waiting.is_null() || is_starting {
        return None;
    }
    // The last words of a container can contain secrets, so only its exit code is shown.
    let ended = last["exitCode"].as_i64().map(|code| format!("; it ended with exit code {code}"));
    Some(text(&name, &waiting["reason"], &waiting["message"]) + &ended.unwrap_or_default())
}

fn text(what: &str, reason: &Value, message: &Value) -> String {
    let part = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let parts = [Some(what.to_owned()), part(reason), part(message)];
    let line = parts.into_iter().flatten().collect::<Vec<_>>().join(": ");
    let line = line.lines().next().unwrap_or_default();
    line[..line.floor_char_boundary(MAX_BYTES)].to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(status: Value) -> Value {
        json!({ "metadata": {"name": "web-1"}, "status": status })
    }

    #[test]
    fn pods_name_their_reasons_once() {
        let waiting = |reason: &str, message: Value| json!({"name": "web", "state": {"waiting": {"reason": reason, "message": message}}});
        let pulling = pod(json!({"containerStatuses": [
            waiting("ImagePullBackOff", "Back-off pulling image \"x\"\nmore".into())]}));
        let unscheduled = pod(json!({"conditions": [{"type": "PodScheduled", "status": "False",
            "reason": "Unschedulable", "message": "0/1 nodes are available: 1 Insufficient cpu."}]}));
        let starting =
            pod(json!({"containerStatuses": [waiting("ContainerCreating", Value::Null)]}));
        let mut crashed = waiting("CrashLoopBackOff", Value::Null);
        crashed["lastState"] = json!({"terminated": {"exitCode": 3, "message": "hunter2"}});
        let crashed = pod(json!({"initContainerStatuses": [crashed]}));
        let found =
            reasons(&[pulling.clone(), pulling, unscheduled, starting, crashed, pod(json!({}))]);
        let expected = [
            "container web: CrashLoopBackOff; it ended with exit code 3",
            "container web: ImagePullBackOff: Back-off pulling image \"x\"",
            "pod is not scheduled: Unschedulable: 0/1 nodes are available: 1 Insufficient cpu.",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn only_workloads_have_a_selector() {
        let object = |api_version: &str, kind: &str| ObjectRef {
            api_version: api_version.into(),
            kind: kind.into(),
            namespace: Some("shop".into()),
            name: "web".into(),
        };
        let live = json!({"spec": {"selector": {"matchLabels": {"app": "web", "tier": "front"}}}});
        let deployment = object("apps/v1", "Deployment");
        assert_eq!(selector(&deployment, &live).as_deref(), Some("app=web,tier=front"));
        assert_eq!(selector(&object("v1", "Service"), &live), None);
        let wider = json!({"spec": {"selector": {"matchLabels": {"app": "web"},
            "matchExpressions": [{"key": "tier", "operator": "Exists"}]}}});
        assert_eq!(selector(&deployment, &wider), None);
    }
}
