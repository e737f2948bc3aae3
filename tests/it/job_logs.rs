//! Tests that a job's log is live within a second, ordered, complete, unchanged afterwards, and
//! finalized with its digest.
use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;
use tests::{Runner, Server, edge_api, stdout_of, terraform_or_skip, until_some};

const TIMEOUT: Duration = Duration::from_secs(30);

/// Returns nanoseconds since 1970, as the tested script prints them.
fn now() -> u128 {
    stdout_of(Command::new("date").arg("+%s%N")).trim().parse().unwrap()
}

#[test]
fn a_followed_log_is_live_and_equals_the_stored_log() {
    if !terraform_or_skip() {
        return;
    }
    let server = Server::up();
    let app = edge_api(server.dir());
    // One line each half second, so that the delay of each can be measured.
    let script = app.join("sandbox/effect.sh");
    let script_text =
        "#!/bin/sh\nfor n in 1 2 3 4 5 6 7 8; do echo \"tick $n $(date +%s%N)\"; sleep 0.5; done\n";
    std::fs::write(&script, script_text).unwrap();
    server.cli_json(&["apps", "sync", app.to_str().unwrap(), "--wait"]);
    let create = ["installs", "create", "edge-api", "acme", "--auto-approve"];
    let created = server.cli_json(&[&create[..], &["--input", "company=Acme"]].concat());
    let _runner =
        Runner::start(&server, "customer", created["enrolment"]["token"].as_str().unwrap());
    let job = until_some("an apply", TIMEOUT, || {
        let jobs = server.cli_json(&["jobs", "list", "--install", "acme", "--state", "running"]);
        let apply = |job: &&Value| job["kind"] == "apply" && job["name"] == "sandbox";
        Some(jobs.as_array()?.iter().find(apply)?["id"].as_str()?.to_string())
    });

    let mut follow = server.stead_for_people();
    let mut follow =
        follow.args(["jobs", "logs", "-f", &job]).stdout(Stdio::piped()).spawn().unwrap();
    let (begin, requested_at, mut timed_lines) = (Instant::now(), now(), 0);
    let (mut live, mut ticks, mut slowest) = (String::new(), vec![], Duration::ZERO);
    for line in BufReader::new(follow.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        if let Some(at) = line.find("tick ") {
            let fields: Vec<_> = line[at..].split_whitespace().collect();
            let written: u128 = fields[2].parse().unwrap();
            ticks.push(fields[1].parse::<u32>().unwrap());
            // Lines that were written before the request arrive with the first page.
            if written > requested_at {
                slowest = slowest.max(Duration::from_nanos((now() - written) as u64));
                timed_lines += 1;
            }
        }
        live.push_str(&line);
        live.push('\n');
        assert!(begin.elapsed() < TIMEOUT, "the log does not end\n{live}");
    }
    assert!(follow.wait().unwrap().success());
    assert_eq!(ticks, [1, 2, 3, 4, 5, 6, 7, 8], "{live}");
    assert!(timed_lines > 3 && slowest < Duration::from_secs(1), "a line took {slowest:?}");

    let after = stdout_of(server.stead_for_people().args(["jobs", "logs", &job]));
    assert_eq!(after, live);
    let stream = format!("job/{job}");
    let finalized = until_some("the finalized log", TIMEOUT, || {
        let events = server.cli_json(&[
            "audit",
            "events",
            "--stream",
            &stream,
            "--type",
            "job.log_finalized",
        ]);
        events.as_array()?.first().cloned()
    });
    assert!(finalized.to_string().contains("sha256:"), "{finalized:#}");
}
