//! Pods of an app, without the app's programs: containers that the node cannot run are replaced. A
//! webhook does this for the pods of controllers, and the proxy of the API for the app's own pods.
use std::{
    collections::BTreeSet,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use ::tests::{Admission, Webhook};
use serde_json::{Map, Value, json};

/// Name of the configuration of the webhook.
pub(crate) const WEBHOOK: &str = "stead-corpus";
/// Image that is on the node.
const IMAGE: &str = "localhost/busybox:1";
/// Parts of a pod that depend on the nodes or the programs of the app.
const POD_PARTS: [&str; 7] = [
    "affinity",
    "imagePullSecrets",
    "nodeSelector",
    "runtimeClassName",
    "securityContext",
    "tolerations",
    "topologySpreadConstraints",
];
const CONTAINER_PARTS: [&str; 8] = [
    "args",
    "lifecycle",
    "livenessProbe",
    "readinessProbe",
    "resources",
    "securityContext",
    "startupProbe",
    "workingDir",
];

/// Webhook for pods, until the process ends.
pub(crate) struct Pods(Webhook);

impl Pods {
    /// Starts the webhook. It appends the image of each replaced container to a file.
    pub(crate) fn start(replaced: PathBuf) -> Pods {
        Pods(Webhook::start(move |request| admission(&request["object"], &replaced)))
    }

    /// Returns the configuration that makes the API server call the webhook.
    pub(crate) fn configuration(&self) -> Value {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": WEBHOOK},
            "webhooks": [{
                "name": "pods.corpus.stead.dev",
                "clientConfig": self.0.client_config(),
                "rules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                    "resources": ["pods"],
                }],
                "failurePolicy": "Ignore", "sideEffects": "None", "timeoutSeconds": 30,
                "admissionReviewVersions": ["v1"],
            }],
        })
    }
}

fn admission(pod: &Value, replaced: &Path) -> Admission {
    let is_of_controller = pod["metadata"]["ownerReferences"].is_array();
    match substitute(pod).filter(|_| is_of_controller) {
        Some(spec) => {
            note_images(pod, replaced);
            Admission::Patch(json!([{"op": "replace", "path": "/spec", "value": spec}]))
        }
        None => Admission::Allow,
    }
}

/// Appends the images of a pod to the file of replaced images.
fn note_images(pod: &Value, replaced: &Path) {
    let file = fs::File::options().create(true).append(true).open(replaced);
    let images = Vec::from_iter(images(pod)).join("\n");
    let _best_effort = file.map(|mut file| writeln!(file, "{images}"));
}

/// Returns the images of a pod.
pub(crate) fn images(pod: &Value) -> BTreeSet<String> {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    containers.filter_map(|one| Some(one["image"].as_str()?.to_owned())).collect()
}

/// Returns a spec that the node can run, unless the pod is one of a test.
pub(crate) fn substitute(pod: &Value) -> Option<Value> {
    let mut spec = pod["spec"].as_object()?.clone();
    let has_local_images = spec["containers"].as_array()?.iter().all(|container| {
        container["image"].as_str().is_some_and(|image| image.starts_with("localhost/"))
    });
    if has_local_images {
        return None;
    }
    POD_PARTS.iter().for_each(|part| drop(spec.remove(*part)));
    // Pods of Jobs and hooks end. All others always restart.
    let ends = spec.get("restartPolicy").is_some_and(|policy| policy != "Always");
    let command = if ends { json!(["true"]) } else { json!(["sleep", "1000000"]) };
    for (list, command) in [("containers", command), ("initContainers", json!(["true"]))] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            container_of(container.as_object_mut()?, &command);
        }
    }
    for volume in spec.get_mut("volumes").and_then(Value::as_array_mut).into_iter().flatten() {
        volume_of(volume.as_object_mut()?);
    }
    spec.insert("terminationGracePeriodSeconds".into(), 0.into());
    Some(Value::Object(spec))
}

fn container_of(container: &mut Map<String, Value>, command: &Value) {
    CONTAINER_PARTS.iter().for_each(|part| drop(container.remove(*part)));
    // An image of the install's own registry stays: the node pulls it.
    if !container["image"].as_str().is_some_and(|image| image.starts_with("127.0.0.1:")) {
        container.insert("image".into(), IMAGE.into());
    }
    container.insert("imagePullPolicy".into(), "IfNotPresent".into());
    container.insert("command".into(), command.clone());
    let sources = [("env", "valueFrom"), ("envFrom", "")];
    for (list, inner) in sources {
        for entry in container.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let references = if inner.is_empty() { Some(entry) } else { entry.get_mut(inner) };
            for (name, value) in references.and_then(Value::as_object_mut).into_iter().flatten() {
                if ["secretKeyRef", "configMapKeyRef", "secretRef", "configMapRef"]
                    .contains(&name.as_str())
                {
                    value["optional"] = true.into();
                }
            }
        }
    }
}

fn volume_of(volume: &mut Map<String, Value>) {
    for kind in ["secret", "configMap"] {
        if let Some(source) = volume.get_mut(kind) {
            source["optional"] = true.into();
        }
    }
    let sources = volume.get_mut("projected").and_then(|one| one["sources"].as_array_mut());
    for source in sources.into_iter().flatten() {
        for kind in ["secret", "configMap"] {
            if let Some(source) = source.get_mut(kind) {
                source["optional"] = true.into();
            }
        }
    }
    for kind in ["hostPath", "csi"] {
        if volume.remove(kind).is_some() {
            volume.insert("emptyDir".into(), json!({}));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(restart: &str) -> Value {
        json!({
            "restartPolicy": restart, "nodeSelector": {"a": "b"},
            "containers": [{"name": "a", "image": "acme/a:1", "args": ["b"]}],
            "volumes": [{"name": "v", "hostPath": {"path": "/v"}}],
        })
    }

    #[test]
    fn a_replaced_pod_runs_on_the_node_and_ends_if_it_does_not_restart() {
        let command = |restart: &str| {
            let pod = json!({"spec": spec(restart)});
            let spec = substitute(&pod).unwrap();
            assert_eq!(
                (&spec["nodeSelector"], &spec["containers"][0]["args"]),
                (&Value::Null, &Value::Null)
            );
            assert_eq!(spec["containers"][0]["image"], IMAGE);
            assert_eq!(spec["volumes"][0], json!({"name": "v", "emptyDir": {}}));
            spec["containers"][0]["command"].clone()
        };
        assert_eq!(
            (command("Always"), command("Never")),
            (json!(["sleep", "1000000"]), json!(["true"]))
        );
    }

    #[test]
    fn the_webhook_leaves_the_pods_of_manifests() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let admission = |owners: Value| {
            let pod = json!({"metadata": {"ownerReferences": owners}, "spec": spec("Always")});
            admission(&pod, file.path())
        };
        assert!(matches!(admission(json!([{"kind": "ReplicaSet"}])), Admission::Patch(_)));
        assert_eq!(admission(Value::Null), Admission::Allow);
    }
}
