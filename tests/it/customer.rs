//! Tests the customer's controls: disable, policy and journal; and the confirmation of a cancel.
use std::{fs, time::Duration};

use serde_json::Value;
use tests::{
    Runner, Server, edge_api, finish, notes_files, program, stdout_of, terraform_or_skip, until,
    until_some,
};

const TIMEOUT: Duration = Duration::from_secs(30);

fn install(server: &Server, more: &[&str]) -> String {
    let app = edge_api(server.dir());
    server.cli_json(&["apps", "sync", app.to_str().unwrap(), "--wait"]);
    let create = ["installs", "create", "edge-api", "acme", "--input", "company=Acme"];
    let created = server.cli_json(&[&create, more].concat());
    created["enrolment"]["token"].as_str().unwrap().to_string()
}

fn events(server: &Server, kind: &str) -> Vec<Value> {
    let all = server.cli_json(&["audit", "events", "--type", kind]);
    all.as_array().unwrap().clone()
}

#[test]
fn the_customer_controls_jobs_and_sees_them_in_the_journal() {
    if !terraform_or_skip() {
        return;
    }
    let server = Server::up();
    let token = install(&server, &["--auto-approve"]);
    let policy = server.dir().join("policy.toml");
    fs::write(&policy, "version = 1\nkinds = [\"plan\", \"apply\"]\n").unwrap();
    let options = ["--policy", policy.to_str().unwrap()];
    let runner = Runner::start_with(&server, "customer", &token, &options);
    until("the provision run", TIMEOUT, || {
        !server.cli_json(&["runs", "list", "--install", "acme"]).as_array().unwrap().is_empty()
    });

    // The policy does not name the kind `action`, so the preflight fails before the first change,
    // and prints the line to add.
    let run = finish(&server, "acme");
    assert_eq!((&run["state"], &run["preflight"]["state"]), (&"failed".into(), &"failed".into()));
    let line = r#"kinds = [\"plan\", \"apply\", \"action\"]"#;
    assert!(run["preflight"].to_string().contains(line), "{run:#}");
    assert!(runner.ledger().is_empty(), "{:?}", runner.ledger());

    // With another policy everything runs, because the runner reads the file for every job.
    fs::write(&policy, "version = 1\nactions = [\"smoke_*\"]\n").unwrap();
    server.cli_json(&["installs", "deploy", "acme", "--reason", "actions are allowed"]);
    let run = finish(&server, "acme");
    assert_eq!(run["state"], "succeeded", "{run:#}");
    assert_eq!(run["preflight"]["state"], "passed", "{run:#}");

    // A run without an apply has no preflight, so the runner refuses its job.
    fs::write(&policy, "version = 1\nkinds = [\"plan\", \"apply\"]\n").unwrap();
    server.cli_json(&["installs", "action", "acme", "smoke_test", "--reason", "not allowed"]);
    let run = finish(&server, "acme");
    assert_eq!((&run["state"], &run["preflight"]), (&"failed".into(), &Value::Null));
    let refused = events(&server, "runner.refused");
    assert_eq!(refused.len(), 1, "{refused:#?}");
    let refusal = refused[0].to_string();
    assert!(refusal.contains("customer_policy") && refusal.contains("kinds"), "{refusal}");
    let journal = stdout_of(&mut runner.local(&["journal"]));
    assert!(journal.contains("refused"), "{journal}");
    fs::write(&policy, "version = 1\nactions = [\"smoke_*\"]\n").unwrap();
    server.cli_json(&["installs", "action", "acme", "smoke_test", "--reason", "again"]);
    assert_eq!(finish(&server, "acme")["state"], "succeeded");

    // A disabled runner starts nothing new, and the vendor sees the reason.
    stdout_of(&mut runner.local(&["disable", "--reason", "change freeze"]));
    until("the vendor to see it", TIMEOUT, || {
        let runners = server.cli_json(&["runners", "list"]).to_string();
        runners.contains("disabled")
    });
    server.cli_json(&["installs", "action", "acme", "smoke_test", "--reason", "frozen"]);
    let waiting = until_some("the reason for waiting", TIMEOUT, || {
        let jobs = server.cli_json(&["jobs", "list", "--install", "acme", "--state", "queued"]);
        let job = jobs.as_array()?.first()?.clone();
        Some(job["waiting"].to_string()).filter(|why| why.contains("disabled"))
    });
    assert!(waiting.contains("change freeze") || waiting.contains("disabled"), "{waiting}");
    let status = stdout_of(&mut runner.local(&["status"]));
    assert!(status.contains("disabled") && status.contains("change freeze"), "{status}");
    stdout_of(&mut runner.local(&["enable"]));
    assert_eq!(finish(&server, "acme")["state"], "succeeded");
}

