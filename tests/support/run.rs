//! Follows a run to its end with the CLI, as a user would.
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::Server;

/// Time limit, longer than any run of the examples.
const LIMIT: Duration = Duration::from_secs(90);

/// Approves all plans until the newest run of the install has finished, and returns it.
#[track_caller]
pub fn finish(server: &Server, install: &str) -> Value {
    let started = Instant::now();
    loop {
        let run = server.cli_json(&["runs", "show", install]);
        if run["state"] == "waiting_for_approval" {
            let approve = ["runs", "approve", install, "--all", "--reason", "the test says so"];
            // A newer plan may exist by now; the next iteration approves it.
            let _ignored = server.stead().args(approve).output().unwrap();
        }
        let end_states = ["succeeded", "failed", "cancelled", "denied", "expired"];
        if run["state"].as_str().is_some_and(|state| end_states.contains(&state)) {
            return run;
        }
        assert!(started.elapsed() < LIMIT, "the run does not end: {run:#}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
