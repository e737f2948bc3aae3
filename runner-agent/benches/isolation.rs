//! Benchmark of the start of a job at each level of isolation, in the same run: from the start of
//! the shim to its end, for an action that runs `true`. Prints a table of medians.
#![allow(clippy::panic, clippy::unwrap_used, clippy::expect_used, reason = "a failed bench panics")]
#![allow(clippy::disallowed_methods, reason = "a benchmark creates ids itself")]

use std::{
    io::Write as _,
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use domain::{
    ids::{ExecutionId, JobId},
    isolation::IsolationLevel,
};
use runner_agent::{data::Data, host, isolation::Choice, shim::order::ShimOrder, tls::Trust};
use serde_json::json;
use ulid::Ulid;

const ROUNDS: usize = 30;

fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// Runs one job with its own data directory, and returns the time that it took.
fn run(isolation: &Choice) -> Duration {
    let (job, execution) = (JobId(Ulid::new()), ExecutionId(Ulid::new()));
    let manifest = json!({
        "version": 1, "job": job, "kind": "action", "class": "unsafe",
        "plugin": {"name": "action", "version": "1"},
        "inputs": {"action": "bench", "trigger": "manual", "steps": [{"name": "only", "command": "true"}]},
        "limits": {"output_bytes": 1_048_576}, "timeouts": {"deadline_ms": 60_000, "grace_ms": 500},
    })
    .to_string();
    let order = ShimOrder {
        isolation: isolation.clone(),
        kubeconfig_allows: Default::default(),
        limits: Default::default(),
        manifest_digest: proof::digest_text(&proof::sha256(manifest.as_bytes())).parse().unwrap(),
        manifest,
        server: "http://127.0.0.1:9".into(),
        trust: Trust::Public,
        job_token: "job-token-1234567890".into(),
        git_env: Default::default(),
        deadline_uptime_ms: host::uptime_ms() + 60_000,
        max_grace_ms: 10_000,
        pass_env: Default::default(),
        path: std::env::var("PATH").unwrap(),
        plugin_dir: "/nonexistent".into(),
        images: Default::default(),
        values: Default::default(),
        state: None,
    };
    let dir = tempfile::tempdir().unwrap();
    let data = Data::open(dir.path()).unwrap();
    data.job(execution).create().unwrap();
    let began = Instant::now();
    let mut shim = Command::new(env!("CARGO_BIN_EXE_stead-runner"))
        .args(["shim", "--data"])
        .arg(data.root())
        .args(["--job", &job.to_string(), "--execution", &execution.to_string()])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = shim.stdin.take().unwrap();
    pipe.write_all(&serde_json::to_vec(&order).unwrap()).unwrap();
    drop(pipe);
    assert!(shim.wait().unwrap().success());
    let took = began.elapsed();
    let reports = std::fs::read_to_string(data.job(execution).reports()).unwrap();
    assert!(reports.contains(r#""outcome":"succeeded""#), "{reports}");
    took
}

fn main() {
    let (Some(bwrap), Some(pasta)) = (find("bwrap"), find("pasta")) else {
        println!("SKIPPED: install bubblewrap and passt");
        return;
    };
    let level = IsolationLevel::Sandbox;
    // From version 0.8.0 of bubblewrap on.
    let closes_namespaces = true;
    let shared = Choice { level, bwrap: Some(bwrap), closes_namespaces, ..Choice::default() };
    let complete = Choice { pasta: Some(pasta), ..shared.clone() };
    let levels = [
        ("`process`", Choice::default()),
        ("`sandbox` with `sandbox_network = \"shared\"`", shared),
        ("`sandbox`", complete),
    ];
    let mut times: Vec<Vec<Duration>> = levels.iter().map(|_| Vec::new()).collect();
    for _ in 0..ROUNDS {
        for ((_, choice), times) in levels.iter().zip(&mut times) {
            times.push(run(choice));
        }
    }
    let medians: Vec<f64> = times
        .iter_mut()
        .map(|times| {
            times.sort_unstable();
            times[times.len() / 2].as_secs_f64() * 1000.0
        })
        .collect();
    println!("| level | job, median of {ROUNDS} | beside `process` |\n|---|---|---|");
    for ((name, _), median) in levels.iter().zip(&medians) {
        println!("| {name} | {median:.1} ms | {:+.1} ms |", median - medians[0]);
    }
}
