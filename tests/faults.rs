//! Kill -9 of anything at any time: nothing acknowledged is lost, nothing is done twice.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
use std::{process::Command, time::Duration};

use serde_json::Value;
use tests::{Runner, Server, edge_api, terraform_or_skip, until, until_some};

const SOON: Duration = Duration::from_secs(30);
const LATER: Duration = Duration::from_secs(90);

/// A server and a runner whose install approves by itself and takes `pace` seconds per effect.
fn provisioning(pace: u32) -> (Server, Runner) {
    let server = Server::up();
    let app = edge_api(server.dir());
    server.ask(&["apps", "sync", app.to_str().unwrap(), "--wait"]);
    let pace = format!("pace_seconds={pace}");
    let created = server.ask(&[
        "installs",
        "create",
        "edge-api",
        "acme",
        "--auto-approve",
        "--input",
        "company=Acme",
        "--input",
        &pace,
    ]);
    let runner =
        Runner::start(&server, "customer", created["enrolment"]["token"].as_str().unwrap());
    (server, runner)
}

/// The job that applies something now.
fn applying(server: &Server) -> String {
    until_some("an apply", LATER, || {
        let jobs = server.ask(&["jobs", "list", "--install", "acme", "--state", "running"]);
        let apply = |job: &&Value| job["kind"] == "apply";
        let job = jobs.as_array()?.iter().find(apply)?.clone();
        Some(job["id"].as_str()?.to_string())
    })
}

fn ended(server: &Server) -> Value {
    until_some("the run to end", LATER, || {
        let output = server.stead().args(["runs", "show", "acme"]).output().unwrap();
        let run: Value = serde_json::from_slice(&output.stdout).ok()?;
        let over = ["succeeded", "failed", "cancelled", "denied", "expired"];
        over.contains(&run["state"].as_str()?).then_some(run)
    })
}

fn each_effect_once(runner: &Runner) {
    let ledger = runner.ledger();
    let mut effects: Vec<_> = ledger.iter().map(|(what, _)| what.clone()).collect();
    effects.sort_unstable();
    assert_eq!(effects, ["api", "cache", "database", "edge", "network", "sandbox"]);
}

#[test]
fn a_killed_server_loses_nothing_and_the_job_goes_on() {
    if !terraform_or_skip() {
        return;
    }
    let (mut server, runner) = provisioning(3);
    let job = applying(&server);
    server.kill();
    // The work goes on without a server: its effect appears before there is one again.
    let before = runner.ledger().len();
    until("an effect without a server", SOON, || runner.ledger().len() > before);
    server.restart();
    let run = ended(&server);
    assert_eq!(run["state"], "succeeded", "{run:#}");
    let log = tests::stdout_of(server.stead_for_people().args(["jobs", "logs", &job]));
    assert!(log.contains("done"), "{log}");
    each_effect_once(&runner);
}

#[test]
fn a_killed_supervisor_finds_its_shim_again() {
    if !terraform_or_skip() {
        return;
    }
    let (server, mut runner) = provisioning(3);
    let job = applying(&server);
    runner.kill();
    runner.restart();
    let run = ended(&server);
    assert_eq!(run["state"], "succeeded", "{run:#}");
    let kept = server.ask(&["jobs", "show", &job]);
    assert_eq!(kept["state"], "succeeded");
    let events = server.ask(&["audit", "events", "--stream", &format!("job/{job}")]);
    assert_eq!(events.to_string().matches("job.claimed").count(), 1, "one execution only");
    each_effect_once(&runner);
}

#[test]
fn a_runner_that_drains_without_a_server_ends_and_the_next_one_tells_how_its_job_ended() {
    if !terraform_or_skip() {
        return;
    }
    let (mut server, mut runner) = provisioning(3);
    let job = applying(&server);
    server.kill();
    runner.drain();
    let status = until_some("the runner to end", LATER, || runner.ended());
    assert!(status.success(), "{status}");
    server.restart();
    runner.restart();
    let run = ended(&server);
    assert_eq!(run["state"], "succeeded", "{run:#}");
    let events = server.ask(&["audit", "events", "--stream", &format!("job/{job}")]);
    assert_eq!(events.to_string().matches("job.claimed").count(), 1, "one execution only");
    each_effect_once(&runner);
}

#[test]
fn a_killed_child_fails_its_job_with_the_signal() {
    if !terraform_or_skip() {
        return;
    }
    let (server, _runner) = provisioning(20);
    let job = applying(&server);
    let shim = tests::stdout_of(Command::new("pgrep").args(["-f", &format!("shim.*{job}")]));
    let shim = shim.split_whitespace().next().unwrap();
    // Short questions to the tool come before the apply itself.
    let child = until_some("the child that applies", SOON, || {
        let children = Command::new("pgrep").args(["-P", shim]).output().unwrap();
        let children = String::from_utf8(children.stdout).unwrap();
        let applies = |pid: &&str| {
            let cmdline = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            cmdline.split(|byte| *byte == 0).any(|word| word == b"apply")
        };
        children.split_whitespace().find(applies).map(String::from)
    });
    assert!(Command::new("kill").args(["-KILL", &child]).status().unwrap().success());
    let run = ended(&server);
    assert_eq!(run["state"], "failed", "{run:#}");
    let events = server.ask(&["audit", "events", "--stream", &format!("job/{job}")]).to_string();
    let spoken = events.replace(['\\', ' '], "");
    assert!(spoken.contains("job.failed") && spoken.contains("\"signal\":9"), "{events}");
}

