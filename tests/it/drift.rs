//! Tests drift checks of whole installs: they find differences and apply nothing.
use std::time::Duration;

use serde_json::Value;
use tests::{
    Customer, Server, edge_api, ended, stdout_of, succeeded, terraform_or_skip, until, until_some,
};

const TIMEOUT: Duration = Duration::from_secs(60);

/// Checks the install, and returns the exit code and the JSON output.
fn drift(server: &Server) -> (Option<i32>, Value) {
    let output = server.stead().args(["installs", "drift", "acme"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{text}"));
    (output.status.code(), report)
}

fn results(report: &Value, result: &str) -> Vec<String> {
    let parts = report["parts"].as_array().unwrap().iter();
    let found = parts.filter(|part| part["result"] == result);
    found.map(|part| part["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_drift_check_finds_changes_and_applies_nothing() {
    if !terraform_or_skip() {
        return;
    }
    // given a provisioned install
    let server = Server::up();
    let app = edge_api(server.dir());
    server.cli_json(&["apps", "sync", app.to_str().unwrap(), "--wait"]);
    let args = ["installs", "create", "edge-api", "acme", "--auto-approve"];
    let created = server.cli_json(&[&args[..], &["--input", "company=Acme"]].concat());
    let token = created["enrolment"]["token"].as_str().unwrap();
    let runner = Customer::new(&server, "customer").start(&server, token);
    until("the provision run", TIMEOUT, || {
        !server.cli_json(&["runs", "list", "--install", "acme"]).as_array().unwrap().is_empty()
    });
    succeeded(&server, "acme");
    let effects = runner.ledger().len();
    let components = || server.cli_json(&["installs", "show", "acme"])["components"].clone();
    let before = components();

    // then nothing has drifted
    let (code, report) = drift(&server);
    assert_eq!((code, &report["result"]), (Some(0), &Value::from("no_drift")), "{report:#}");
    assert_eq!(results(&report, "no_drift").len(), 6, "{report:#}");
    let run = server.cli_json(&["runs", "show", report["run"].as_str().unwrap()]);
    assert_eq!((&run["kind"], &run["state"]), (&"drift".into(), &"succeeded".into()));

    // when a change is not deployed
    server.cli_json(&["installs", "auto-approve", "acme", "off", "--reason", "a freeze"]);
    server.cli_json(&["installs", "set-inputs", "acme", "--input", "replicas=5"]);
    let deploy = until_some("the plan of the change", TIMEOUT, || {
        let run = server.cli_json(&["runs", "show", "acme"]);
        (run["state"] == "waiting_for_approval").then_some(run)
    });
    let is_waiting = |step: &&Value| step["state"] == "waiting_for_approval";
    let held = deploy["dag"].as_array().unwrap().iter().find(is_waiting).unwrap();
    let held = held["name"].as_str().unwrap();

    // when the deploy was denied, the difference is drift, also if plans need no approval
    let denied = deploy["id"].as_str().unwrap();
    server.cli_json(&["runs", "deny", denied, "--all", "--reason", "not now"]);
    until("the end of the deploy", TIMEOUT, || {
        server.cli_json(&["runs", "show", denied])["state"] == "denied"
    });
    server.cli_json(&["installs", "auto-approve", "acme", "on", "--reason", "no freeze"]);
    let (code, report) = drift(&server);
    assert_eq!((code, &report["result"]), (Some(6), &Value::from("drift")), "{report:#}");
    assert!(results(&report, "drift").contains(&held.to_owned()), "{report:#}");
    let part = report["parts"].as_array().unwrap().iter().find(|part| part["name"] == held);
    let part = part.unwrap();
    assert_eq!(part["details"]["state"], "available", "{part:#}");
    assert!(part["details"]["details"].to_string().contains("\"before\""), "{part:#}");
    let mut people = server.stead_for_people();
    let shown = people.args(["installs", "drift", "acme"]).output().unwrap();
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert_eq!(shown.status.code(), Some(6), "{text}");
    assert!(
        text.contains("no drift") && text.contains("drift: ") && text.contains(" → "),
        "{text}"
    );

    // and no check applied anything or changed what the server knows of the install
    assert_eq!(runner.ledger().len(), effects, "{:?}", runner.ledger());
    assert_eq!(components(), before);
    for job in server.cli_json(&["jobs", "list", "--install", "acme"]).as_array().unwrap() {
        let run = server.cli_json(&["runs", "show", job["run"].as_str().unwrap()]);
        assert!(run["kind"] != "drift" || job["kind"] == "plan", "{job:#}");
    }
    // The runner keeps no plan of a check.
    let stored = stdout_of(std::process::Command::new("ls").arg(runner.data().join("plans")));
    for step in server.cli_json(&["runs", "show", "acme"])["dag"].as_array().unwrap() {
        let digest = step["plan"]["digest"].as_str().unwrap();
        assert!(!stored.contains(&digest["sha256:".len()..]), "{stored}");
    }

    // too late: an install without parts has nothing to check
    server.cli_json(&["installs", "deprovision", "acme", "--reason", "the end"]);
    ended(&server, "acme");
    let (code, message) = server.refused(&["installs", "drift", "acme"]);
    assert!(
        code == 4 && message.contains("it has no sandbox and no components"),
        "{code} {message}"
    );
}
