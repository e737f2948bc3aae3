//! Kubernetes cluster of the tests, which `scripts/test` starts.
use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use ulid::Ulid;

use crate::{in_ci, stdout_of};

/// Cluster that tests may change.
pub struct Cluster {
    kubeconfig: PathBuf,
}

impl Cluster {
    /// Returns the cluster of `STEAD_TEST_KUBECONFIG`, which must carry the label of test clusters.
    /// Without the variable, the test prints a note and passes; in CI it fails.
    #[track_caller]
    pub fn shared_or_skip() -> Option<Cluster> {
        let Some(kubeconfig) = std::env::var_os("STEAD_TEST_KUBECONFIG") else {
            assert!(!in_ci(), "CI must have a cluster in STEAD_TEST_KUBECONFIG");
            eprintln!("SKIPPED: no Kubernetes cluster: set STEAD_TEST_KUBECONFIG");
            return None;
        };
        let cluster = Cluster { kubeconfig: kubeconfig.into() };
        let label = r"jsonpath={.metadata.labels.stead\.dev/test}";
        let label = stdout_of(cluster.kubectl().args([
            "get",
            "namespace",
            "kube-system",
            "--output",
            label,
        ]));
        assert!(
            label == "allowed",
            "cannot test on the cluster of {}: its namespace kube-system has no label \
             stead.dev/test=allowed; tests create and delete objects, so label test clusters only",
            cluster.kubeconfig.display()
        );
        Some(cluster)
    }

    /// Returns the path of the administrator's kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Returns a `kubectl` command for this cluster.
    pub fn kubectl(&self) -> Command {
        let program = std::env::var_os("STEAD_TEST_KUBECTL").unwrap_or_else(|| "kubectl".into());
        let mut command = Command::new(program);
        command.arg("--kubeconfig").arg(&self.kubeconfig);
        command
    }

    /// Creates a namespace. The drop of the returned value deletes it.
    #[track_caller]
    pub fn namespace(&self) -> ClusterNamespace<'_> {
        let name = format!("test-{}", Ulid::new().to_string().to_lowercase());
        stdout_of(self.kubectl().args(["create", "namespace", &name]));
        ClusterNamespace { cluster: self, name }
    }
}

/// Namespace of one test.
pub struct ClusterNamespace<'c> {
    cluster: &'c Cluster,
    name: String,
}

impl ClusterNamespace<'_> {
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a `kubectl` command for this namespace.
    pub fn kubectl(&self) -> Command {
        let mut command = self.cluster.kubectl();
        command.args(["--namespace", &self.name]);
        command
    }

    /// Applies a manifest with server-side apply.
    #[track_caller]
    pub fn apply(&self, manifest: &str) {
        let mut child = self
            .kubectl()
            .args(["apply", "--server-side", "--filename", "-"])
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

impl Drop for ClusterNamespace<'_> {
    fn drop(&mut self) {
        let _deleted = self
            .cluster
            .kubectl()
            .args(["delete", "namespace", &self.name, "--wait=false"])
            .output();
    }
}
