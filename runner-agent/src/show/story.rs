//! The journal in plain words, for whoever owns the host.
use std::collections::BTreeMap;

use chrono::SecondsFormat;
use domain::ids::{ExecutionId, JobId};
use proof::checkpoint::Checkpoint;
use schemas::{
    harmless::harmless,
    runner::{Exit, FailureReason, Outcome, RefusedBy},
};

use crate::journal::{Fact, Line};

/// A line, and the job that it is about.
pub struct Told {
    pub line: Line,
    job: Option<JobId>,
}

/// The lines about this job, or all; of those the last so many, or all.
pub fn of(lines: Vec<Line>, job: Option<JobId>, last: Option<usize>) -> Vec<Told> {
    let mut jobs = BTreeMap::new();
    // The history has these already, where they were first written.
    let lines = lines.into_iter().filter(|line| !matches!(line.entry.fact, Fact::Carried { .. }));
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
        | Fact::NotClaimed { job, .. }
        | Fact::Claimed { job, .. }
        | Fact::Refused { job, .. }
        | Fact::Spawning { job, .. }
        | Fact::Spawned { job, .. }
        | Fact::Exited { job, .. }
        | Fact::Stated { job, .. }
        | Fact::Unsigned { job, .. }
        | Fact::LogRefused { job, .. }
        | Fact::Reported { job, .. }
        | Fact::Asked { job, .. }
        | Fact::Abandoned { job, .. } => Some(*job),
        Fact::Verified { execution, .. }
        | Fact::Child { execution, .. }
        | Fact::StateSeen { execution, .. }
        | Fact::StateAccepted { execution, .. }
        | Fact::Cancelling { execution, .. }
        | Fact::Answered { execution, .. } => jobs.get(execution).copied(),
        Fact::Opened { .. }
        | Fact::ChainBegun { .. }
        | Fact::SessionOpened { .. }
        | Fact::Checkpoint { .. }
        | Fact::EpochAccepted { .. }
        | Fact::Rekeyed { .. }
        | Fact::StateResolving { .. }
        | Fact::StateResolved { .. }
        | Fact::Disabled { .. }
        | Fact::Enabled {}
        | Fact::PolicyChosen { .. }
        | Fact::Carried { .. }
        | Fact::Unknown => None,
    }
}

/// When, which job, what happened.
pub fn table(lines: &[Told]) -> String {
    let row = |at: &str, job: &str, what: &str| format!("{at:<20}  {job:<30}  {what}\n");
    let told = |told: &Told| {
        let at = told.line.entry.at.to_rfc3339_opts(SecondsFormat::Secs, true).replace('T', " ");
        let job = told.job.map_or("-".into(), |job| job.to_string());
        row(&at, &job, &harmless(&what(&told.line.entry.fact)))
    };
    row("TIME", "JOB", "WHAT HAPPENED") + &lines.iter().map(told).collect::<String>()
}

fn what(fact: &Fact) -> String {
    match fact {
        Fact::Opened { .. } => "a journal was begun".into(),
        Fact::ChainBegun { lines, .. } => {
            format!(
                "each entry is chained to the one before from here on; {lines} older lines are not"
            )
        }
        Fact::SessionOpened { generation, .. } => {
            format!("opened session {generation} with the server")
        }
        Fact::Claiming { .. } => "asked for this job".into(),
        Fact::NotClaimed { why, .. } => format!("did not get it: {why}"),
        Fact::Claimed { attempt: 1, .. } => "got it".into(),
        Fact::Claimed { attempt, .. } => format!("got it, which is attempt {attempt}"),
        Fact::Verified { kind, plugin, .. } => {
            format!("its signatures and proofs are good: {} with {plugin}", kind.as_str())
        }
        Fact::Refused { by, rule, detail, .. } => {
            format!("refused by {} (rule {rule}): {detail}", who(*by))
        }
        Fact::Spawning { .. } => "about to start".into(),
        Fact::Spawned { process, .. } => format!("started, as process {}", process.pid),
        Fact::Child { process, .. } => format!("runs a program, as process {}", process.pid),
        Fact::Cancelling { reason, force: false, .. } => format!("told to stop: {reason}"),
        Fact::Cancelling { reason, force: true, .. } => format!("told to stop sooner: {reason}"),
        Fact::Exited { exit, .. } => ended(exit),
        Fact::Stated { statement, .. } => format!("signed how it ended: {statement}"),
        Fact::Unsigned { why, .. } => {
            format!("the server took no signed word of how it ended, so it is told unsigned: {why}")
        }
        Fact::LogRefused { rule, evidence, .. } if evidence.is_empty() => format!(
            "did not believe the vendor's log (rule {rule}); there is too much evidence to keep more"
        ),
        Fact::LogRefused { rule, evidence, .. } => {
            format!(
                "did not believe the vendor's log (rule {rule}); both heads are kept in {evidence}"
            )
        }
        Fact::Reported { .. } => "the server has heard how it ended".into(),
        Fact::Asked { .. } => "waits for your word".into(),
        Fact::Answered { yes: true, reason, .. } => format!("you approved it: {reason}"),
        Fact::Answered { yes: false, reason, .. } => format!("you denied it: {reason}"),
        Fact::Abandoned { why, .. } => format!("left to the server: {why}"),
        Fact::Checkpoint { note } => match Checkpoint::read_unverified(note) {
            Ok(seen) => format!("the server's log is believed up to entry {}", seen.size),
            Err(_) => "a head of the server's log is believed".into(),
        },
        Fact::EpochAccepted { epoch } => format!("you accepted the restored log of epoch {epoch}"),
        Fact::Rekeyed { .. } => "signs with another key from now on".into(),
        Fact::StateSeen { component, lineage: None, .. } => {
            format!("the state of {component} is gone with the component")
        }
        Fact::StateSeen { component, lineage: Some(lineage), serial, .. } => {
            format!("the state of {component} has serial {serial} of lineage {lineage}")
        }
        Fact::StateAccepted { component, lineage, serial, .. } => format!(
            "the vendor decided that serial {serial} of lineage {lineage} is the state of {component}"
        ),
        Fact::StateResolving { component, reason, .. } => {
            format!("you began to resolve the state of {component}: {reason}")
        }
        Fact::StateResolved { component, lineage: None, reason, .. } => {
            format!("you decided that nothing of {component} exists: {reason}")
        }
        Fact::StateResolved { component, lineage: Some(lineage), serial, reason } => {
            format!(
                "you decided that serial {serial} of lineage {lineage} is the state of {component}: {reason}"
            )
        }
        Fact::Disabled { reason } => format!("you switched the runner off: {reason}"),
        Fact::Enabled {} => "you switched the runner on".into(),
        Fact::PolicyChosen { policy } => format!("you chose the policy: {policy}"),
        Fact::Carried { of } => what(&of.fact),
        Fact::Unknown => "something that a later version wrote: see --output json".into(),
    }
}

fn who(by: RefusedBy) -> &'static str {
    match by {
        RefusedBy::CustomerPolicy => "your policy",
        RefusedBy::Verification => "the runner, which could not verify it",
        RefusedBy::Capability => "the runner, which cannot do it",
        RefusedBy::Veto => "your veto hook",
    }
}

fn ended(exit: &Exit) -> String {
    let how = match exit.outcome {
        Outcome::Succeeded => return "succeeded".into(),
        Outcome::Cancelled => return "stopped, as was asked".into(),
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
