//! Journal output for the owner of the host.
use std::collections::BTreeMap;

use chrono::SecondsFormat;
use domain::ids::{ExecutionId, JobId};
use proof::checkpoint::Checkpoint;
use schemas::{
    harmless::harmless,
    runner::{Exit, FailureReason, Outcome, RefusedBy},
};

use crate::journal::{Fact, Line};

/// Entry, and the job that it is about.
pub struct Told {
    pub line: Line,
    job: Option<JobId>,
}

/// Returns the entries of this job or all of them; with `last` only the last ones.
pub fn of(lines: Vec<Line>, job: Option<JobId>, last: Option<usize>) -> Vec<Told> {
    let mut jobs = BTreeMap::new();
    // Copies are left out, because their originals are in the history.
    let lines =
        lines.into_iter().filter(|line| !matches!(line.entry.fact, Fact::CarriedOver { .. }));
    let told = lines.map(|line| {
        if let Fact::Claimed { job, execution, .. } = &line.entry.fact {
            jobs.insert(*execution, *job);
        }
        let job = job_of(&line.entry.fact, &jobs);
        Told { line, job }
    });
    let mut told: Vec<_> = told.filter(|told| job.is_none() || told.job == job).collect();
    let skip = last.map_or(0, |last| told.len().saturating_sub(last));
    told.drain(..skip);
    told
}

fn job_of(fact: &Fact, jobs: &BTreeMap<ExecutionId, JobId>) -> Option<JobId> {
    match fact {
        Fact::Claiming { job, .. }
        | Fact::ClaimRejected { job, .. }
        | Fact::Claimed { job, .. }
        | Fact::Refused { job, .. }
        | Fact::Spawning { job, .. }
        | Fact::Spawned { job, .. }
        | Fact::Exited { job, .. }
        | Fact::StatementSigned { job, .. }
        | Fact::StatementRejected { job, .. }
        | Fact::LogRejected { job, .. }
        | Fact::Reported { job, .. }
        | Fact::ApprovalRequested { job, .. }
        | Fact::Abandoned { job, .. } => Some(*job),
        Fact::Verified { execution, .. }
        | Fact::ChildStarted { execution, .. }
        | Fact::StateSeen { execution, .. }
        | Fact::StateAccepted { execution, .. }
        | Fact::Cancelling { execution, .. }
        | Fact::ApprovalDecided { execution, .. } => jobs.get(execution).copied(),
        Fact::Opened { .. }
        | Fact::ChainStarted { .. }
        | Fact::SessionOpened { .. }
        | Fact::Checkpoint { .. }
        | Fact::EpochAccepted { .. }
        | Fact::Rekeyed { .. }
        | Fact::StateResolving { .. }
        | Fact::StateResolved { .. }
        | Fact::Disabled { .. }
        | Fact::Enabled {}
        | Fact::PolicyChosen { .. }
        | Fact::CarriedOver { .. }
        | Fact::Unknown => None,
    }
}

/// Formats a table of time, job and event.
pub fn table(lines: &[Told]) -> String {
    let row = |at: &str, job: &str, what: &str| format!("{at:<20}  {job:<30}  {what}\n");
    let told = |told: &Told| {
        let at = told.line.entry.at.to_rfc3339_opts(SecondsFormat::Secs, true).replace('T', " ");
        let job = told.job.map_or("-".into(), |job| job.to_string());
        row(&at, &job, &harmless(&what(&told.line.entry.fact)))
    };
    row("TIME", "JOB", "EVENT") + &lines.iter().map(told).collect::<String>()
}

