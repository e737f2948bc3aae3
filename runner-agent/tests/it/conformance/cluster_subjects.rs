//! Plugins of Stead whose components are in a cluster.

use std::{
    collections::BTreeMap,
    env,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};
use ulid::Ulid;

use super::{
    subjects::{Subject, built},
    test_runner::TestRunner,
};

/// Namespace of one subject, deleted at its end.
struct Namespace {
    name: String,
}

impl Namespace {
    fn new() -> Namespace {
        let name = format!("test-{}", Ulid::new().to_string().to_lowercase());
        let created = kubectl(&["create", "namespace", &name]);
        assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stderr));
        Namespace { name }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        kubectl(&["delete", "namespace", &self.name, "--wait=false"]);
    }
}

fn kubectl(args: &[&str]) -> std::process::Output {
    let program = env::var_os("STEAD_TEST_KUBECTL").unwrap_or_else(|| "kubectl".into());
    let mut command = Command::new(program);
    command.arg("--kubeconfig").arg(env::var_os("STEAD_TEST_KUBECONFIG").unwrap_or_default());
    command.args(args).output().unwrap()
}

/// Gives the jobs access to the cluster of the tests, and returns a namespace. Without a cluster, it
/// returns none and prints a note; in CI the test fails.
fn namespace_or_skip(runner: &mut TestRunner) -> Option<Namespace> {
    let Ok(kubeconfig) = env::var("STEAD_TEST_KUBECONFIG") else {
        assert!(env::var_os("CI").is_none(), "CI must have a cluster in STEAD_TEST_KUBECONFIG");
        eprintln!("SKIPPED: no Kubernetes cluster: set STEAD_TEST_KUBECONFIG");
        return None;
    };
    let label = r"jsonpath={.metadata.labels.stead\.dev/test}";
    let label = kubectl(&["get", "namespace", "kube-system", "--output", label]);
    assert_eq!(String::from_utf8_lossy(&label.stdout), "allowed", "not a cluster for tests");
    runner.env.insert("KUBECONFIG".into(), kubeconfig);
    let path = env::var("PATH").unwrap();
    runner.env.entry("PATH".into()).or_insert(path);
    Some(Namespace::new())
}

/// Returns the objects of a component: a ConfigMap, and with `slow` a Deployment whose pods are never
/// ready.
fn objects(text: &str, slow: bool) -> String {
    let config_map = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: page}}\ndata: {{text: {text}}}\n"
    );
    let deployment = "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: slow}\nspec:\n  \
         selector: {matchLabels: {app: slow}}\n  template:\n    metadata: {labels: {app: slow}}\n    \
         spec:\n      terminationGracePeriodSeconds: 0\n      \
         containers: [{name: main, image: 'localhost/busybox:1', readinessProbe: {exec: {command: [/bin/false]}}}]\n";
    if slow { config_map + deployment } else { config_map }
}

fn outputs() -> Value {
    json!({ "text": { "kind": "ConfigMap", "name": "page", "field": "data.text" } })
}

fn component(install: &str, settings: Value) -> Value {
    json!({ "component": "web", "operation": "apply", "install": install, "settings": settings })
}

/// Returns the plugin for manifests.
pub fn kubernetes(runner: &mut TestRunner, wrap: Wrap) -> Option<Subject> {
    let namespace = namespace_or_skip(runner)?;
    let (name, install) = (namespace.name.clone(), format!("ins_{}", Ulid::new()));
    let inputs = move |text: &str, slow: bool| {
        let settings = json!({ "namespace": name, "manifest": objects(text, slow), "outputs": outputs(),
            "manifest_file": "web.yaml", "ready_timeout_ms": 300_000 });
        component(&install, settings)
    };
    Some(subject(runner, "kubernetes_manifest", wrap, &[], inputs, namespace))
}

/// Returns the plugin for charts.
pub fn helm(runner: &mut TestRunner, wrap: Wrap) -> Option<Subject> {
    let Some(helm) = env::var_os("STEAD_TEST_HELM").map(PathBuf::from) else {
        assert!(env::var_os("CI").is_none(), "CI must have Helm in STEAD_TEST_HELM");
        eprintln!("SKIPPED: no Helm: set STEAD_TEST_HELM");
        return None;
    };
    let path = format!("{}:{}", helm.parent().unwrap().display(), env::var("PATH").unwrap());
    runner.env.insert("PATH".into(), path);
    let namespace = namespace_or_skip(runner)?;
    let (name, install) = (namespace.name.clone(), format!("ins_{}", Ulid::new()));
    let inputs = move |text: &str, slow: bool| {
        let settings = json!({ "release": "web", "namespace": name, "outputs": outputs(),
            "values": { "text": text, "slow": slow.to_string() }, "ready_timeout_ms": 300_000 });
        component(&install, settings)
    };
    let template =
        objects("{{ .Values.text }}", true).replacen("---", "{{ if .Values.slow }}\n---", 1);
    let template = format!("{template}{{{{ end }}}}\n");
    let chart = [
        ("Chart.yaml", "{apiVersion: v2, name: shop, version: 1.0.0}"),
        ("values.yaml", "text: none\nslow: false\n"),
        ("templates/page.yaml", &*template),
    ];
    Some(subject(runner, "helm_chart", wrap, &chart, inputs, namespace))
}

/// Way to start the executable of a plugin: as it is, or so that it sees only version 1 of the
/// protocol.
#[derive(Clone, Copy)]
pub enum Wrap {
    Newest,
    Version1,
}

fn subject(
    runner: &TestRunner,
    plugin: &str,
    wrap: Wrap,
    source: &[(&str, &str)],
    inputs: impl Fn(&str, bool) -> Value + 'static,
    namespace: Namespace,
) -> Subject {
    let executable = built(&format!("stead-plugin-{plugin}"));
    let executable = match wrap {
        Wrap::Newest => executable,
        Wrap::Version1 => version_1_only(runner, &executable),
    };
    let slow = inputs("one", true);
    Subject {
        plugin: runner.plugin(plugin, &executable),
        artifact: runner.artifact(source),
        inputs: Box::new(move |text| inputs(text, false)),
        slow,
        slow_env: BTreeMap::new(),
        deployed_value: Box::new(|outputs| Some(outputs.get("text")?.as_str()?.to_owned())),
        text_during_apply: "waiting for Deployment".into(),
        state_on_host: false,
        _cluster: Some(Box::new(namespace)),
    }
}

/// Writes a program that removes the list of versions from `describe`, as a runner of version 1 does
/// not have it.
fn version_1_only(runner: &TestRunner, executable: &Path) -> PathBuf {
    let path = runner.at("version-1");
    let script = format!(
        "#!/bin/sh\nsed -u 's/,\"protocols\":\\[1,2\\]//' | exec '{}'\n",
        executable.display()
    );
    std::fs::write(&path, script).unwrap();
    path
}