#[test]
fn an_unreadable_policy_and_the_veto_command_refuse_jobs() {
    let server = Server::up();
    let plugin = format!("files={}", program("stead-plugin-files").display());
    let app = notes_files(server.dir());
    server.cli_json(&["apps", "sync", app.to_str().unwrap(), "--plugin", &plugin, "--wait"]);
    let create = ["installs", "create", "notes-files", "acme", "--input", "company=A"];
    let created = server.cli_json(&create);
    let (plugins, policy) = (server.dir().join("plugins"), server.dir().join("policy.toml"));
    fs::create_dir(&plugins).unwrap();
    fs::copy(program("stead-plugin-files"), plugins.join("stead-plugin-files")).unwrap();
    // The veto command reads the job and returns a reason.
    let hook = |end: &str| {
        let hook = server.dir().join("hook.sh");
        let text = format!("read=$(cat)\ncase $read in *'\"kind\":\"plan\"'*) {end} ;; esac\n");
        fs::write(&hook, text).unwrap();
        let text = format!("version = 1\nveto_command = [\"/bin/sh\", \"{}\"]\n", hook.display());
        fs::write(&policy, text).unwrap();
    };
    hook("echo not on a Friday >&2; exit 3");
    let options = ["--plugin-dir", plugins.to_str().unwrap(), "--policy", policy.to_str().unwrap()];
    let token = created["enrolment"]["token"].as_str().unwrap();
    let runner = Runner::start_with(&server, "customer", token, &options);
    until("the provision run", TIMEOUT, || {
        !server.cli_json(&["runs", "list", "--install", "acme"]).as_array().unwrap().is_empty()
    });
    assert_eq!(finish(&server, "acme")["state"], "failed");
    let refused = events(&server, "runner.refused");
    assert_eq!(refused.len(), 1, "{refused:#?}");
    let refusal = &refused[0]["readable_payload"];
    assert_eq!(refusal["refused_by"], "veto", "{refusal:#}");
    assert!(refusal["detail"].as_str().unwrap().contains("not on a Friday"), "{refusal:#}");

    // Write an incomplete file, as an editor can leave it. Its rules are unknown: nothing may run.
    fs::write(&policy, "version = 1\nkinds = [\"action\"").unwrap();
    server.cli_json(&["runs", "retry", "acme", "--reason", "the hook is gone"]);
    assert_eq!(finish(&server, "acme")["state"], "failed");
    let refused = events(&server, "runner.refused");
    // The runner refuses the preflight. The plan is refused too, unless it was cancelled before.
    let is_unreadable = |event: &&Value| event["payload"]["rule"] == "policy_unreadable";
    let unreadable = refused.iter().filter(is_unreadable).count();
    assert!((1..=2).contains(&unreadable) && refused.len() == unreadable + 1, "{refused:#?}");
    assert!(runner.ledger().is_empty(), "{:?}", runner.ledger());

    hook("exit 0");
    server.cli_json(&["runs", "retry", "acme", "--reason", "it is Saturday"]);
    assert_eq!(finish(&server, "acme")["state"], "succeeded");
    assert!(!runner.ledger().is_empty());
}

#[test]
fn a_cancel_is_confirmed_by_the_runner() {
    if !terraform_or_skip() {
        return;
    }
    let server = Server::up();
    let token = install(&server, &["--auto-approve", "--input", "pace_seconds=30"]);
    let runner = Runner::start(&server, "customer", &token);
    let job = until_some("an apply", TIMEOUT, || {
        let jobs = server.cli_json(&["jobs", "list", "--install", "acme", "--state", "running"]);
        let apply = |job: &&Value| job["kind"] == "apply";
        Some(jobs.as_array()?.iter().find(apply)?["id"].as_str()?.to_string())
    });
    server.cli_json(&["runs", "cancel", "acme", "--reason", "wrong day"]);
    let run = finish(&server, "acme");
    assert_eq!(run["state"], "cancelled", "{run:#}");
    let job = server.cli_json(&["jobs", "show", &job]);
    assert_eq!(job["state"], "cancelled", "{job:#}");
    assert!(runner.ledger().is_empty(), "{:?}", runner.ledger());
}

