//! Tests that a killed server, supervisor, shim or child loses no acknowledged event and repeats no
//! effect.
use std::{path::Path, process::Command, time::Duration};

use serde_json::Value;
use tests::{
    Runner, Server, each_effect_once, edge_api, ended, job_events, one_execution, shim_of,
    succeeded, terraform_or_skip, until, until_some,
};

const SHORT_TIMEOUT: Duration = Duration::from_secs(30);
const LONG_TIMEOUT: Duration = Duration::from_secs(90);
/// Twice the time before a new server treats an execution as disconnected: the lease plus the
/// takeover time.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(180);

/// Starts a server and a runner. The install approves automatically and takes `pace` seconds per
/// effect.
fn provisioning(pace: u32) -> (Server, Runner) {
    let server = Server::up();
    let app = edge_api(server.dir());
    server.cli_json(&["apps", "sync", app.to_str().unwrap(), "--wait"]);
    let pace = format!("pace_seconds={pace}");
    let created = server.cli_json(&[
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
fn running_apply(server: &Server) -> String {
    until_some("an apply", LONG_TIMEOUT, || {
        let jobs = server.cli_json(&["jobs", "list", "--install", "acme", "--state", "running"]);
        let apply = |job: &&Value| job["kind"] == "apply";
        let job = jobs.as_array()?.iter().find(apply)?.clone();
        Some(job["id"].as_str()?.to_string())
    })
}

/// Returns the job that is applying, after the shim recorded that its effect has begun. The effect
/// is not complete yet.
fn apply_in_progress(server: &Server, runner: &Runner) -> String {
    let job = running_apply(server);
    let log = runner.data().join("jobs").join(one_execution(server, &job)).join("log.ndjson");
    until("the effect to begin", LONG_TIMEOUT, || {
        std::fs::read_to_string(&log).is_ok_and(|log| log.contains("working for"))
    });
    job
}

/// Checks that each effect happened once, and that the job's only execution made one of them.
fn assert_done_by_one_execution(server: &Server, runner: &Runner, job: &str) {
    let execution = one_execution(server, job);
    each_effect_once(runner);
    let ledger = runner.ledger();
    assert!(ledger.iter().any(|(_, who)| *who == execution), "{execution}: {ledger:?}");
}

#[test]
fn a_killed_server_loses_nothing_and_the_job_continues() {
    if !terraform_or_skip() {
        return;
    }
    let (mut server, runner) = provisioning(3);
    let job = apply_in_progress(&server, &runner);
    let (acknowledged, before) = (job_events(&server, &job), runner.ledger().len());
    server.kill();
    // The work continues without a server: its effect appears before the server restarts.
    until("an effect without a server", SHORT_TIMEOUT, || runner.ledger().len() > before);
    server.restart();
    succeeded(&server, "acme");
    assert!(
        job_events(&server, &job).starts_with(&acknowledged),
        "an acknowledged event is missing"
    );
    let log = tests::stdout_of(server.stead_for_people().args(["jobs", "logs", &job]));
    assert!(log.contains("working for") && log.contains("done"), "{log}");
    assert_done_by_one_execution(&server, &runner, &job);
    let _verified = tests::stdout_of(server.stead_for_people().args(["audit", "verify"]));
}

#[test]
fn a_restarted_supervisor_resumes_its_shim() {
    if !terraform_or_skip() {
        return;
    }
    let (server, mut runner) = provisioning(5);
    let job = apply_in_progress(&server, &runner);
    let shim = shim_of(&job);
    runner.kill();
    // The effect is not complete, and its process is running.
    assert!(runner.ledger().is_empty(), "{:?}", runner.ledger());
    assert_eq!(shim_of(&job), shim, "the shim ended with its supervisor");
    runner.restart();
    succeeded(&server, "acme");
    assert_eq!(server.cli_json(&["jobs", "show", &job])["state"], "succeeded");
    assert_done_by_one_execution(&server, &runner, &job);
}

#[test]
fn a_runner_drains_without_a_server_and_the_next_one_reports_the_result() {
    if !terraform_or_skip() {
        return;
    }
    let (mut server, mut runner) = provisioning(3);
    let job = apply_in_progress(&server, &runner);
    server.kill();
    runner.drain();
    let status = until_some("the runner to end", LONG_TIMEOUT, || runner.ended());
    assert!(status.success(), "{status}");
    server.restart();
    runner.restart();
    succeeded(&server, "acme");
    assert_done_by_one_execution(&server, &runner, &job);
}

#[test]
fn a_killed_child_fails_its_job_with_the_signal() {
    if !terraform_or_skip() {
        return;
    }
    let (server, runner) = provisioning(20);
    let job = apply_in_progress(&server, &runner);
    let shim = shim_of(&job);
    let child = until_some("the child that applies", SHORT_TIMEOUT, || {
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
    let job_events = job_events(&server, &job);
    let failed = job_events.iter().find(|event| event["type"] == "job.failed");
    let failed = failed.unwrap_or_else(|| panic!("it did not fail: {job_events:#?}"));
    assert_eq!(failed["payload"]["signal"], 9, "{failed:#}");
    one_execution(&server, &job);
    // The shim ended all descendants of the child before they reached the effect.
    until("the job's processes to end", SHORT_TIMEOUT, || working_in(&runner.data()).is_empty());
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

fn signal(name: &str, pid: &str) {
    assert!(Command::new("kill").args([name, pid]).status().unwrap().success());
}

fn has_happened(server: &Server, job: &str, event: &str) -> bool {
    job_events(server, job).iter().any(|other| other["type"] == event)
}

/// Returns whether the job failed for that reason.
fn failed_by(server: &Server, job: &str, reason: &str) -> bool {
    let is = |event: &Value| event["type"] == "job.failed" && event["payload"]["reason"] == reason;
    job_events(server, job).iter().any(is)
}

#[test]
fn the_outcome_of_a_job_with_a_killed_shim_is_unknown_until_a_user_resolves_it() {
    if !terraform_or_skip() {
        return;
    }
    let (server, runner) = provisioning(60);
    let job = apply_in_progress(&server, &runner);
    let shim = shim_of(&job);
    signal("-KILL", &shim);
    until("the outcome to be unknown", LONG_TIMEOUT, || {
        has_happened(&server, &job, "job.outcome_unknown")
    });
    assert_eq!(server.cli_json(&["jobs", "show", &job])["state"], "outcome_unknown");
    // No process of the job continues unnoticed.
    let pattern = format!("terraform.*{}", runner.data().display());
    until("the shim's processes to end", LONG_TIMEOUT, || {
        !Command::new("pgrep").args(["-f", &pattern]).output().unwrap().status.success()
    });
    server.cli_json(&[
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
fn a_stopped_and_resumed_supervisor_continues_the_same_execution() {
    if !terraform_or_skip() {
        return;
    }
    let (server, runner) = provisioning(3);
    let job = running_apply(&server);
    let pid = runner.pid().to_string();
    signal("-STOP", &pid);
    until("the disconnection to be recorded", DISCONNECT_TIMEOUT, || {
        has_happened(&server, &job, "job.disconnected")
    });
    signal("-CONT", &pid);
    succeeded(&server, "acme");
    assert_done_by_one_execution(&server, &runner, &job);
}

#[test]
fn a_supervisor_stops_its_jobs_at_sigquit_and_reports_it() {
    if !terraform_or_skip() {
        return;
    }
    let (server, mut runner) = provisioning(60);
    let job = running_apply(&server);
    signal("-QUIT", &runner.pid().to_string());
    let status = until_some("the runner to end", LONG_TIMEOUT, || runner.ended());
    assert!(status.success(), "{status}");
    assert!(failed_by(&server, &job, "agent_stopped"), "{:#?}", job_events(&server, &job));
}

#[test]
fn a_supervisor_exits_at_sigquit_without_a_server_and_the_next_one_reports_it() {
    if !terraform_or_skip() {
        return;
    }
    let (mut server, mut runner) = provisioning(60);
    let job = running_apply(&server);
    server.kill();
    signal("-QUIT", &runner.pid().to_string());
    let status = until_some("the runner to end", LONG_TIMEOUT, || runner.ended());
    assert!(status.success(), "{status}");
    server.restart();
    runner.restart();
    until("the result to be reported", LONG_TIMEOUT, || failed_by(&server, &job, "agent_stopped"));
}

#[test]
fn a_second_sigterm_exits_immediately_and_jobs_continue() {
    if !terraform_or_skip() {
        return;
    }
    let (server, mut runner) = provisioning(8);
    let job = running_apply(&server);
    runner.drain();
    std::thread::sleep(Duration::from_secs(1));
    assert!(runner.ended().is_none(), "it waits for its job");
    runner.drain();
    let status = until_some("the runner to end", Duration::from_secs(5), || runner.ended());
    assert!(status.success(), "{status}");
    assert!(!shim_of(&job).is_empty(), "its job continues");
    runner.restart();
    assert_eq!(ended(&server, "acme")["state"], "succeeded");
    each_effect_once(&runner);
}
