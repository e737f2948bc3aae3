//! Compares the effects in the log with those that the modules recorded.
use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
};

use serde_json::Value;
use tests::Runner;

#[derive(Debug, Default)]
struct JobRecord {
    kind: String,
    origin: (String, String),
    queued: u64,
    claims: Vec<String>,
    requeued: usize,
    succeeded: Option<String>,
    /// Changes of a plan job: create, update, delete.
    plan: Option<[u64; 3]>,
    state: String,
}

/// Format of a line of the ledger.
#[derive(Debug, Clone, Copy)]
pub enum Effects {
    /// A resource that was created or deleted.
    OfTerraform,
    /// A file that was created, changed or deleted.
    OfFiles,
}

/// Returns all violations. `stead` is the CLI with the owner's token.
pub fn check(stead: impl Fn() -> Command, runner: &Runner, effects: Effects) -> Vec<String> {
    let jobs = jobs(stead());
    let ledger = runner.ledger();
    let mut wrong = Vec::new();

    let mut seen = BTreeSet::new();
    for line in &ledger {
        if !seen.insert(line) {
            wrong.push(format!("duplicate effect: {} by {}", line.0, line.1));
        }
    }
    let claimed: BTreeSet<&String> = jobs.values().flat_map(|job| &job.claims).collect();
    for (what, who) in &ledger {
        if !claimed.contains(who) {
            wrong.push(format!("{what} by {who}, which claimed no job"));
        }
    }
    let mut applied = 0;
    for (id, job) in jobs.iter().filter(|(_, job)| job.kind == "apply") {
        if job.claims.len() > 1 + job.requeued {
            wrong.push(format!("{id} was claimed {} times", job.claims.len()));
        }
        let Some(execution) = &job.succeeded else {
            wrong.push(format!("{id}: the apply did not succeed: {}", job.state));
            continue;
        };
        applied += 1;
        let plans = jobs.values().filter(|other| {
            other.kind == "plan" && other.origin == job.origin && other.queued < job.queued
        });
        let plan = plans.max_by_key(|other| other.queued).and_then(|plan| plan.plan);
        let by = ledger.iter().filter(|(_, who)| who == execution);
        let (destroyed, created): (Vec<_>, Vec<_>) =
            by.partition(|(what, _)| what.ends_with("/destroy"));
        let effects_found = [created.len() as u64, destroyed.len() as u64];
        let planned = plan.map(|[make, change, destroy]| match effects {
            Effects::OfTerraform => [make, destroy],
            Effects::OfFiles => [make + change + destroy, 0],
        });
        if planned != Some(effects_found) {
            wrong.push(format!("{id}: the plan was {planned:?}, the ledger has {effects_found:?}"));
        }
    }
    let unknown = jobs.values().filter(|job| job.state == "job.outcome_unknown").count();
    if unknown > 0 {
        wrong.push(format!("the outcome of {unknown} jobs is unknown though no shim was killed"));
    }
    let requeued: usize = jobs.values().map(|job| job.requeued).sum();
    let lines = ledger.len();
    println!("{} jobs, {applied} applies, {requeued} requeued, {lines} effects", jobs.len());
    let verify = stead().args(["audit", "verify"]).output().unwrap();
    let output = String::from_utf8_lossy(&verify.stdout).trim().to_string();
    println!("{output}");
    if !verify.status.success() {
        let why = String::from_utf8_lossy(&verify.stderr).into_owned();
        wrong.push(format!("log verification failed: {output} {why}"));
    }
    wrong
}

fn jobs(mut stead: Command) -> BTreeMap<String, JobRecord> {
    let events =
        tests::stdout_of(stead.args(["-o", "ndjson", "audit", "events", "--type", "job."]));
    let mut jobs = BTreeMap::<String, JobRecord>::new();
    for line in events.lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        let id = event["stream"].as_str().unwrap().trim_start_matches("job/").to_string();
        let (payload, job) = (&event["payload"], jobs.entry(id).or_default());
        let text = |name: &str| payload[name].as_str().unwrap_or_default().to_string();
        let name = event["type"].as_str().unwrap();
        match name {
            "job.queued" => {
                let part = |name: &str| payload["origin"][name].to_string();
                job.kind = text("kind");
                job.origin = (part("run"), part("step"));
                job.queued = event["position"].as_u64().unwrap();
            }
            "job.claimed" => job.claims.push(text("execution")),
            "job.requeued" => job.requeued += 1,
            "job.succeeded" => job.succeeded = Some(text("execution")),
            "job.plan_produced" => {
                let number = |name: &str| payload["plan"][name].as_u64().unwrap();
                job.plan = Some(["add", "change", "destroy"].map(number));
            }
            _ => {}
        }
        if name != "job.log_finalized" {
            job.state = name.to_string();
        }
    }
    jobs
}