#[test]
fn a_denied_plan_changes_nothing() {
    if !terraform_or_skip() {
        return;
    }
    let server = Server::up();
    let token = install(&server, &[]);
    let runner = Runner::start(&server, "customer", &token);
    until("the plan", TIMEOUT, || {
        let output = server.stead().args(["runs", "show", "acme"]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).contains("waiting_for_approval")
    });
    server.cli_json(&["runs", "deny", "acme", "--all", "--reason", "not today"]);
    let run = finish(&server, "acme");
    assert_eq!(run["state"], "denied", "{run:#}");
    assert!(run.to_string().contains("not today"), "{run:#}");
    assert!(runner.ledger().is_empty());

    // The remaining work is retried as a new run.
    let names = |run: &Value| -> Vec<String> {
        let steps = run["dag"].as_array().unwrap().iter();
        steps.map(|step| step["name"].as_str().unwrap().to_string()).collect()
    };
    server.cli_json(&["runs", "retry", "acme", "--reason", "now"]);
    let retried = finish(&server, "acme");
    assert_eq!(
        (retried["state"].as_str(), retried["reason"].as_str()),
        (Some("succeeded"), Some("now")),
        "{retried:#}"
    );
    assert_eq!(retried["retry_of"], run["id"], "{retried:#}");
    assert_eq!(names(&retried), names(&run), "nothing was done, so all of it is done now");
    assert!(!runner.ledger().is_empty());
    let (_, message) = server.refused(&["runs", "retry", "acme", "--reason", "once more"]);
    assert!(message.contains("no remaining work"), "{message}");
}

#[test]
fn another_runner_continues_the_run_of_a_lost_runner() {
    if !terraform_or_skip() {
        return;
    }
    let server = Server::up();
    let token = install(&server, &[]);
    let mut lost = Runner::start(&server, "lost", &token);
    let runner = until_some("a plan that waits", TIMEOUT, || {
        let output = server.stead().args(["runs", "show", "acme"]).output().unwrap();
        let is_waiting = String::from_utf8_lossy(&output.stdout).contains("waiting_for_approval");
        let install = is_waiting.then(|| server.cli_json(&["installs", "show", "acme"]))?;
        Some(install["runner"].as_str()?.to_string())
    });
    lost.kill();

    // An install with a runner cannot enrol a second runner.
    let (code, message) = server.refused(&["installs", "create-enrolment-token", "acme"]);
    assert!(code == 4 && message.contains(&format!("stead runners revoke {runner}")), "{message}");
    server.cli_json(&["runners", "revoke", &runner, "--reason", "host was lost"]);
    let issued = server.cli_json(&["installs", "create-enrolment-token", "acme"]);
    let token = issued["enrolment"]["token"].as_str().unwrap();
    let second = Runner::start(&server, "second", token);

    // The plan file is lost with the host, so its approval is invalid. The step is planned again,
    // and the run continues.
    let run = finish(&server, "acme");
    assert_eq!(run["state"], "succeeded", "{run:#}");
    assert!(lost.ledger().is_empty(), "{:?}", lost.ledger());
    assert_eq!(second.ledger().len(), 6, "{:?}", second.ledger());
    assert_ne!(server.cli_json(&["installs", "show", "acme"])["runner"], runner.as_str());
}

#[test]
fn a_stopped_runner_is_shown_and_an_unknown_filter_is_an_error() {
    let server = Server::up();
    let plugin = format!("files={}", program("stead-plugin-files").display());
    let app = notes_files(server.dir());
    server.cli_json(&["apps", "sync", app.to_str().unwrap(), "--plugin", &plugin, "--wait"]);
    let create = ["installs", "create", "notes-files", "acme", "--input", "company=A"];
    let created = server.cli_json(&create);
    let token = created["enrolment"]["token"].as_str().unwrap();
    let mut runner = Runner::start(&server, "customer", token);
    let install_field = |field: &str| server.cli_json(&["installs", "show", "acme"])[field].clone();
    until("the runner to be active", TIMEOUT, || {
        install_field("runner_state") == "active"
            && install_field("runner_last_contact").is_string()
    });
    runner.drain();
    until("the runner to end", TIMEOUT, || runner.ended().is_some());
    until("the server to show it", TIMEOUT, || install_field("runner_state") == "stopped");
    let of_acme = |runner: &&Value| runner["install_name"] == "acme";
    let runners = server.cli_json(&["runners", "list"]);
    let listed = runners.as_array().unwrap().iter().find(of_acme).unwrap();
    assert_eq!(listed["state"], "stopped", "{listed:#}");
    assert!(listed["last_contact"].is_string(), "{listed:#}");
    runner.restart();
    until("the runner to be back", TIMEOUT, || install_field("runner_state") == "active");

    for filter in [["runs", "list", "--state", "bogus"], ["jobs", "list", "--state", "bogus"]] {
        let (code, message) = server.refused(&filter);
        assert_ne!(code, 0);
        assert!(message.contains("bogus") && message.contains("succeeded"), "{message}");
    }
}
