//! Cluster of the tests, from `STEAD_TEST_KUBECONFIG`.

use std::{
    io::Write as _,
    path::PathBuf,
    process::{Command, Stdio},
};

use serde_json::Value;
use ulid::Ulid;

/// Image of the test cluster's node.
pub const IMAGE: &str = "localhost/busybox:1";

/// Namespace of one test, deleted at its end.
pub struct Namespace {
    pub kubeconfig: PathBuf,
    pub name: String,
}

impl Namespace {
    /// Creates a namespace. Without a cluster, a test prints a note and passes; in CI it fails.
    #[track_caller]
    pub fn create_or_skip() -> Option<Namespace> {
        let Some(kubeconfig) = std::env::var_os("STEAD_TEST_KUBECONFIG") else {
            let in_ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
            assert!(!in_ci, "CI must have a cluster in STEAD_TEST_KUBECONFIG");
            eprintln!("SKIPPED: no Kubernetes cluster: set STEAD_TEST_KUBECONFIG");
            return None;
        };
        let name = format!("test-{}", Ulid::new().to_string().to_lowercase());
        let namespace = Namespace { kubeconfig: kubeconfig.into(), name };
        let system = namespace.get("Namespace", "kube-system").unwrap();
        assert_eq!(
            system["metadata"]["labels"]["stead.dev/test"], "allowed",
            "this cluster is not for tests: its namespace kube-system has no label \
             stead.dev/test=allowed"
        );
        namespace.kubectl_ok(&["create", "namespace", &namespace.name]);
        Some(namespace)
    }

    pub fn kubectl(&self) -> Command {
        let program = std::env::var_os("STEAD_TEST_KUBECTL").unwrap_or_else(|| "kubectl".into());
        let mut command = Command::new(program);
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(["--namespace", &self.name]);
        command
    }

    #[track_caller]
    pub fn kubectl_ok(&self, args: &[&str]) -> String {
        let output = self.kubectl().args(args).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {args:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Reads an object. `None` if it does not exist.
    pub fn get(&self, kind: &str, name: &str) -> Option<Value> {
        let output = self.kubectl().args(["get", kind, name, "--output", "json"]).output().unwrap();
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    /// Applies a manifest as another field manager.
    #[track_caller]
    pub fn apply_as(&self, manager: &str, manifest: &str) {
        let manager = format!("--field-manager={manager}");
        let mut child = self
            .kubectl()
            .args(["apply", "--server-side", "--force-conflicts", &manager, "--filename", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(manifest.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _best_effort =
            self.kubectl().args(["delete", "namespace", &self.name, "--wait=false"]).output();
    }
}

/// Manifest of a ConfigMap with one value.
pub fn config_map(name: &str, value: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  key: {value}\n---\n"
    )
}

/// Manifest of a Deployment with a container that becomes ready if `ready` is true.
pub fn deployment(name: &str, replicas: u32, ready: bool) -> String {
    let probe = if ready { "true" } else { "false" };
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {name}\nspec:\n  \
         replicas: {replicas}\n  selector: {{matchLabels: {{app: {name}}}}}\n  template:\n    \
         metadata: {{labels: {{app: {name}}}}}\n    spec:\n      \
         terminationGracePeriodSeconds: 1\n      containers:\n      - name: web\n        \
         image: {IMAGE}\n        command: [sleep, \"3600\"]\n        readinessProbe:\n          \
         exec: {{command: [\"{probe}\"]}}\n          periodSeconds: 1\n---\n"
    )
}
