//! Journal output for the owner of the host.
use std::collections::BTreeMap;

use chrono::SecondsFormat;
use domain::ids::{ExecutionId, JobId};
use proof::checkpoint::Checkpoint;
use schemas::{
    runner::{Exit, FailureReason, Outcome, RefusedBy},
    sanitize::sanitize,
};

use crate::journal::{JournalEvent, Line};

/// Journal entry with the job that it belongs to.
pub struct JobEntry {
    pub line: Line,
    job: Option<JobId>,
}

/// Returns the entries of this job, or of all jobs. `last` limits the result to the newest entries.
pub fn of(lines: Vec<Line>, job: Option<JobId>, last: Option<usize>) -> Vec<JobEntry> {
    let mut jobs = BTreeMap::new();
    // Omit copies, because their originals are in an older file.
    let lines = lines
        .into_iter()
        .filter(|line| !matches!(line.entry.event, JournalEvent::CarriedOver { .. }));
    let entries = lines.map(|line| {
        if let JournalEvent::Claimed { job, execution, .. } = &line.entry.event {
            jobs.insert(*execution, *job);
        }
        let job = job_of(&line.entry.event, &jobs);
        JobEntry { line, job }
    });
    let mut entries: Vec<_> = entries.filter(|entry| job.is_none() || entry.job == job).collect();
    let skip = last.map_or(0, |last| entries.len().saturating_sub(last));
    entries.drain(..skip);
    entries
}

fn job_of(event: &JournalEvent, jobs: &BTreeMap<ExecutionId, JobId>) -> Option<JobId> {
    match event {
        JournalEvent::Claiming { job, .. }
        | JournalEvent::ClaimRejected { job, .. }
        | JournalEvent::Claimed { job, .. }
        | JournalEvent::Refused { job, .. }
        | JournalEvent::Spawning { job, .. }
        | JournalEvent::Spawned { job, .. }
        | JournalEvent::Exited { job, .. }
        | JournalEvent::StatementSigned { job, .. }
        | JournalEvent::StatementRejected { job, .. }
        | JournalEvent::LogRejected { job, .. }
        | JournalEvent::Reported { job, .. }
        | JournalEvent::ApprovalRequested { job, .. }
        | JournalEvent::Abandoned { job, .. } => Some(*job),
        JournalEvent::Verified { execution, .. }
        | JournalEvent::ChildStarted { execution, .. }
        | JournalEvent::Isolated { execution, .. }
        | JournalEvent::StateSeen { execution, .. }
        | JournalEvent::StateAccepted { execution, .. }
        | JournalEvent::Cancelling { execution, .. }
        | JournalEvent::ApprovalDecided { execution, .. } => jobs.get(execution).copied(),
        JournalEvent::Opened { .. }
        | JournalEvent::ChainStarted { .. }
        | JournalEvent::SessionOpened { .. }
        | JournalEvent::Checkpoint { .. }
        | JournalEvent::EpochAccepted { .. }
        | JournalEvent::Rekeyed { .. }
        | JournalEvent::StateResolving { .. }
        | JournalEvent::StateResolved { .. }
        | JournalEvent::StateUnproved { .. }
        | JournalEvent::Disabled { .. }
        | JournalEvent::Enabled {}
        | JournalEvent::PolicyChosen { .. }
        | JournalEvent::PublishersTrusted { .. }
        | JournalEvent::CarriedOver { .. }
        | JournalEvent::Unknown => None,
    }
}

/// Formats a table of time, job and event.
pub fn table(lines: &[JobEntry]) -> String {
    let row =
        |at: &str, job: &str, description: &str| format!("{at:<20}  {job:<30}  {description}\n");
    let format_entry = |entry: &JobEntry| {
        let at = entry.line.entry.at.to_rfc3339_opts(SecondsFormat::Secs, true).replace('T', " ");
        let job = entry.job.map_or("-".into(), |job| job.to_string());
        row(&at, &job, &sanitize(&description(&entry.line.entry.event)))
    };
    row("TIME", "JOB", "EVENT") + &lines.iter().map(format_entry).collect::<String>()
}