/// The shim of a job.
fn shim_of(job: &str) -> String {
    let found = tests::stdout_of(Command::new("pgrep").args(["-f", &format!("shim.*{job}")]));
    found.split_whitespace().next().unwrap().to_string()
}

fn signal(name: &str, pid: &str) {
    assert!(Command::new("kill").args([name, pid]).status().unwrap().success());
}

fn has_happened(server: &Server, job: &str, event: &str) -> bool {
    let events = server.ask(&["audit", "events", "--stream", &format!("job/{job}")]);
    events.to_string().contains(event)
}

#[test]
fn of_a_job_whose_shim_was_killed_only_a_person_can_say_how_it_ended() {
    if !terraform_or_skip() {
        return;
    }
    let (server, runner) = provisioning(60);
    let job = applying(&server);
    let shim = shim_of(&job);
    until("the effect to begin", LATER, || {
        let log = server.stead_for_people().args(["jobs", "logs", &job]).output().unwrap();
        String::from_utf8_lossy(&log.stdout).contains("working for")
    });
    signal("-KILL", &shim);
    until("nobody to know", LATER, || has_happened(&server, &job, "job.outcome_unknown"));
    assert_eq!(server.ask(&["jobs", "show", &job])["state"], "outcome_unknown");
    // Nothing of it goes on behind the person's back.
    let left = format!("terraform.*{}", runner.data().display());
    until("what the shim left behind to be gone", LATER, || {
        !Command::new("pgrep").args(["-f", &left]).output().unwrap().status.success()
    });
    server.ask(&[
        "jobs",
        "resolve",
        &job,
        "--verdict",
        "failed",
        "--reason",
        "the ledger is empty",
    ]);
    assert_eq!(ended(&server)["state"], "failed");
    assert!(has_happened(&server, &job, "job.outcome_resolved"));
    assert!(runner.ledger().is_empty(), "{:?}", runner.ledger());
}

#[test]
fn a_supervisor_that_was_frozen_goes_on_with_the_same_execution() {
    if !terraform_or_skip() {
        return;
    }
    let (server, runner) = provisioning(3);
    let job = applying(&server);
    let pid = runner.pid().to_string();
    signal("-STOP", &pid);
    until("the silence to be noticed", LATER, || has_happened(&server, &job, "job.disconnected"));
    signal("-CONT", &pid);
    let run = ended(&server);
    assert_eq!(run["state"], "succeeded", "{run:#}");
    let events = server.ask(&["audit", "events", "--stream", &format!("job/{job}")]);
    assert_eq!(events.to_string().matches("job.claimed").count(), 1, "one execution only");
    each_effect_once(&runner);
}

#[test]
fn a_supervisor_that_is_told_to_quit_stops_its_jobs_and_says_so() {
    if !terraform_or_skip() {
        return;
    }
    let (server, mut runner) = provisioning(60);
    let job = applying(&server);
    signal("-QUIT", &runner.pid().to_string());
    let status = until_some("the runner to end", LATER, || runner.ended());
    assert!(status.success(), "{status}");
    let events = server.ask(&["audit", "events", "--stream", &format!("job/{job}")]).to_string();
    assert!(events.contains("job.failed") && events.contains("agent_stopped"), "{events}");
}

#[test]
fn a_supervisor_that_is_told_to_quit_without_a_server_ends_and_the_next_one_says_so() {
    if !terraform_or_skip() {
        return;
    }
    let (mut server, mut runner) = provisioning(60);
    let job = applying(&server);
    server.kill();
    signal("-QUIT", &runner.pid().to_string());
    let status = until_some("the runner to end", LATER, || runner.ended());
    assert!(status.success(), "{status}");
    server.restart();
    runner.restart();
    until("the end to be told", LATER, || has_happened(&server, &job, "agent_stopped"));
}

#[test]
fn a_second_sigterm_leaves_at_once_and_what_runs_goes_on() {
    if !terraform_or_skip() {
        return;
    }
    let (server, mut runner) = provisioning(8);
    let job = applying(&server);
    runner.drain();
    std::thread::sleep(Duration::from_secs(1));
    assert!(runner.ended().is_none(), "it waits for its job");
    runner.drain();
    let status = until_some("the runner to end", Duration::from_secs(5), || runner.ended());
    assert!(status.success(), "{status}");
    assert!(!shim_of(&job).is_empty(), "its job goes on");
    runner.restart();
    assert_eq!(ended(&server)["state"], "succeeded");
    each_effect_once(&runner);
}
