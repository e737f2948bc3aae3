//! Benchmark of the preflight of a run: the time from the claim of its job to its result.
//!
//! Each round provisions an install with a new runner, which pulls the published plugin, and deploys
//! it again. The apps have several components, which the preflight checks in one job.
use std::{fmt::Write as _, fs, path::Path, process::Command, time::Duration};

use measure::Quantiles;
use serde_json::{Value, json};
use tests::{Cluster, Server, program, stdout_of};

use crate::{
    command_line::{BenchOptions, check_arguments},
    installs,
};

const COMPONENTS: usize = 5;
/// Largest median in milliseconds.
const TARGET_MS: f64 = 500.0;

const USAGE: &str = "stead-bench-preflight [--quick] [--json] [--rounds N]";

/// App with the durations of its preflights.
struct App {
    name: &'static str,
    /// Components as users call them.
    title: &'static str,
    /// First preflight of each runner.
    first: Vec<Duration>,
    again: Vec<Duration>,
}

/// Runs `scripts/bench preflight`.
pub fn main() {
    check_arguments(USAGE);
    let options = BenchOptions::read();
    let cluster = Cluster::shared_or_skip();
    let namespace = cluster.as_ref().map(Cluster::namespace);
    let keys = tempfile::tempdir().unwrap();
    let (file, key) = publisher(keys.path());
    let server = Server::up_with("127.0.0.1:0", &["--plugin-publisher", &key]);
    let app = |name, title| App { name, title, first: vec![], again: vec![] };
    let mut apps = vec![app("terraform", "Terraform modules")];
    publish(&server, "terraform", &terraform_app(server.dir()));
    if let Some(namespace) = &namespace {
        let plugin = program("stead-plugin-kubernetes_manifest");
        server.cli_json(&["plugins", "push", "--key", &file, plugin.to_str().unwrap()]);
        publish(&server, "manifests", &manifest_app(namespace.name()));
        apps.push(app("manifests", "Kubernetes manifests"));
    }
    for round in 1..=options.rounds {
        eprintln!("round {round} of {}", options.rounds);
        for app in &mut apps {
            let install = format!("{}-{round}", app.name);
            let (_runner, run) = installs::provision(&server, app.name, &install, |customer| {
                let customer = customer.with(&["--plugin-publisher", &key]);
                match &cluster {
                    Some(of) => customer.pass("KUBECONFIG", of.kubeconfig().to_str().unwrap()),
                    None => customer,
                }
            });
            app.first.push(preflight(&server, &run));
            for _ in 0..3 {
                app.again.push(preflight(&server, &installs::deploy(&server, &install)));
            }
        }
    }
    report(options, apps);
}

/// Creates the key of a publisher. Returns its file and the public key.
fn publisher(dir: &Path) -> (String, String) {
    let file = dir.join("publisher.key").display().to_string();
    let mut keygen = Command::new(program("stead"));
    let created = stdout_of(keygen.args(["--output", "json", "plugins", "keygen", &file]));
    let created: Value = serde_json::from_str(&created).unwrap();
    (file, created["publisher"].as_str().unwrap().to_owned())
}

fn publish(server: &Server, name: &str, components: &[String]) {
    let app = server.dir().join(name);
    fs::create_dir_all(app.join("components")).unwrap();
    fs::write(app.join("metadata.toml"), "version = \"v2\"\n").unwrap();
    for (number, component) in components.iter().enumerate() {
        let text = format!("name = \"part_{number}\"\n{component}");
        fs::write(app.join(format!("components/part_{number}.toml")), text).unwrap();
    }
    server.cli_json(&["apps", "sync", app.to_str().unwrap(), "--wait"]);
}

fn terraform_app(dir: &Path) -> Vec<String> {
    let module = dir.join("terraform/modules/part");
    fs::create_dir_all(&module).unwrap();
    fs::write(module.join("main.tf"), "resource \"terraform_data\" \"part\" {}\n").unwrap();
    let component =
        "type = \"terraform_module\"\n[public_repo]\nrepo = \".\"\ndirectory = \"modules/part\"\n";
    vec![component.to_owned(); COMPONENTS]
}

fn manifest_app(namespace: &str) -> Vec<String> {
    let component = |number| {
        format!(
            "type = \"kubernetes_manifest\"\nnamespace = \"{namespace}\"\nmanifest = \"\"\"\n\
             apiVersion: v1\nkind: ConfigMap\nmetadata:\n  \
             name: {{{{ .nuon.install.name }}}}-{number}\n\"\"\"\n"
        )
    };
    (0..COMPONENTS).map(component).collect()
}

fn preflight(server: &Server, run: &Value) -> Duration {
    assert_eq!(run["preflight"]["state"], "passed", "{run:#}");
    installs::duration(server, &run["preflight"]["job"])
}

fn report(options: BenchOptions, apps: Vec<App>) {
    let rows = apps.into_iter().flat_map(|app| {
        let title = format!("{COMPONENTS} {}", app.title);
        let first = (format!("{title}, first job of a runner"), Quantiles::of(app.first));
        [first, (format!("{title}, again"), Quantiles::of(app.again))]
    });
    let rows: Vec<(String, Quantiles)> = rows.collect();
    if options.json {
        let rows = rows.iter().map(|(what, times)| json!({"what": what, "times": times.json()}));
        let rows: Vec<Value> = rows.collect();
        let machine = measure::machine();
        println!("{:#}", json!({"machine": machine, "target_ms": TARGET_MS, "preflights": rows}));
        return;
    }
    let mut text =
        "| preflight, claim to result | samples | p50, ms | max, ms | target |\n|---|---|---|---|---|\n".to_owned();
    for (what, times) in rows {
        let Quantiles { number, p50, most, .. } = times;
        let _ = writeln!(text, "| {what} | {number} | {p50:.0} | {most:.0} | ≤ {TARGET_MS} |");
    }
    println!("{}\n\n{text}", measure::machine());
}
