//! Tests that no process of a job outlives the job, in any session and after a kill of the shim or
//! the agent.
use std::{fs, path::Path, process::Command, time::Duration};

use serde_json::Value;
use tests::{Runner, Server, ended, job_events, notes_files, program, until, until_some};

const TIMEOUT: Duration = Duration::from_secs(90);

/// Action that starts a process in a new session, without the job's environment and parents, and
/// then waits.
const ACTION: &str = r#"
name    = "detach"
timeout = "2m"

[[triggers]]
type = "manual"

[[steps]]
name            = "detach"
inline_contents = """
#!/bin/sh
(env -i PATH="$PATH" setsid sh -c 'echo "detached $$"; while :; do sleep 0.1; done' &)
(setsid sh -c 'echo "marked $$"; while :; do sleep 0.1; done' &)
sleep 600
"""
"#;

/// Starts a server and a runner with a provisioned install, whose action starts processes in other
/// sessions.
fn provisioned() -> (Server, Runner) {
    let server = Server::up();
    let app = notes_files(server.dir());
    fs::write(app.join("actions/detach.toml"), ACTION).unwrap();
    let plugin = format!("files={}", program("stead-plugin-files").display());
    server.cli_json(&["apps", "sync", app.to_str().unwrap(), "--plugin", &plugin, "--wait"]);
    let create =
        ["installs", "create", "notes-files", "acme", "--auto-approve", "--input", "company=Acme"];
    let created = server.cli_json(&create);
    let plugins = server.dir().join("plugins");
    fs::create_dir(&plugins).unwrap();
    fs::copy(program("stead-plugin-files"), plugins.join("stead-plugin-files")).unwrap();
    let token = created["enrolment"]["token"].as_str().unwrap();
    let with = ["--plugin-dir", plugins.to_str().unwrap()];
    let runner = Runner::start_with(&server, "customer", token, &with);
    until("the provision run", TIMEOUT, || {
        !server.cli_json(&["runs", "list", "--install", "acme"]).as_array().unwrap().is_empty()
    });
    assert_eq!(ended(&server, "acme")["state"], "succeeded");
    (server, runner)
}

/// Starts the action. Returns its job and the processes outside its session.
fn start_detached(server: &Server, runner: &Runner) -> (String, [String; 2]) {
    server.cli_json(&["installs", "action", "acme", "detach", "--reason", "a test"]);
    let job = until_some("the action to run", TIMEOUT, || {
        let jobs = server.cli_json(&["jobs", "list", "--install", "acme", "--state", "running"]);
        Some(jobs.as_array()?.first()?["id"].as_str()?.to_string())
    });
    let log =
        runner.data().join("jobs").join(tests::one_execution(server, &job)).join("log.ndjson");
    let pid = |name: &str| {
        until_some("a detached process", TIMEOUT, || {
            let log = fs::read_to_string(&log).ok()?;
            let (_, after) = log.split_once(&format!("{name} "))?;
            Some(after.chars().take_while(char::is_ascii_digit).collect::<String>())
        })
    };
    let pids = ["detached", "marked"].map(pid);
    assert!(pids.iter().all(|pid| is_running(pid)));
    (job, pids)
}

/// Returns whether a process runs and is not a zombie.
fn is_running(pid: &str) -> bool {
    let stat = fs::read_to_string(Path::new("/proc").join(pid).join("stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
}

fn shim_of(job: &str) -> String {
    let found = tests::stdout_of(Command::new("pgrep").args(["-f", &format!("shim.*{job}")]));
    found.split_whitespace().next().unwrap().to_string()
}

fn event(server: &Server, job: &str, kind: &str) -> Value {
    until_some(kind, TIMEOUT, || {
        let job_events = job_events(server, job);
        job_events.into_iter().find(|event| event["type"] == kind)
    })
}

#[test]
fn a_cancel_is_confirmed_after_all_processes_of_the_job_ended() {
    let (server, runner) = provisioned();
    let (job, pids) = start_detached(&server, &runner);
    server.cli_json(&["jobs", "cancel", &job, "--reason", "enough", "--force"]);
    let cancelled = event(&server, &job, "job.cancelled");
    assert!(!pids.iter().any(|pid| is_running(pid)), "{cancelled:#}");
    assert_eq!(cancelled["payload"]["not_ended"], Value::Null, "{cancelled:#}");
}

#[test]
fn no_process_remains_after_the_customer_stops_jobs() {
    let (server, runner) = provisioned();
    let (job, pids) = start_detached(&server, &runner);
    tests::stdout_of(&mut runner.local(&["disable", "--stop-jobs", "--reason", "stop"]));
    let failed = event(&server, &job, "job.failed");
    assert_eq!(failed["payload"]["reason"], "agent_stopped", "{failed:#}");
    assert!(!pids.iter().any(|pid| is_running(pid)), "{failed:#}");
}

#[test]
fn an_agent_ends_the_processes_of_a_killed_shim() {
    let (server, runner) = provisioned();
    let (job, pids) = start_detached(&server, &runner);
    let killed = Command::new("kill").args(["-KILL", &shim_of(&job)]).status().unwrap();
    assert!(killed.success());
    event(&server, &job, "job.outcome_unknown");
    until("the shim's processes to end", TIMEOUT, || !pids.iter().any(|pid| is_running(pid)));
}

#[test]
fn the_next_agent_ends_the_processes_of_a_shim_that_was_killed_with_the_agent() {
    let (server, mut runner) = provisioned();
    let (job, pids) = start_detached(&server, &runner);
    let shim = shim_of(&job);
    runner.kill();
    assert!(Command::new("kill").args(["-KILL", &shim]).status().unwrap().success());
    assert!(pids.iter().all(|pid| is_running(pid)));
    runner.restart();
    event(&server, &job, "job.outcome_unknown");
    // The agent finds the process without the job's environment by the control group, if one is
    // writable.
    let cgroup =
        runner.data().join("jobs").join(tests::one_execution(&server, &job)).join("cgroup");
    assert!(cgroup.exists() || !tests::in_ci(), "CI must give jobs a control group");
    let found = if cgroup.exists() { &pids[..] } else { &pids[1..] };
    until("the shim's processes to end", TIMEOUT, || !found.iter().any(|pid| is_running(pid)));
    let _may_fail = Command::new("kill").args(["-KILL", &pids[0]]).output();
}
