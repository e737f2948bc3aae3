//! Installs of an app with a runner each, and the duration of their jobs.
use std::time::Duration;

use serde_json::Value;
use tests::{Customer, Runner, Server, succeeded, until};

/// Time until a new runner is enrolled and its install has a run.
const ENROL_TIMEOUT: Duration = Duration::from_secs(60);

/// Creates an install, starts its runner, and waits until it is provisioned. Returns the run.
pub fn provision(
    server: &Server,
    app: &str,
    name: &str,
    configure: impl FnOnce(Customer) -> Customer,
) -> (Runner, Value) {
    let created = server.cli_json(&["installs", "create", app, name, "--auto-approve"]);
    let token = created["enrolment"]["token"].as_str().unwrap();
    let runner = configure(Customer::new(server, name)).start(server, token);
    until("the provision run", ENROL_TIMEOUT, || {
        !server.cli_json(&["runs", "list", "--install", name]).as_array().unwrap().is_empty()
    });
    let run = succeeded(server, name);
    (runner, run)
}

/// Deploys an install again, and returns the run.
pub fn deploy(server: &Server, name: &str) -> Value {
    server.cli_json(&["installs", "deploy", name, "--reason", "benchmark"]);
    succeeded(server, name)
}

/// Returns the time from the claim of a job to its result.
pub fn duration(server: &Server, job: &Value) -> Duration {
    let job = server.cli_json(&["jobs", "show", job.as_str().unwrap()]);
    let moment = |value: &Value| -> chrono::DateTime<chrono::Utc> {
        value.as_str().unwrap().parse().unwrap()
    };
    let attempt = &job["attempts"][0];
    (moment(&attempt["ended_at"]) - moment(&attempt["claimed_at"])).to_std().unwrap()
}