fn description(event: &JournalEvent) -> String {
    match event {
        JournalEvent::Opened { .. } => "began the journal".into(),
        JournalEvent::ChainStarted { lines, .. } => {
            format!("began the hash chain; {lines} older lines are not in it")
        }
        JournalEvent::SessionOpened { generation, .. } => {
            format!("opened session {generation} with the server")
        }
        JournalEvent::Claiming { .. } => "requested the job".into(),
        JournalEvent::ClaimRejected { reason: why, .. } => format!("claim rejected: {why}"),
        JournalEvent::Claimed { attempt: 1, .. } => "claimed the job".into(),
        JournalEvent::Claimed { attempt, .. } => format!("claimed the job, attempt {attempt}"),
        JournalEvent::Verified { kind, plugin, .. } => {
            format!("verified the signatures and proofs: {} with {plugin}", kind.as_str())
        }
        JournalEvent::Refused { refused_by: by, rule, detail, .. } => {
            format!("refused by {} (rule {rule}): {detail}", refusing_party(*by))
        }
        JournalEvent::Spawning { .. } => "starting the job".into(),
        JournalEvent::Spawned { process, .. } => {
            format!("started the job as process {}", process.pid)
        }
        JournalEvent::ChildStarted { process, .. } => {
            format!("started a program as process {}", process.pid)
        }
        JournalEvent::Isolated { isolation, note, .. } => match note.as_str() {
            "" => format!("isolation: {}", isolation.text()),
            note => format!("isolation: {}; {note}", isolation.text()),
        },
        JournalEvent::Cancelling { reason, force: false, .. } => {
            format!("stop requested: {reason}")
        }
        JournalEvent::Cancelling { reason, force: true, .. } => {
            format!("stop requested with a shorter grace period: {reason}")
        }
        JournalEvent::Exited { exit, .. } => ended(exit),
        JournalEvent::StatementSigned { statement, .. } => {
            format!("signed the result: {statement}")
        }
        JournalEvent::StatementRejected { reason: why, .. } => {
            format!(
                "the server rejected the signed result, so the runner sends the result unsigned: {why}"
            )
        }
        JournalEvent::LogRejected { rule, evidence, .. } if evidence.is_empty() => format!(
            "rejected the vendor's log (rule {rule}); the evidence is not stored, because the maximum number of evidence files is reached"
        ),
        JournalEvent::LogRejected { rule, evidence, .. } => {
            format!("rejected the vendor's log (rule {rule}); both heads are in {evidence}")
        }
        JournalEvent::Reported { .. } => "the server has the result".into(),
        JournalEvent::ApprovalRequested { .. } => "waits for your approval".into(),
        JournalEvent::ApprovalDecided { approved: true, reason, .. } => {
            format!("you approved the job: {reason}")
        }
        JournalEvent::ApprovalDecided { approved: false, reason, .. } => {
            format!("you denied the job: {reason}")
        }
        JournalEvent::Abandoned { reason: why, .. } => {
            format!("stopped reporting the job: {why}")
        }
        JournalEvent::Checkpoint { note } => match Checkpoint::read_unverified(note) {
            Ok(seen) => format!("verified the server's log up to event {}", seen.size),
            Err(_) => "verified a head of the server's log".into(),
        },
        JournalEvent::EpochAccepted { epoch } => {
            format!("you accepted the restored log of epoch {epoch}")
        }
        JournalEvent::Rekeyed { .. } => "replaced its identity key".into(),
        JournalEvent::StateSeen { component, lineage: None, .. } => {
            format!("the state of {component} was removed with the component")
        }
        JournalEvent::StateSeen { component, lineage: Some(lineage), serial, .. } => {
            format!("the state of {component} has serial {serial} of lineage {lineage}")
        }
        JournalEvent::StateAccepted { component, lineage, serial, .. } => format!(
            "the vendor accepted serial {serial} of lineage {lineage} as the state of {component}"
        ),
        JournalEvent::StateResolving { component, reason, .. } => {
            format!("you began to resolve the state of {component}: {reason}")
        }
        JournalEvent::StateResolved { component, lineage: None, reason, .. } => {
            format!("you decided that {component} has no resources: {reason}")
        }
        JournalEvent::StateResolved { component, lineage: Some(lineage), serial, reason } => {
            format!(
                "you decided that serial {serial} of lineage {lineage} is the state of {component}: {reason}"
            )
        }
        JournalEvent::StateUnproved { component, lineage, serial, .. } => format!(
            "you accepted serial {serial} of lineage {lineage}, unproved, as the newest state of {component}"
        ),
        JournalEvent::Disabled { reason } => format!("you disabled the runner: {reason}"),
        JournalEvent::Enabled {} => "you enabled the runner".into(),
        JournalEvent::PolicyChosen { policy } => format!("you chose the policy: {policy}"),
        JournalEvent::PublishersTrusted { publishers } => match publishers.is_empty() {
            true => "you trust no recorded publisher of plugins".into(),
            false => format!("you trust the publishers of plugins: {}", publishers.join(", ")),
        },
        JournalEvent::CarriedOver { original } => description(&original.event),
        JournalEvent::Unknown => "entry of a later version: see --output json".into(),
    }
}

fn refusing_party(by: RefusedBy) -> &'static str {
    match by {
        RefusedBy::CustomerPolicy => "your policy",
        RefusedBy::Verification => "the runner's verification",
        RefusedBy::Capability => "the runner's capabilities",
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
