//! Benchmark of plans and applies of a chart against the engine of Helm alone, in the same run. Prints
//! a table of medians, and fails if a difference exceeds its target.
#![allow(clippy::panic, clippy::unwrap_used, clippy::expect_used, reason = "a failed bench panics")]
#![allow(clippy::disallowed_methods, reason = "a benchmark creates ids itself")]
#![allow(dead_code, reason = "the tests use the rest of these modules")]

#[path = "../../kubernetes/tests/it/cluster.rs"]
mod cluster;
#[path = "../../kubernetes/benches/compare.rs"]
mod compare;
#[path = "../tests/it/plugin.rs"]
mod plugin;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use cluster::Namespace;
use compare::{Comparison, Target};
use plugin::{Component, helm_or_skip};
use serde_json::json;
use tempfile::TempDir;

/// Largest added time of the plugin.
const TARGET: Duration = Duration::from_millis(500);

/// Templates of 20 objects without pods: with pods, both sides would mostly wait for the cluster.
const TEMPLATES: [(&str, &str); 2] = [
    (
        "templates/objects.yaml",
        "{{- range $i := until 20 }}\n---\napiVersion: v1\n\
         {{- if eq (mod $i 4) 0 }}\nkind: Service\nmetadata:\n  name: part-{{ $i }}\n  \
         annotations: {color: {{ $.Values.color }}}\nspec:\n  selector: {app: {{ $.Chart.Name }}}\n  \
         ports: [{port: 80, protocol: TCP}]\n\
         {{- else if eq (mod $i 4) 1 }}\nkind: Secret\nmetadata: {name: part-{{ $i }}}\n\
         stringData: {color: {{ $.Values.color }}}\n\
         {{- else }}\nkind: ConfigMap\nmetadata: {name: part-{{ $i }}}\n\
         data: {color: {{ $.Values.color }}, release: {{ $.Release.Name }}}\n\
         {{- end }}\n{{- end }}\n",
    ),
    ("values.yaml", "color: blue\n"),
];

/// Chart that the engine deploys without the plugin.
struct Alone<'n> {
    helm: &'n Path,
    namespace: &'n Namespace,
    chart: PathBuf,
    dir: TempDir,
}

impl Alone<'_> {
    fn set_color(&self, color: &str) {
        fs::write(self.dir.path().join("values.yaml"), format!("color: {color}\n")).unwrap();
    }

    fn run(&self, mode: &[&str]) {
        let mut command = Command::new(self.helm);
        command.args(["upgrade", "--install", "web"]).arg(&self.chart).args(mode);
        command.args(["--output", "json", "--namespace", &self.namespace.name]);
        command.arg("--values").arg(self.dir.path().join("values.yaml"));
        command.arg("--kubeconfig").arg(&self.namespace.kubeconfig);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

fn main() {
    let mut comparison = Comparison::new("20 objects", "engine alone", Target::Added(TARGET));
    while comparison.next_round() {
        let Some(helm) = helm_or_skip() else { return };
        let Some(theirs) = Namespace::create_or_skip() else { return };
        let Some(own) = Namespace::create_or_skip() else { return };
        let mut web = Component::new(&own, helm.clone(), &TEMPLATES);
        let chart = web.dir.path().join("source");
        let alone = Alone { helm: &helm, namespace: &theirs, chart, dir: TempDir::new().unwrap() };
        let plan = || alone.run(&["--dry-run=server"]);
        let apply = || alone.run(&["--wait", "--timeout", "120s"]);
        let set_color = |web: &mut Component, color: &str| {
            web.set("values", json!({ "color": color }));
            alone.set_color(color);
        };
        set_color(&mut web, "red");
        comparison.measure("plan of an install", || drop(web.plan().unwrap()), plan);
        comparison.measure("install", || drop(web.execute("apply").unwrap()), apply);
        comparison.measure("plan without changes", || drop(web.plan().unwrap()), plan);
        set_color(&mut web, "green");
        comparison.measure("plan of an upgrade", || drop(web.plan().unwrap()), plan);
        comparison.measure("upgrade", || drop(web.execute("apply").unwrap()), apply);
    }
    comparison.report();
}
