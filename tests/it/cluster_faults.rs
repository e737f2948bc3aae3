//! Tests that a killed agent, server or shim in the middle of an apply to a cluster loses no result
//! and repeats no effect, and webhooks of the cluster, for manifests and for charts.
mod webhooks;

use std::{fs, path::PathBuf, process::Command, time::Duration};

use tests::{
    Cluster, ClusterNamespace, Customer, Runner, Server, helm_or_skip, job_events, one_execution,
    stdout_of, succeeded, until, until_some,
};

use crate::plugins::{Publisher, publisher, push};

const TIMEOUT: Duration = Duration::from_secs(120);

/// Deployment whose pod is ready 20 seconds after its start.
const SLOW: &str = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: slow}\nspec:\n  \
     selector: {matchLabels: {app: slow}}\n  template:\n    metadata: {labels: {app: slow}}\n    \
     spec:\n      terminationGracePeriodSeconds: 0\n      containers:\n      - name: main\n        \
     image: localhost/busybox:1\n        command: [sh, -c, sleep 20; touch /ready; sleep 100000]\n        \
     readinessProbe: {exec: {command: [test, -e, /ready]}, periodSeconds: 1}\n";

/// Component type of the object.
#[derive(Clone, Copy)]
enum Kind {
    Manifest,
    Chart,
}

/// Install of an app with one component, `web`.
struct Fixture<'c> {
    server: Server,
    runner: Runner,
    _publisher: Publisher,
    namespace: ClusterNamespace<'c>,
}

fn app(server: &Server, namespace: &str, kind: Kind, object: &str) -> PathBuf {
    let dir = server.dir().join("shop");
    let component = match kind {
        Kind::Manifest => {
            format!("type = \"kubernetes_manifest\"\nmanifest = '''\n{object}'''\n")
        }
        Kind::Chart => "type = \"helm_chart\"\nchart_name = \"web\"\n\
             [public_repo]\nrepo = \".\"\ndirectory = \"chart\"\n"
            .into(),
    };
    let component = format!("name = \"web\"\nnamespace = \"{namespace}\"\n{component}");
    for (file, text) in [
        ("metadata.toml", "version = \"v2\"\n"),
        ("components/web.toml", &component),
        ("chart/Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n"),
        ("chart/templates/web.yaml", object),
    ] {
        let path = dir.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    dir
}

/// Creates an install with these options, and starts its runner.
fn installed<'c>(
    cluster: &'c Cluster,
    kind: Kind,
    object: &str,
    options: &[&str],
) -> Option<Fixture<'c>> {
    let helm = helm_or_skip()?;
    let path = format!("{}:{}", helm.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let namespace = cluster.namespace();
    let publisher = publisher();
    let server = Server::up_in(&[("PATH", &path), ("STEAD_PLUGIN_PUBLISHER", &publisher.key)]);
    for plugin in ["stead-plugin-helm_chart", "stead-plugin-kubernetes_manifest"] {
        push(&server, &publisher.file, plugin);
    }
    let app = app(&server, namespace.name(), kind, object);
    server.cli_json(&["apps", "sync", app.to_str().unwrap(), "--wait"]);
    let created = server.cli_json(&[&["installs", "create", "shop", "acme"], options].concat());
    let runner = Customer::new(&server, "customer")
        .pass("KUBECONFIG", cluster.kubeconfig().to_str().unwrap())
        .pass("PATH", &path)
        .with(&["--plugin-publisher", &publisher.key])
        .start(&server, created["enrolment"]["token"].as_str().unwrap());
    Some(Fixture { server, runner, _publisher: publisher, namespace })
}

/// Provisions an install until its apply waits for the Deployment. Returns the job.
fn applying(cluster: &Cluster, kind: Kind) -> Option<(Fixture<'_>, String)> {
    let fixture = installed(cluster, kind, SLOW, &["--auto-approve"])?;
    let server = &fixture.server;
    let job = until_some("an apply", TIMEOUT, || {
        let jobs = server.cli_json(&["jobs", "list", "--install", "acme", "--state", "running"]);
        let job = jobs.as_array()?.iter().find(|job| job["kind"] == "apply")?.clone();
        Some(job["id"].as_str()?.to_owned())
    });
    let execution = one_execution(server, &job);
    let log = fixture.runner.data().join("jobs").join(execution).join("log.ndjson");
    until("the wait for the Deployment", TIMEOUT, || {
        fs::read_to_string(&log).is_ok_and(|log| log.contains("waiting for Deployment"))
    });
    Some((fixture, job))
}

/// Returns how often the Deployment was changed.
fn generation(namespace: &ClusterNamespace<'_>) -> String {
    let get = ["get", "deployment", "slow", "--output", "jsonpath={.metadata.generation}"];
    stdout_of(namespace.kubectl().args(get))
}

fn survives_a_killed_agent_and_server(kind: Kind) {
    let Some(cluster) = Cluster::shared_or_skip() else { return };
    let Some((mut fixture, job)) = applying(&cluster, kind) else { return };
    // when agent and server are killed, and start again
    fixture.runner.kill();
    fixture.server.kill();
    fixture.server.restart();
    fixture.runner.restart();
    // then the same execution ends, and the next deploy has no changes
    succeeded(&fixture.server, "acme");
    one_execution(&fixture.server, &job);
    assert_eq!(fixture.server.cli_json(&["jobs", "show", &job])["state"], "succeeded");
    assert_eq!(generation(&fixture.namespace), "1");
    fixture.server.cli_json(&["installs", "deploy", "acme", "--reason", "again"]);
    let run = succeeded(&fixture.server, "acme");
    assert_eq!(tests::step(&run, "web")["plan"]["noop"], true, "{run:#}");
}

fn needs_a_resolution_after_a_killed_shim(kind: Kind) {
    let Some(cluster) = Cluster::shared_or_skip() else { return };
    let Some((fixture, job)) = applying(&cluster, kind) else { return };
    let server = &fixture.server;
    // when the shim is killed
    let shim = stdout_of(Command::new("pgrep").args(["-f", &format!("shim.*{job}")]));
    let shim = shim.split_whitespace().next().unwrap().to_owned();
    stdout_of(Command::new("kill").args(["-KILL", &shim]));
    // then the outcome is unknown until a user resolves it
    until("the outcome to be unknown", TIMEOUT, || {
        job_events(server, &job).iter().any(|event| event["type"] == "job.outcome_unknown")
    });
    let resolve = ["--resolution", "failed", "--reason", "the Deployment was not ready"];
    server.cli_json(&[&["jobs", "resolve", &job], &resolve[..]].concat());
    until("the end of the run", TIMEOUT, || {
        server.cli_json(&["runs", "show", "acme"])["state"] == "failed"
    });
    // and the next deploy completes the component
    server.cli_json(&["installs", "reprovision", "acme", "--reason", "repair"]);
    succeeded(server, "acme");
    let get = ["get", "deployment", "slow", "--output", "jsonpath={.status.readyReplicas}"];
    assert_eq!(stdout_of(fixture.namespace.kubectl().args(get)), "1");
}

#[test]
fn manifests_survive_a_killed_agent_and_server() {
    survives_a_killed_agent_and_server(Kind::Manifest);
}

#[test]
fn a_chart_survives_a_killed_agent_and_server() {
    survives_a_killed_agent_and_server(Kind::Chart);
}

#[test]
fn manifests_need_a_resolution_after_a_killed_shim() {
    needs_a_resolution_after_a_killed_shim(Kind::Manifest);
}

#[test]
fn a_chart_needs_a_resolution_after_a_killed_shim() {
    needs_a_resolution_after_a_killed_shim(Kind::Chart);
}
