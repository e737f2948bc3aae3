//! Tests faults during the preflight of a run: a cancel, a killed runner and a killed shim.
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use serde_json::Value;
use tests::{
    Customer, Runner, Server, each_effect_once, edge_api, ended, job_events, one_execution,
    shim_of, succeeded, terraform_or_skip, until, until_some,
};

const TIMEOUT: Duration = Duration::from_secs(90);

/// Install whose Terraform waits while the file `hold` exists, with its preflight running.
struct Held {
    server: Server,
    runner: Runner,
    hold: PathBuf,
    /// Job of the preflight.
    preflight: String,
}

/// Returns a program of this name on PATH.
fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap();
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|tool| tool.is_file())
}

/// Returns a PATH whose Terraform waits while the file exists.
fn path_with_held_terraform(dir: &Path, hold: &Path) -> String {
    let tools = dir.join("tools");
    fs::create_dir(&tools).unwrap();
    let real = on_path("terraform").or_else(|| on_path("tofu")).unwrap();
    let (real, sleep) = (real.display(), on_path("sleep").unwrap());
    let script = format!(
        "#!/bin/sh\nwhile [ -e '{}' ]; do '{}' 0.1; done\nexec '{real}' \"$@\"\n",
        hold.display(),
        sleep.display()
    );
    let terraform = tools.join("terraform");
    fs::write(&terraform, script).unwrap();
    fs::set_permissions(&terraform, fs::Permissions::from_mode(0o755)).unwrap();
    format!("{}:{}", tools.display(), std::env::var("PATH").unwrap())
}

impl Held {
    fn new() -> Held {
        let server = Server::up();
        let app = edge_api(server.dir());
        server.cli_json(&["apps", "sync", app.to_str().unwrap(), "--wait"]);
        let args = ["--auto-approve", "--input", "company=Acme"];
        let created =
            server.cli_json(&[&["installs", "create", "edge-api", "acme"], &args[..]].concat());
        let hold = server.dir().join("hold");
        fs::write(&hold, "").unwrap();
        let path = path_with_held_terraform(server.dir(), &hold);
        let token = created["enrolment"]["token"].as_str().unwrap();
        let runner = Customer::new(&server, "customer").env("PATH", &path).start(&server, token);
        let preflight = until_some("the preflight to run", TIMEOUT, || {
            let output = server.stead().args(["runs", "show", "acme"]).output().unwrap();
            let run: Value = serde_json::from_slice(&output.stdout).ok()?;
            let job = run["preflight"]["job"].as_str()?.to_owned();
            (server.cli_json(&["jobs", "show", &job])["state"] == "running").then_some(job)
        });
        Held { server, runner, hold, preflight }
    }

    fn release(&self) {
        fs::remove_file(&self.hold).unwrap();
    }

    fn run(&self) -> Value {
        self.server.cli_json(&["runs", "show", "acme"])
    }
}

#[test]
fn a_run_cancelled_during_its_preflight_changes_nothing_and_can_be_retried() {
    if !terraform_or_skip() {
        return;
    }
    let held = Held::new();
    let Held { server, runner, preflight, .. } = &held;
    let cancel = ["runs", "cancel", "acme", "--force", "--reason", "the wrong day"];
    server.cli_json(&cancel);
    let run = ended(server, "acme");
    assert_eq!(run["state"], "cancelled", "{run:#}");
    assert_eq!(run["preflight"]["state"], "failed", "{run:#}");
    let reason = run["preflight"]["reason"].as_str().unwrap();
    assert!(reason.starts_with("job cancelled"), "{reason}");
    assert_eq!(server.cli_json(&["jobs", "show", preflight])["state"], "cancelled");
    for step in run["dag"].as_array().unwrap() {
        assert!(step["state"] == "skipped" || step["state"] == "cancelled", "{step:#}");
    }
    assert!(runner.ledger().is_empty(), "{:?}", runner.ledger());

    held.release();
    server.cli_json(&["runs", "retry", "acme", "--reason", "the right day"]);
    let again = succeeded(server, "acme");
    assert_ne!(again["id"], run["id"]);
    assert_eq!(again["preflight"]["state"], "passed", "{again:#}");
    each_effect_once(runner);
}

#[test]
fn a_runner_killed_during_a_preflight_reports_its_result_after_the_restart() {
    if !terraform_or_skip() {
        return;
    }
    let mut held = Held::new();
    held.runner.kill();
    assert_eq!(held.run()["preflight"]["state"], "running");
    held.runner.restart();
    held.release();
    let run = succeeded(&held.server, "acme");
    assert_eq!(run["preflight"]["state"], "passed", "{run:#}");
    // The shim continued without its supervisor, so there was one execution.
    one_execution(&held.server, &held.preflight);
    each_effect_once(&held.runner);
}

#[test]
fn a_preflight_lost_with_its_runner_runs_again() {
    if !terraform_or_skip() {
        return;
    }
    let mut held = Held::new();
    let shim = shim_of(&held.preflight);
    held.runner.kill();
    assert!(Command::new("kill").args(["-KILL", &shim]).status().unwrap().success());
    held.release();
    held.runner.restart();
    until("the preflight to be queued again", TIMEOUT, || {
        let events = job_events(&held.server, &held.preflight);
        events.iter().any(|event| event["type"] == "job.requeued")
    });
    let run = succeeded(&held.server, "acme");
    assert_eq!(run["preflight"]["state"], "passed", "{run:#}");
    let events = job_events(&held.server, &held.preflight);
    let claims = events.iter().filter(|event| event["type"] == "job.claimed").count();
    assert_eq!(claims, 2, "{events:#?}");
    each_effect_once(&held.runner);
}
