//! Benchmark of plans and applies of 100 objects against `kubectl diff` and `kubectl apply
//! --server-side` in the same run. Prints a table of medians, and fails if a ratio exceeds its
//! target.
#![allow(clippy::panic, clippy::unwrap_used, clippy::expect_used, reason = "a failed bench panics")]
#![allow(clippy::disallowed_methods, reason = "a benchmark creates ids itself")]
#![allow(dead_code, reason = "the tests use the rest of these modules")]

#[path = "../tests/it/cluster.rs"]
mod cluster;
#[path = "../tests/it/plugin.rs"]
mod plugin;

use std::{
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use cluster::{Namespace, config_map};
use plugin::Component;

const OBJECTS: usize = 100;
const ROUNDS: usize = 5;
/// Maximum ratio to the time of kubectl.
const TARGET: f64 = 1.2;

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

fn timed(work: impl FnOnce()) -> Duration {
    let started = Instant::now();
    work();
    started.elapsed()
}

/// Runs kubectl with a manifest file. `diff` ends with 1 if there are differences.
fn kubectl(namespace: &Namespace, args: &[&str], file: &Path) {
    let mut command: Command = namespace.kubectl();
    let output = command.args(args).arg("--filename").arg(file).output().unwrap();
    let is_diff = args.contains(&"diff") && output.status.code() == Some(1);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() || is_diff, "kubectl {args:?}: {errors}");
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// Measured operation with the durations of the plugin and of kubectl.
struct Row {
    name: &'static str,
    plugin: Vec<Duration>,
    kubectl: Vec<Duration>,
}

fn main() {
    let names = [
        "plan, all new",
        "apply, all new",
        "plan, no changes",
        "plan, all changed",
        "apply, all changed",
    ];
    let mut rows = names.map(|name| Row { name, plugin: vec![], kubectl: vec![] });
    for round in 0..ROUNDS {
        let Some(theirs) = Namespace::create_or_skip() else { return };
        let Some(own) = Namespace::create_or_skip() else { return };
        let mut web = Component::new(&own.kubeconfig, &own.name, &manifest("one"));
        let file = web.dir.path().join("manifest.yaml");
        fs::write(&file, manifest("one")).unwrap();
        let diff = ["diff", "--server-side"];
        let apply = ["apply", "--server-side"];
        // The order alternates, so that neither side always runs on a warm server.
        let mut measure = |row: usize, own: &mut dyn FnMut(), theirs: &mut dyn FnMut()| {
            let (plugin, kubectl) = match round % 2 {
                0 => {
                    let plugin = timed(own);
                    (plugin, timed(theirs))
                }
                _ => {
                    let kubectl = timed(theirs);
                    (timed(own), kubectl)
                }
            };
            rows[row].plugin.push(plugin);
            rows[row].kubectl.push(kubectl);
        };
        measure(0, &mut || drop(web.plan().unwrap()), &mut || kubectl(&theirs, &diff, &file));
        measure(1, &mut || drop(web.execute("apply").unwrap()), &mut || {
            kubectl(&theirs, &apply, &file);
        });
        measure(2, &mut || drop(web.plan().unwrap()), &mut || kubectl(&theirs, &diff, &file));
        web.set("manifest", manifest("two"));
        fs::write(&file, manifest("two")).unwrap();
        measure(3, &mut || drop(web.plan().unwrap()), &mut || kubectl(&theirs, &diff, &file));
        measure(4, &mut || drop(web.execute("apply").unwrap()), &mut || {
            kubectl(&theirs, &apply, &file);
        });
    }
    println!("| {OBJECTS} objects, median of {ROUNDS} | plugin | kubectl | ratio |");
    println!("|---|---|---|---|");
    let mut is_slow = false;
    for Row { name, plugin, kubectl } in rows {
        let (plugin, kubectl) = (median(plugin), median(kubectl));
        let ratio = plugin.as_secs_f64() / kubectl.as_secs_f64();
        is_slow |= ratio > TARGET;
        println!(
            "| {name} | {} ms | {} ms | {ratio:.2} × |",
            plugin.as_millis(),
            kubectl.as_millis()
        );
    }
    assert!(!is_slow, "a ratio is above {TARGET}");
}
