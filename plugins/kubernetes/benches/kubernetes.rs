//! Benchmark of plans and applies of 100 objects against `kubectl diff` and `kubectl apply
//! --server-side` in the same run. Prints a table of medians, and fails if a ratio exceeds its
//! target.
#![allow(clippy::panic, clippy::unwrap_used, clippy::expect_used, reason = "a failed bench panics")]
#![allow(clippy::disallowed_methods, reason = "a benchmark creates ids itself")]
#![allow(dead_code, reason = "the tests use the rest of these modules")]

#[path = "../tests/it/cluster.rs"]
mod cluster;
mod compare;
#[path = "../tests/it/plugin.rs"]
mod plugin;

use std::{fs, path::Path};

use cluster::{Namespace, config_map};
use compare::{Comparison, Target};
use plugin::Component;

const OBJECTS: usize = 100;

/// Returns a manifest of objects without pods, because kubectl does not wait for pods.
fn manifest(value: &str) -> String {
    let object = |at: usize| match at % 4 {
        0 => format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: s{at}, annotations: {{v: {value}}}}}\n\
             spec: {{selector: {{app: a}}, ports: [{{port: 80, protocol: TCP}}]}}\n---\n"
        ),
        1 => format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: s{at}}}\nstringData: {{key: {value}}}\n\
             ---\n"
        ),
        _ => config_map(&format!("c{at}"), value),
    };
    (0..OBJECTS).map(object).collect()
}

/// Runs kubectl with a manifest file. `diff` ends with 1 if there are differences.
fn kubectl(namespace: &Namespace, args: &[&str], file: &Path) {
    let mut command = namespace.kubectl();
    let output = command.args(args).arg("--filename").arg(file).output().unwrap();
    let is_diff = args.contains(&"diff") && output.status.code() == Some(1);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() || is_diff, "kubectl {args:?}: {errors}");
}

fn main() {
    let mut comparison = Comparison::new("100 objects", "kubectl", Target::Ratio(1.2));
    while comparison.next_round() {
        let Some(theirs) = Namespace::create_or_skip() else { return };
        let Some(own) = Namespace::create_or_skip() else { return };
        let mut web = Component::new(&own.kubeconfig, &own.name, &manifest("one"));
        let file = web.dir.path().join("manifest.yaml");
        fs::write(&file, manifest("one")).unwrap();
        let diff = || kubectl(&theirs, &["diff", "--server-side"], &file);
        let apply = || kubectl(&theirs, &["apply", "--server-side"], &file);
        comparison.measure("plan, all new", || drop(web.plan().unwrap()), diff);
        comparison.measure("apply, all new", || drop(web.execute("apply").unwrap()), apply);
        comparison.measure("plan, no changes", || drop(web.plan().unwrap()), diff);
        web.set("manifest", manifest("two"));
        fs::write(&file, manifest("two")).unwrap();
        comparison.measure("plan, all changed", || drop(web.plan().unwrap()), diff);
        comparison.measure("apply, all changed", || drop(web.execute("apply").unwrap()), apply);
    }
    comparison.report();
}
