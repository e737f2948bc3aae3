//! Controllers that a cluster in a cloud has and the test cluster lacks: volumes for claims,
//! addresses of load balancers. Also disables webhooks of the app, because Services have no
//! addresses.
use std::{
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use serde_json::{Value, json};
use tests::Cluster;

/// Running controllers, until their drop.
pub(crate) struct Caretaker {
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Caretaker {
    /// Starts the controllers for a cluster.
    pub(crate) fn start(cluster: Cluster) -> Caretaker {
        let stopped = Arc::new(AtomicBool::new(false));
        let is_stopped = Arc::clone(&stopped);
        let controllers = Controllers { cluster };
        let thread = std::thread::spawn(move || {
            while !is_stopped.load(Ordering::Relaxed) {
                controllers.reconcile();
                std::thread::sleep(Duration::from_secs(1));
            }
        });
        Caretaker { stopped, thread: Some(thread) }
    }
}

impl Drop for Caretaker {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        let _ended = self.thread.take().map(JoinHandle::join);
    }
}

struct Controllers {
    cluster: Cluster,
}

impl Controllers {
    fn reconcile(&self) {
        let kinds = "persistentvolumeclaims,services,mutatingwebhookconfigurations,\
                     validatingwebhookconfigurations";
        let Some(list) = self.run(&["get", kinds, "--all-namespaces", "--output=json"]) else {
            return;
        };
        let list: Value = serde_json::from_str(&list).unwrap_or_default();
        for object in list["items"].as_array().into_iter().flatten() {
            match object["kind"].as_str().unwrap_or_default() {
                "PersistentVolumeClaim" if object["status"]["phase"] == "Pending" => {
                    self.bind(object);
                }
                "Service" if object["spec"]["type"] == "LoadBalancer" => self.address(object),
                "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => {
                    self.turn_off(object);
                }
                _ => {}
            }
        }
    }

    /// Creates a volume on the node for a claim.
    fn bind(&self, claim: &Value) {
        let (metadata, spec) = (&claim["metadata"], &claim["spec"]);
        let name = format!("corpus-{}", metadata["uid"].as_str().unwrap_or_default());
        let path = format!("/tmp/{name}");
        let mut volume = json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
            "spec": {
                "accessModes": spec["accessModes"],
                "capacity": spec["resources"]["requests"],
                "claimRef": {"namespace": metadata["namespace"], "name": metadata["name"],
                             "uid": metadata["uid"]},
                "hostPath": {"path": path, "type": "DirectoryOrCreate"},
                "persistentVolumeReclaimPolicy": "Retain",
            },
        });
        if spec["storageClassName"].is_string() {
            volume["spec"]["storageClassName"] = spec["storageClassName"].clone();
        }
        self.input(&["create", "--filename=-"], &volume);
    }

    fn address(&self, service: &Value) {
        if service["status"]["loadBalancer"]["ingress"].is_array() {
            return;
        }
        let (name, namespace) = (text(service, "name"), text(service, "namespace"));
        let patch = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}});
        let args = ["patch", "service", &name, "--namespace", &namespace, "--subresource=status"];
        let _may_fail = self.run(&[&args[..], &["--patch", &patch.to_string()]].concat());
    }

    /// Limits the webhooks of a configuration that call a Service to objects that do not exist.
    fn turn_off(&self, configuration: &Value) {
        let webhooks = configuration["webhooks"].as_array().into_iter().flatten();
        let open = webhooks.enumerate().filter(|(_, webhook)| {
            webhook["clientConfig"]["service"].is_object()
                && webhook["objectSelector"].get("matchLabels").is_none()
        });
        let selector = json!({"matchLabels": {"corpus.stead.dev/never": "true"}});
        let patch = open.map(|(index, _)| {
            json!({"op": "add", "path": format!("/webhooks/{index}/objectSelector"), "value": selector})
        });
        let patch: Vec<Value> = patch.collect();
        if !patch.is_empty() {
            let kind = configuration["kind"].as_str().unwrap_or_default().to_lowercase();
            let (name, patch) = (text(configuration, "name"), Value::Array(patch).to_string());
            let _may_fail = self.run(&["patch", &kind, &name, "--type=json", "--patch", &patch]);
        }
    }

    fn run(&self, args: &[&str]) -> Option<String> {
        let output = self.cluster.kubectl().args(args).stdin(Stdio::null()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn input(&self, args: &[&str], object: &Value) {
        use std::io::Write as _;
        let mut command = self.cluster.kubectl();
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        if let Ok(mut child) = command.spawn() {
            let _written = child.stdin.take().map(|mut stdin| write!(stdin, "{object}"));
            let _ended = child.wait();
        }
    }
}

fn text(object: &Value, key: &str) -> String {
    object["metadata"][key].as_str().unwrap_or_default().to_owned()
}
