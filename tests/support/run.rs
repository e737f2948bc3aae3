//! A run followed to its end, as a person would with the CLI.
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::Server;

/// More than any run of the examples takes.
const LIMIT: Duration = Duration::from_secs(90);

/// Approve whatever waits until the newest run of the install is over; what became of it.
#[track_caller]
pub fn finish(server: &Server, install: &str) -> Value {
    let begin = Instant::now();
    loop {
        let run = server.ask(&["runs", "show", install]);
        if run["state"] == "waiting_for_approval" {
            let approve = ["runs", "approve", install, "--all", "--reason", "the test says so"];
            // Another plan may have come in between; the next turn sees it.
            let _said = server.stead().args(approve).output().unwrap();
        }
        let over = ["succeeded", "failed", "cancelled", "denied", "expired"];
        if run["state"].as_str().is_some_and(|state| over.contains(&state)) {
            return run;
        }
        assert!(begin.elapsed() < LIMIT, "the run does not end: {run:#}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