fn what(fact: &Fact) -> String {
    match fact {
        Fact::Opened { .. } => "began the journal".into(),
        Fact::ChainStarted { lines, .. } => {
            format!("began the hash chain; {lines} older lines are not in it")
        }
        Fact::SessionOpened { generation, .. } => {
            format!("opened session {generation} with the server")
        }
        Fact::Claiming { .. } => "requested the job".into(),
        Fact::ClaimRejected { reason: why, .. } => format!("did not get the job: {why}"),
        Fact::Claimed { attempt: 1, .. } => "claimed the job".into(),
        Fact::Claimed { attempt, .. } => format!("claimed the job, attempt {attempt}"),
        Fact::Verified { kind, plugin, .. } => {
            format!("verified the signatures and proofs: {} with {plugin}", kind.as_str())
        }
        Fact::Refused { refused_by: by, rule, detail, .. } => {
            format!("refused by {} (rule {rule}): {detail}", who(*by))
        }
        Fact::Spawning { .. } => "starting the job".into(),
        Fact::Spawned { process, .. } => format!("started the job as process {}", process.pid),
        Fact::ChildStarted { process, .. } => {
            format!("started a program as process {}", process.pid)
        }
        Fact::Cancelling { reason, force: false, .. } => format!("stop requested: {reason}"),
        Fact::Cancelling { reason, force: true, .. } => format!("earlier stop requested: {reason}"),
        Fact::Exited { exit, .. } => ended(exit),
        Fact::StatementSigned { statement, .. } => format!("signed the result: {statement}"),
        Fact::StatementRejected { reason: why, .. } => {
            format!("the server rejected the signed result, so it is sent unsigned: {why}")
        }
        Fact::LogRejected { rule, evidence, .. } if evidence.is_empty() => format!(
            "rejected the vendor's log (rule {rule}); no evidence stored, because the limit is reached"
        ),
        Fact::LogRejected { rule, evidence, .. } => {
            format!("rejected the vendor's log (rule {rule}); both heads are in {evidence}")
        }
        Fact::Reported { .. } => "the server has the result".into(),
        Fact::ApprovalRequested { .. } => "waits for your approval".into(),
        Fact::ApprovalDecided { approved: true, reason, .. } => {
            format!("you approved it: {reason}")
        }
        Fact::ApprovalDecided { approved: false, reason, .. } => format!("you denied it: {reason}"),
        Fact::Abandoned { reason: why, .. } => format!("left to the server: {why}"),
        Fact::Checkpoint { note } => match Checkpoint::read_unverified(note) {
            Ok(seen) => format!("verified the server's log up to event {}", seen.size),
            Err(_) => "verified a head of the server's log".into(),
        },
        Fact::EpochAccepted { epoch } => format!("you accepted the restored log of epoch {epoch}"),
        Fact::Rekeyed { .. } => "replaced its identity key".into(),
        Fact::StateSeen { component, lineage: None, .. } => {
            format!("the state of {component} was removed with the component")
        }
        Fact::StateSeen { component, lineage: Some(lineage), serial, .. } => {
            format!("the state of {component} has serial {serial} of lineage {lineage}")
        }
        Fact::StateAccepted { component, lineage, serial, .. } => format!(
            "the vendor accepted serial {serial} of lineage {lineage} as the state of {component}"
        ),
        Fact::StateResolving { component, reason, .. } => {
            format!("you began to resolve the state of {component}: {reason}")
        }
        Fact::StateResolved { component, lineage: None, reason, .. } => {
            format!("you decided that {component} has no resources: {reason}")
        }
        Fact::StateResolved { component, lineage: Some(lineage), serial, reason } => {
            format!(
                "you decided that serial {serial} of lineage {lineage} is the state of {component}: {reason}"
            )
        }
        Fact::Disabled { reason } => format!("you disabled the runner: {reason}"),
        Fact::Enabled {} => "you enabled the runner".into(),
        Fact::PolicyChosen { policy } => format!("you chose the policy: {policy}"),
        Fact::CarriedOver { original } => what(&original.fact),
        Fact::Unknown => "entry of a later version: see --output json".into(),
    }
}

fn who(by: RefusedBy) -> &'static str {
    match by {
        RefusedBy::CustomerPolicy => "your policy",
        RefusedBy::Verification => "the runner, which could not verify it",
        RefusedBy::Capability => "the runner, which cannot run it",
        RefusedBy::Veto => "your veto command",
    }
}

fn ended(exit: &Exit) -> String {
    let how = match exit.outcome {
        Outcome::Succeeded => return "succeeded".into(),
        Outcome::Cancelled => return "cancelled on request".into(),
        Outcome::Failed => match exit.reason {
            None | Some(FailureReason::ExitCode | FailureReason::Signal) => "",
            Some(reason) => reason.text(),
        },
    };
    let code = exit.code.map(|code| format!("exit code {code}"));
    let signal = exit.signal.map(|signal| format!("signal {signal}"));
    let all = [Some(how.to_owned()).filter(|how| !how.is_empty()), code, signal];
    let why: Vec<_> = all.into_iter().flatten().collect();
    if why.is_empty() { "failed".into() } else { format!("failed: {}", why.join(", ")) }
}

#[cfg(test)]
mod tests;
