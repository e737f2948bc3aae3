//! Results of runs, and the events written meanwhile.
use std::time::Duration;

use serde_json::Value;

use crate::{Runner, Server, until_some};

const TIMEOUT: Duration = Duration::from_secs(120);

/// Waits until the newest run of an install has finished, and returns it.
#[track_caller]
pub fn ended(server: &Server, install: &str) -> Value {
    until_some("the run to end", TIMEOUT, || {
        let output = server.stead().args(["runs", "show", install]).output().unwrap();
        let run: Value = serde_json::from_slice(&output.stdout).ok()?;
        let end_states = ["succeeded", "failed", "cancelled", "denied", "expired"];
        end_states.contains(&run["state"].as_str()?).then_some(run)
    })
}

/// Waits until the newest run of an install has finished, and checks that it succeeded.
#[track_caller]
pub fn succeeded(server: &Server, install: &str) -> Value {
    let run = ended(server, install);
    assert_eq!(run["state"], "succeeded", "{}", run_with_logs(server, &run));
    run
}

/// Returns a run and the logs of its failed steps' jobs, for a failure message.
pub fn run_with_logs(server: &Server, run: &Value) -> String {
    let mut text = format!("{run:#}\n");
    for step in run["dag"].as_array().unwrap() {
        if let (Some("failed"), Some(job)) = (step["state"].as_str(), step["job"].as_str()) {
            let log = server.stead_for_people().args(["jobs", "logs", job]).output().unwrap();
            text +=
                &format!("--- {} ---\n{}\n", step["name"], String::from_utf8_lossy(&log.stdout));
        }
    }
    text
}

/// Returns a step of a run, by the name of its component or action.
#[track_caller]
pub fn step<'r>(run: &'r Value, name: &str) -> &'r Value {
    let steps = run["dag"].as_array().unwrap();
    steps.iter().find(|step| step["name"] == name).unwrap_or_else(|| panic!("no {name}: {run:#}"))
}

/// Returns the position of the head of the log.
#[track_caller]
pub fn position(server: &Server) -> u64 {
    let checkpoint = server.cli_json(&["audit", "checkpoint"]);
    let found = checkpoint["size"].as_u64();
    found.unwrap_or_else(|| panic!("no size: {checkpoint:#}"))
}

/// Waits until the log stops growing, and returns the position of its head.
#[track_caller]
pub fn settled_position(server: &Server) -> u64 {
    let (mut last, mut same) = (position(server), 0);
    until_some("the log to be quiet", TIMEOUT, || {
        std::thread::sleep(Duration::from_millis(100));
        let now = position(server);
        same = if now == last { same + 1 } else { 0 };
        last = now;
        (same >= 5).then_some(now)
    })
}

/// Returns the events of a job in the log.
#[track_caller]
pub fn job_events(server: &Server, job: &str) -> Vec<Value> {
    let events = server.cli_json(&["audit", "events", "--stream", &format!("job/{job}")]);
    events.as_array().unwrap().clone()
}

/// Checks that a job was claimed exactly once. Returns the execution.
#[track_caller]
pub fn one_execution(server: &Server, job: &str) -> String {
    let job_events = job_events(server, job);
    let claims: Vec<_> = job_events.iter().filter(|event| event["type"] == "job.claimed").collect();
    assert_eq!(claims.len(), 1, "one execution only: {job_events:#?}");
    claims[0]["payload"]["execution"].as_str().unwrap().to_string()
}

/// Checks that each component of `edge-api` and the sandbox were deployed exactly once.
#[track_caller]
pub fn each_effect_once(runner: &Runner) {
    let ledger = runner.ledger();
    let mut effects: Vec<_> = ledger.iter().map(|(what, _)| what.as_str()).collect();
    effects.sort_unstable();
    assert_eq!(effects, ["api", "cache", "database", "edge", "network", "sandbox"], "{ledger:?}");
}
