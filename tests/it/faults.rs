//! Tests that `kill -9` of any process at any time loses nothing acknowledged and repeats nothing.
use std::{path::Path, process::Command, time::Duration};

use serde_json::Value;
use tests::{
    Runner, Server, each_effect_once, edge_api, ended, one_execution, story, succeeded,
    terraform_or_skip, until, until_some,
};

const SOON: Duration = Duration::from_secs(30);
const LATER: Duration = Duration::from_secs(90);
/// Twice the time before a new server treats an execution as disconnected: the lease plus the
/// takeover time.
const SILENCE: Duration = Duration::from_secs(180);

/// Starts a server and a runner. The install approves automatically and takes `pace` seconds per
/// effect.
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

/// Returns the job that is applying.
fn applying(server: &Server) -> String {
    until_some("an apply", LATER, || {
        let jobs = server.ask(&["jobs", "list", "--install", "acme", "--state", "running"]);
        let apply = |job: &&Value| job["kind"] == "apply";
        let job = jobs.as_array()?.iter().find(apply)?.clone();
        Some(job["id"].as_str()?.to_string())
    })
}

/// Returns the job that is applying, after the shim recorded that its effect has begun. The effect
/// is not complete yet.
fn at_work(server: &Server, runner: &Runner) -> String {
    let job = applying(server);
    let log = runner.data().join("jobs").join(one_execution(server, &job)).join("log.ndjson");
    until("the effect to begin", LATER, || {
        std::fs::read_to_string(&log).is_ok_and(|log| log.contains("working for"))
    });
    job
}

/// Checks that each effect happened once, and that the job's only execution made one of them.
fn done_by_one_execution(server: &Server, runner: &Runner, job: &str) {
    let execution = one_execution(server, job);
    each_effect_once(runner);
    let ledger = runner.ledger();
    assert!(ledger.iter().any(|(_, who)| *who == execution), "{execution}: {ledger:?}");
}

#[test]
fn a_killed_server_loses_nothing_and_the_job_goes_on() {
    if !terraform_or_skip() {
        return;
    }
    let (mut server, runner) = provisioning(3);
    let job = at_work(&server, &runner);
    let (acknowledged, before) = (story(&server, &job), runner.ledger().len());
    server.kill();
    // The work continues without a server: its effect appears before the server restarts.
    until("an effect without a server", SOON, || runner.ledger().len() > before);
    server.restart();
    succeeded(&server, "acme");
    assert!(story(&server, &job).starts_with(&acknowledged), "what was acknowledged is gone");
    let log = tests::stdout_of(server.stead_for_people().args(["jobs", "logs", &job]));
    assert!(log.contains("working for") && log.contains("done"), "{log}");
    done_by_one_execution(&server, &runner, &job);
    let _verified = tests::stdout_of(server.stead_for_people().args(["audit", "verify"]));
}

#[test]
fn a_killed_supervisor_finds_its_shim_again() {
    if !terraform_or_skip() {
        return;
    }
    let (server, mut runner) = provisioning(5);
    let job = at_work(&server, &runner);
    let shim = shim_of(&job);
    runner.kill();
    // In the middle of the effect: it is not complete, and its process is running.
    assert!(runner.ledger().is_empty(), "{:?}", runner.ledger());
    assert_eq!(shim_of(&job), shim, "the shim died with its supervisor");
    runner.restart();
    succeeded(&server, "acme");
    assert_eq!(server.ask(&["jobs", "show", &job])["state"], "succeeded");
    done_by_one_execution(&server, &runner, &job);
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
    succeeded(&server, "acme");
    done_by_one_execution(&server, &runner, &job);
}

#[test]
fn a_killed_child_fails_its_job_with_the_signal() {
    if !terraform_or_skip() {
        return;
    }
    let (server, runner) = provisioning(20);
    let job = at_work(&server, &runner);
    let shim = shim_of(&job);
    let child = until_some("the child that applies", SOON, || {
        let children = Command::new("pgrep").args(["-P", &shim]).output().unwrap();
        let children = String::from_utf8(children.stdout).unwrap();
        let applies = |pid: &&str| {
            let cmdline = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            cmdline.split(|byte| *byte == 0).any(|word| word == b"apply")
        };
        children.split_whitespace().find(applies).map(String::from)
    });
    signal("-KILL", &child);
    let run = ended(&server, "acme");
    assert_eq!(run["state"], "failed", "{run:#}");
    let story = story(&server, &job);
    let failed = story.iter().find(|event| event["type"] == "job.failed");
    let failed = failed.unwrap_or_else(|| panic!("it did not fail: {story:#?}"));
    assert_eq!(failed["payload"]["signal"], 9, "{failed:#}");
    one_execution(&server, &job);
    // The shim ended all descendants of the child before they reached the effect.
    until("nobody to work for it any more", SOON, || working_in(&runner.data()).is_empty());
    assert!(runner.ledger().is_empty(), "{:?}", runner.ledger());
}

/// Returns the processes that work in a directory.
fn working_in(dir: &Path) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let inside = processes.filter(|process| {
        std::fs::read_link(process.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(dir))
    });
    inside.map(|process| process.file_name().to_string_lossy().into_owned()).collect()
}

/// Returns the shim of a job.
fn shim_of(job: &str) -> String {
    let found = tests::stdout_of(Command::new("pgrep").args(["-f", &format!("shim.*{job}")]));
    found.split_whitespace().next().unwrap().to_string()
}

fn signal(name: &str, pid: &str) {
    assert!(Command::new("kill").args([name, pid]).status().unwrap().success());
}

fn has_happened(server: &Server, job: &str, event: &str) -> bool {
    story(server, job).iter().any(|happened| happened["type"] == event)
}

/// Returns whether the job failed for that reason.
fn failed_by(server: &Server, job: &str, reason: &str) -> bool {
    let is = |event: &Value| event["type"] == "job.failed" && event["payload"]["reason"] == reason;
    story(server, job).iter().any(is)
}

#[test]
fn of_a_job_whose_shim_was_killed_only_a_person_can_say_how_it_ended() {
    if !terraform_or_skip() {
        return;
    }
    let (server, runner) = provisioning(60);
    let job = at_work(&server, &runner);
    let shim = shim_of(&job);
    signal("-KILL", &shim);
    until("nobody to know", LATER, || has_happened(&server, &job, "job.outcome_unknown"));
    assert_eq!(server.ask(&["jobs", "show", &job])["state"], "outcome_unknown");
    // No process of the job continues unnoticed.
    let left = format!("terraform.*{}", runner.data().display());
    until("what the shim left behind to be gone", LATER, || {
        !Command::new("pgrep").args(["-f", &left]).output().unwrap().status.success()
    });
    server.ask(&[
        "jobs",
        "resolve",
        &job,
        "--resolution",
        "failed",
        "--reason",
        "the ledger is empty",
    ]);
    assert_eq!(ended(&server, "acme")["state"], "failed");
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
    until("the silence to be noticed", SILENCE, || has_happened(&server, &job, "job.disconnected"));
    signal("-CONT", &pid);
    succeeded(&server, "acme");
    done_by_one_execution(&server, &runner, &job);
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
    assert!(failed_by(&server, &job, "agent_stopped"), "{:#?}", story(&server, &job));
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
    until("the end to be told", LATER, || failed_by(&server, &job, "agent_stopped"));
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
    assert_eq!(ended(&server, "acme")["state"], "succeeded");
    each_effect_once(&runner);
}
