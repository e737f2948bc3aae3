//! Tests of the engines of `scripts/test-tools`: a cluster runs pods, a registry stores blobs, and
//! Helm renders and installs charts.
use std::{fs, path::Path, process::Command};

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tests::{Cluster, Registry, call, helm_or_skip, stdout_of};

const POD: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {color: green}
---
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 0
  volumes: [{name: settings, configMap: {name: settings}}]
  containers:
  - name: web
    image: localhost/busybox:1
    imagePullPolicy: Never
    command: [httpd, -f, -h, /settings]
    volumeMounts: [{name: settings, mountPath: /settings}]
    readinessProbe: {httpGet: {path: /color, port: 80}, periodSeconds: 1}
";

#[test]
fn a_cluster_stores_objects_and_runs_pods() {
    let Some(cluster) = Cluster::shared_or_skip() else { return };
    let namespace = cluster.namespace();
    namespace.apply(POD);
    let output = ["get", "configmap", "settings", "--output", "json"];
    let stored: Value = serde_json::from_str(&stdout_of(namespace.kubectl().args(output))).unwrap();
    assert_eq!(stored["data"]["color"], "green");
    let managers = ["get", "configmap", "settings", "--show-managed-fields", "--output"];
    let managers = [&managers[..], &["jsonpath={.metadata.managedFields[*].operation}"]].concat();
    assert_eq!(stdout_of(namespace.kubectl().args(managers)), "Apply");

    stdout_of(namespace.kubectl().args([
        "wait",
        "--for=condition=Ready",
        "pod/web",
        "--timeout=90s",
    ]));
    let read = ["exec", "web", "--", "wget", "-qO-", "http://127.0.0.1/color"];
    assert_eq!(stdout_of(namespace.kubectl().args(read)), "green");
}

#[test]
fn a_registry_stores_a_blob_under_its_digest() {
    let Some(registry) = Registry::start_or_skip() else { return };
    let blob = b"content of a layer";
    let digest = format!("sha256:{:x}", Sha256::digest(blob));
    let blobs = format!("{}/v2/app/blobs", registry.url());

    let put = |digest: &str| {
        let upload = call("POST", &format!("{blobs}/uploads/"), &[], b"");
        let mut headers = upload.headers.lines();
        let location = headers.find_map(|line| line.strip_prefix("Location: ")).unwrap();
        let kind = [("Content-Type", "application/octet-stream")];
        call("PUT", &format!("{location}&digest={digest}"), &kind, blob).status
    };
    assert_eq!(put(&format!("sha256:{:064}", 0)), 400, "accepted content of another digest");
    assert_eq!(put(&digest), 201);
    let stored = call("GET", &format!("{blobs}/{digest}"), &[], b"");
    assert_eq!((stored.status, stored.body.as_bytes()), (200, &blob[..]));
}

const CHART: &[(&str, &str)] = &[
    ("Chart.yaml", "{apiVersion: v2, name: shop, version: 0.1.0, appVersion: '7'}"),
    ("values.yaml", "color: blue\n"),
    ("templates/NOTES.txt", "Release {{ .Release.Name }} is {{ .Values.color }}.\n"),
    (
        "templates/settings.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shop}\ndata:\n  \
         color: {{ .Values.color | quote }}\n  revision: {{ .Release.Revision | quote }}\n",
    ),
];

fn chart(dir: &Path) -> String {
    for (path, text) in CHART {
        let path = dir.join("shop").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    dir.join("shop").to_str().unwrap().into()
}

#[test]
fn helm_renders_a_chart_without_a_cluster_and_rejects_unknown_flags() {
    let Some(helm) = helm_or_skip() else { return };
    let dir = tempfile::tempdir().unwrap();
    let chart = chart(dir.path());
    let values = dir.path().join("values.yaml");
    fs::write(&values, "color: red\n").unwrap();
    let values = values.to_str().unwrap();
    let template = ["template", "one", &chart, "--namespace", "apps", "--values", values];
    let rendered = stdout_of(Command::new(&helm).args(template));
    assert!(rendered.starts_with("---\n# Source: shop/templates/settings.yaml\n"), "{rendered}");
    assert!(rendered.contains("color: \"red\""), "{rendered}");

    let output = Command::new(&helm).args(template).arg("--set=color=blue").output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && stderr.contains("--set=color=blue"), "{stderr}");
}

#[test]
fn helm_installs_upgrades_and_uninstalls_a_release() {
    let Some(helm) = helm_or_skip() else { return };
    let Some(cluster) = Cluster::shared_or_skip() else { return };
    let namespace = cluster.namespace();
    let dir = tempfile::tempdir().unwrap();
    let chart = chart(dir.path());
    let kubeconfig = cluster.kubeconfig().to_str().unwrap();
    let command = |args: &[&str]| {
        let mut command = Command::new(&helm);
        command.args(args).args(["--namespace", namespace.name(), "--kubeconfig", kubeconfig]);
        command
    };
    let json = |args: &[&str]| -> Value {
        let output = stdout_of(&mut command(&[args, &["--output", "json"]].concat()));
        serde_json::from_str(&output).unwrap()
    };
    let color = || {
        let args = ["get", "configmap", "shop", "--ignore-not-found", "--output"];
        stdout_of(namespace.kubectl().args(args).arg("jsonpath={.data.color}"))
    };

    let planned = json(&["install", "one", &chart, "--dry-run=server"]);
    assert_eq!(planned["info"]["description"], "Dry run complete");
    assert_eq!(
        (planned["version"].as_u64(), color().as_str()),
        (Some(1), ""),
        "the dry run changed the cluster"
    );
    let installed = json(&["install", "one", &chart, "--wait"]);
    assert_eq!(installed["info"]["status"], "deployed");
    assert_eq!((&installed["manifest"], color().as_str()), (&planned["manifest"], "blue"));

    let values = dir.path().join("values.yaml");
    fs::write(&values, "color: red\n").unwrap();
    let upgrade = ["upgrade", "one", &chart, "--install", "--values", values.to_str().unwrap()];
    let planned = json(&[&upgrade[..], &["--dry-run=server"]].concat());
    assert_eq!((planned["version"].as_u64(), color().as_str()), (Some(2), "blue"));
    let upgraded = json(&upgrade);
    assert_eq!((&upgraded["manifest"], color().as_str()), (&planned["manifest"], "red"));

    let history = json(&["history", "one"]);
    let states: Vec<_> = history.as_array().unwrap().iter().map(|entry| &entry["status"]).collect();
    assert_eq!(states, ["superseded", "deployed"]);
    let listed = json(&["list", "--all"]);
    assert_eq!((&listed[0]["name"], &listed[0]["revision"]), (&"one".into(), &"2".into()));
    assert_eq!(json(&["status", "one"])["info"]["notes"], "Release one is red.\n");
    let manifest = stdout_of(&mut command(&["get", "manifest", "one"]));
    assert_eq!(manifest, format!("{}\n", upgraded["manifest"].as_str().unwrap()));

    stdout_of(&mut command(&["uninstall", "one", "--wait"]));
    assert_eq!((json(&["list", "--all"]), color().as_str()), (Value::Array(vec![]), ""));
}
