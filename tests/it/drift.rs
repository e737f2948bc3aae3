//! Tests drift checks of whole installs: they find differences, apply nothing, and wait only for runs
//! that change the same part.
use std::{fs, process::Stdio, time::Duration};

use serde_json::Value;
use tests::{
    Customer, Runner, Server, edge_api, ended, finish, stdout_of, step, succeeded,
    terraform_or_skip, until, until_some,
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

/// Returns a server with a provisioned install, and its runner.
fn provisioned() -> (Server, Runner) {
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
    (server, runner)
}

/// Starts a change of one component whose plan waits for an approval. Returns its run.
fn change_that_waits(server: &Server) -> Value {
    server.cli_json(&["installs", "auto-approve", "acme", "off", "--reason", "a freeze"]);
    server.cli_json(&["installs", "set-inputs", "acme", "--input", "replicas=5"]);
    until_some("the plan of the change", TIMEOUT, || {
        let run = server.cli_json(&["runs", "show", "acme"]);
        (run["state"] == "waiting_for_approval").then_some(run)
    })
}

#[test]
fn a_drift_check_beside_a_deploy_waits_for_the_held_part_and_names_the_run() {
    if !terraform_or_skip() {
        return;
    }
    let (server, _runner) = provisioned();
    let deploy = change_that_waits(&server);
    let deploy_id = deploy["id"].as_str().unwrap();
    assert_eq!(step(&deploy, "api")["state"], "waiting_for_approval", "{deploy:#}");

    // when the install is checked meanwhile
    let errors = server.dir().join("drift.stderr");
    let mut command = server.stead_for_people();
    let command = command.args(["installs", "drift", "acme"]).stdout(Stdio::piped());
    let checking = command.stderr(fs::File::create(&errors).unwrap()).spawn().unwrap();

    // then only the held component waits, and the command names the run that holds it
    let check = until_some("the other parts to be checked", TIMEOUT, || {
        let run = server.cli_json(&["runs", "show", "acme"]);
        let is_checked = |step: &Value| step["name"] == "api" || step["state"] == "succeeded";
        let are_checked = run["dag"].as_array().unwrap().iter().all(is_checked);
        (run["kind"] == "drift" && are_checked).then_some(run)
    });
    let api = step(&check, "api");
    assert_eq!(
        (&api["state"], &api["waiting"]["for"], &api["waiting"]["run"]),
        (&"pending".into(), &"reservation".into(), &deploy_id.into()),
        "{check:#}"
    );
    until("the command to name the run", TIMEOUT, || {
        let text = fs::read_to_string(&errors).unwrap();
        text.contains(&format!(
            "api waits: api of the install is held by a step of run {deploy_id}"
        )) && text.contains("waiting for approval")
    });

    // when the deploy ends, the check ends
    let deployed = finish(&server, deploy_id);
    assert_eq!(deployed["state"], "succeeded", "{deployed:#}");
    let output = checking.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{text}{}", fs::read_to_string(&errors).unwrap());
    assert_eq!(text.lines().filter(|line| line.ends_with("no drift")).count(), 6, "{text}");
}

#[test]
fn a_cancelled_drift_check_reports_the_part_that_it_did_not_check() {
    if !terraform_or_skip() {
        return;
    }
    let (server, _runner) = provisioned();
    change_that_waits(&server);
    let mut command = server.stead();
    let command = command.args(["installs", "drift", "acme"]).stdout(Stdio::piped());
    let checking = command.stderr(Stdio::null()).spawn().unwrap();
    let check = until_some("the check to wait", TIMEOUT, || {
        let run = server.cli_json(&["runs", "show", "acme"]);
        let is_checked = |step: &Value| step["name"] == "api" || step["state"] == "succeeded";
        let are_checked = run["dag"].as_array().unwrap().iter().all(is_checked);
        (run["kind"] == "drift" && are_checked).then_some(run)
    });
    server.cli_json(&["runs", "cancel", check["id"].as_str().unwrap(), "--reason", "later"]);
    let output = checking.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(results(&report, "not_checked"), ["api"], "{report:#}");
    assert_eq!(output.status.code(), Some(1), "{report:#}");
}

#[test]
fn a_drift_check_finds_changes_and_applies_nothing() {
    if !terraform_or_skip() {
        return;
    }
    // given a provisioned install
    let (server, runner) = provisioned();
    let effects = runner.ledger().len();
    // Components without their drift, and the components with drift.
    let components = || {
        let mut shown = server.cli_json(&["installs", "show", "acme"])["components"].clone();
        let mut drifted = vec![];
        for component in shown.as_array_mut().unwrap() {
            if component.as_object_mut().unwrap().remove("drift").is_some() {
                drifted.push(component["name"].as_str().unwrap().to_owned());
            }
        }
        (shown, drifted)
    };
    let (before, none) = components();
    assert!(none.is_empty(), "{none:?}");

    // then nothing has drifted
    let (code, report) = drift(&server);
    assert_eq!((code, &report["result"]), (Some(0), &Value::from("no_drift")), "{report:#}");
    assert_eq!(results(&report, "no_drift").len(), 6, "{report:#}");
    let run = server.cli_json(&["runs", "show", report["run"].as_str().unwrap()]);
    assert_eq!((&run["kind"], &run["state"]), (&"drift".into(), &"succeeded".into()));

    // when a change is not deployed
    let deploy = change_that_waits(&server);
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
    let (after, drifted) = components();
    assert_eq!(after, before);
    assert!(drifted.contains(&held.to_owned()), "{drifted:?}");
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

    // A deploy ends the drift.
    server.cli_json(&["installs", "deploy", "acme"]);
    succeeded(&server, "acme");
    let (_, drifted) = components();
    assert!(drifted.is_empty(), "{drifted:?}");

    // too late: an install without parts has nothing to check
    server.cli_json(&["installs", "deprovision", "acme", "--reason", "the end"]);
    ended(&server, "acme");
    let (code, message) = server.refused(&["installs", "drift", "acme"]);
    assert!(
        code == 4 && message.contains("it has no sandbox and no components"),
        "{code} {message}"
    );
}
