//! Pods of an app, without the app's programs: a webhook replaces containers that the node cannot
//! run.
use std::{
    fs,
    io::{BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
};

use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Map, Value, json};
use tests::Certificates;

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

/// Webhook server, until the process ends.
pub(crate) struct Pods {
    certificates: Certificates,
    port: u16,
}

impl Pods {
    /// Starts the server. It appends the image of each replaced container to a file.
    pub(crate) fn start(replaced: PathBuf) -> Pods {
        let certificates = Certificates::for_ip("127.0.0.1");
        let config = certificates.server_config();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (config, replaced) = (Arc::clone(&config), replaced.clone());
                std::thread::spawn(move || serve(stream, config, &replaced));
            }
        });
        Pods { certificates, port }
    }

    /// Returns the configuration that makes the API server call the webhook.
    pub(crate) fn configuration(&self) -> Value {
        let mut encode = Command::new("base64");
        encode.arg("-w0").arg(self.certificates.ca()).stdin(Stdio::null());
        let ca = tests::stdout_of(&mut encode);
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "stead-corpus"},
            "webhooks": [{
                "name": "pods.corpus.stead.dev",
                "clientConfig": {"url": format!("https://127.0.0.1:{}/", self.port), "caBundle": ca},
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

/// Responds to the reviews of one connection.
fn serve(stream: TcpStream, config: Arc<ServerConfig>, replaced: &Path) -> Option<()> {
    let connection = ServerConnection::new(config).ok()?;
    let mut stream = BufReader::new(StreamOwned::new(connection, stream));
    loop {
        let length = head(&mut stream)?;
        let mut body = vec![0; length];
        stream.read_exact(&mut body).ok()?;
        let review: Value = serde_json::from_slice(&body).ok()?;
        let answer = answer(&review, replaced).to_string();
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ";
        write!(stream.get_mut(), "{head}{}\r\n\r\n{answer}", answer.len()).ok()?;
        stream.get_mut().flush().ok()?;
    }
}

/// Reads the head of a request, and returns the length of its body.
fn head(stream: &mut impl std::io::BufRead) -> Option<usize> {
    let mut length = None;
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line.trim().is_empty() {
            return length;
        }
        let (name, value) = line.split_once(':').unwrap_or_default();
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().ok();
        }
    }
}

fn answer(review: &Value, replaced: &Path) -> Value {
    let pod = &review["request"]["object"];
    let mut response = json!({"uid": review["request"]["uid"], "allowed": true});
    if let Some(spec) = substitute(pod) {
        note_images(pod, replaced);
        let patch = json!([{"op": "replace", "path": "/spec", "value": spec}]).to_string();
        response["patch"] = base64(patch.as_bytes()).into();
        response["patchType"] = "JSONPatch".into();
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}

/// Appends the images of a pod to the file of replaced images.
fn note_images(pod: &Value, replaced: &Path) {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let images: Vec<&str> = containers.filter_map(|one| one["image"].as_str()).collect();
    let file = fs::File::options().create(true).append(true).open(replaced);
    let _best_effort = file.map(|mut file| writeln!(file, "{}", images.join("\n")));
}

/// Returns a spec that the node can run, unless the pod is one of a test.
fn substitute(pod: &Value) -> Option<Value> {
    let mut spec = pod["spec"].as_object()?.clone();
    let has_local_images = spec["containers"].as_array()?.iter().all(|container| {
        container["image"].as_str().is_some_and(|image| image.starts_with("localhost/"))
    });
    if has_local_images {
        return None;
    }
    POD_PARTS.iter().for_each(|part| drop(spec.remove(*part)));
    let mut owners = pod["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    let ends = owners.any(|owner| owner["kind"] == "Job");
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

fn base64(bytes: &[u8]) -> String {
    let mut child = Command::new("base64");
    child.arg("-w0").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = child.spawn().unwrap();
    child.stdin.take().unwrap().write_all(bytes).unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
}
