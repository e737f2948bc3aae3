//! What the journal knows of every claim that is not done: the memory of an agent that died.
use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    sync::Arc,
    time::Duration,
};

use chrono::TimeDelta;
use domain::ids::{ExecutionId, JobId};
use schemas::runner::{
    ExecutionState, Exit, FailureReason, Finished, JournalEntry, Outcome, RefusedBy, Report,
    ReportBody,
};

use super::{Agent, orphans};
use crate::{
    data::Data,
    host::{self, Process},
    journal::{Entry, Fact, Stop},
};

/// Time after its planned start during which a shim that was given up may still begin.
const LATE: TimeDelta = TimeDelta::hours(1);

/// How far a claim came.
#[derive(Debug, Clone, PartialEq)]
pub enum Stage {
    /// It was sent, perhaps.
    Claiming,
    /// It was granted.
    Claimed,
    /// It was granted, and we do not do it.
    Refused { by: RefusedBy, rule: String, detail: String },
    /// A shim was about to be started.
    Spawning,
    /// A shim was started.
    Spawned(Process),
    /// The shim has written how it ended.
    Exited(Exit),
}

/// One claim that is not done.
#[derive(Debug, Clone, PartialEq)]
pub struct Known {
    /// The job.
    pub job: JobId,
    /// The execution, once it was granted.
    pub execution: Option<ExecutionId>,
    /// The claim's key.
    pub claim_id: String,
    /// How far it came.
    pub stage: Stage,
    /// Process groups that its plugin started, and how each is stopped.
    pub children: Vec<(Process, Stop)>,
}

/// Fold a journal into the claims that are not done, in the order of the claims.
pub fn fold(entries: impl IntoIterator<Item = Entry>) -> Vec<Known> {
    let mut open: BTreeMap<String, Known> = BTreeMap::new();
    for Entry { fact, .. } in entries {
        let mut of = |wanted: ExecutionId, change: &mut dyn FnMut(&mut Known)| {
            open.values_mut().filter(|known| known.execution == Some(wanted)).for_each(change);
        };
        match fact {
            Fact::Claiming { job, claim_id } => {
                let (execution, stage, children) = (None, Stage::Claiming, Vec::new());
                let known = Known { job, execution, claim_id: claim_id.clone(), stage, children };
                open.insert(claim_id, known);
            }
            Fact::Claimed { execution, claim_id, .. } => {
                if let Some(known) = open.get_mut(&claim_id) {
                    (known.execution, known.stage) = (Some(execution), Stage::Claimed);
                }
            }
            Fact::Refused { execution, refused_by: by, rule, detail, .. } => {
                let stage = Stage::Refused { by, rule, detail };
                of(execution, &mut |known| known.stage = stage.clone());
            }
            Fact::Spawning { execution, .. } => {
                of(execution, &mut |known| known.stage = Stage::Spawning);
            }
            Fact::Spawned { execution, process, .. } => {
                of(execution, &mut |known| known.stage = Stage::Spawned(process.clone()));
            }
            Fact::ChildStarted { execution, process, stop } => {
                let child = (process, stop);
                of(execution, &mut |known| known.children.push(child.clone()));
            }
            Fact::Exited { execution, exit, .. } => {
                of(execution, &mut |known| known.stage = Stage::Exited(exit.clone()));
            }
            Fact::ClaimRejected { claim_id, .. } | Fact::Abandoned { claim_id, .. } => {
                open.remove(&claim_id);
            }
            Fact::Reported { execution, .. } => {
                open.retain(|_, known| known.execution != Some(execution));
            }
            Fact::Opened { .. }
            | Fact::ChainStarted { .. }
            | Fact::SessionOpened { .. }
            | Fact::Verified { .. }
            | Fact::StatementSigned { .. }
            | Fact::StatementRejected { .. }
            | Fact::LogRejected { .. }
            | Fact::ApprovalRequested { .. }
            | Fact::ApprovalDecided { .. }
            | Fact::Cancelling { .. }
            | Fact::Checkpoint { .. }
            | Fact::EpochAccepted { .. }
            | Fact::Rekeyed { .. }
            | Fact::StateSeen { .. }
            | Fact::StateAccepted { .. }
            | Fact::StateResolving { .. }
            | Fact::StateResolved { .. }
            | Fact::Disabled { .. }
            | Fact::Enabled {}
            | Fact::PolicyChosen { .. }
            | Fact::CarriedOver { .. }
            | Fact::Unknown => {}
        }
    }
    // Claim ids are ULIDs: their order is that of the claims.
    open.into_values().collect()
}

/// The claims of this agent's journal that are not done.
pub fn open_ends(agent: &Agent) -> io::Result<Vec<Known>> {
    Ok(fold(agent.journal.read()?))
}

impl Known {
    /// Present state of the execution. On an error it is unknown whether the shim runs: ask again.
    pub fn state(&self, data: &Data) -> io::Result<ExecutionState> {
        Ok(match &self.stage {
            Stage::Claiming | Stage::Claimed => ExecutionState::NeverSpawned,
            Stage::Refused { .. } | Stage::Exited(_) => ExecutionState::Exited,
            Stage::Spawned(process) if process.is_alive()? => ExecutionState::Alive,
            // The last word is on disk before the journal says that it is.
            Stage::Spawning | Stage::Spawned(_) if self.last_word(data).is_some() => {
                ExecutionState::Exited
            }
            Stage::Spawning | Stage::Spawned(_) => ExecutionState::Unknown,
        })
    }

    /// What the shim said last, if it came so far.
    pub fn last_word(&self, data: &Data) -> Option<Finished> {
        let text = fs::read(data.job(self.execution?).reports()).ok()?;
        // What has no end yet was not said: the reports of it are read in the same way.
        let whole = text.iter().rposition(|byte| *byte == b'\n')?;
        let lines = text[..whole].split(|byte| *byte == b'\n');
        lines.filter_map(|line| serde_json::from_slice::<Report>(line).ok()).find_map(|report| {
            match report.body {
                ReportBody::Finished(last) => Some(last),
                ReportBody::Started {}
                | ReportBody::Phase { .. }
                | ReportBody::Plan(_)
                | ReportBody::Outputs { .. }
                | ReportBody::State(_)
                | ReportBody::Artifact(_)
                | ReportBody::Refused { .. }
                | ReportBody::CancelProgress { .. } => None,
            }
        })
    }

    /// Its shim, which leads the session that its children are in.
    pub(super) fn shim(&self) -> Option<&Process> {
        match &self.stage {
            Stage::Spawned(shim) => Some(shim),
            Stage::Claiming
            | Stage::Claimed
            | Stage::Refused { .. }
            | Stage::Spawning
            | Stage::Exited(_) => None,
        }
    }

    /// Whether anything that its plugin started still lives.
    pub fn has_children(&self) -> bool {
        self.children.iter().any(|(child, _)| child.group_lives(self.shim()).unwrap_or(true))
    }

    /// What a session says of it.
    pub fn entry(&self, data: &Data) -> io::Result<JournalEntry> {
        let log = self.execution.and_then(|execution| fs::metadata(data.job(execution).log()).ok());
        let exit = match &self.stage {
            Stage::Exited(exit) => Some(exit.clone()),
            Stage::Refused { .. } => Some(Exit {
                outcome: Outcome::Failed,
                code: None,
                signal: None,
                reason: Some(FailureReason::Refused),
            }),
            Stage::Claiming | Stage::Claimed | Stage::Spawning | Stage::Spawned(_) => {
                self.last_word(data).map(|last| Exit {
                    outcome: last.outcome,
                    code: last.exit_code,
                    signal: last.signal,
                    reason: last.reason,
                })
            }
        };
        Ok(JournalEntry {
            job: self.job,
            execution: self.execution,
            claim_id: self.claim_id.clone(),
            state: self.state(data)?,
            log_len: log.map_or(0, |log| log.len()),
            exit,
        })
    }
}

/// Whether a shim that was given up lives after all: it said who it is when nobody waited for it any more.
pub fn began_late(agent: &Agent, wanted: ExecutionId) -> bool {
    let entries = agent.journal.read().unwrap_or_default();
    entries.into_iter().any(|entry| {
        let Fact::Spawned { execution, process, .. } = entry.fact else { return false };
        execution == wanted && process.may_be_alive()
    })
}

/// Claims that were given up, in the state that they had before.
fn given_up(entries: Vec<Entry>) -> Vec<Known> {
    let is_abandoned = |entry: &Entry| matches!(entry.fact, Fact::Abandoned { .. });
    let (abandoned, others): (Vec<_>, Vec<_>) = entries.into_iter().partition(is_abandoned);
    let given_up: BTreeSet<_> =
        abandoned.iter().filter_map(|entry| entry.fact.claim_id()).collect();
    let is_given_up = |known: &Known| given_up.contains(known.claim_id.as_str());
    fold(others).into_iter().filter(is_given_up).collect()
}

/// Claims that were given up, of whose children some may live: a former agent may have ended before they did.
pub fn left_behind(entries: Vec<Entry>) -> Vec<Known> {
    let orphaned = |known: &Known| match &known.stage {
        // One that cannot be looked at is not given up yet: it is looked for again.
        Stage::Spawned(shim) => !shim.may_be_alive(),
        Stage::Claiming
        | Stage::Claimed
        | Stage::Refused { .. }
        | Stage::Spawning
        | Stage::Exited(_) => false,
    };
    given_up(entries).into_iter().filter(orphaned).collect()
}

/// Claims whose files and journal entries are still needed: those that are not done, and those that were given up while
/// something of them runs or may begin late.
pub(super) fn needed(entries: Vec<Entry>, ending: &BTreeSet<ExecutionId>) -> Vec<Known> {
    let may_begin = host::now() - LATE;
    let late: BTreeSet<_> = entries
        .iter()
        .filter(|entry| matches!(entry.fact, Fact::Spawning { .. }) && entry.at > may_begin)
        .filter_map(|entry| entry.fact.execution())
        .collect();
    let is_ending = |known: &Known| known.execution.is_some_and(|of| ending.contains(&of));
    let runs = |known: &Known| match &known.stage {
        Stage::Spawned(shim) => {
            is_ending(known)
                || shim.may_be_alive()
                || known.has_children()
                || shim.session_lives().unwrap_or(true)
        }
        Stage::Spawning => known.execution.is_some_and(|execution| late.contains(&execution)),
        Stage::Claiming | Stage::Claimed | Stage::Refused { .. } | Stage::Exited(_) => false,
    };
    let mut needed = fold(entries.clone());
    needed.extend(given_up(entries).into_iter().filter(runs));
    needed
}

/// End what former agents have given up and not seen the end of.
pub fn end_left_behind(agent: &Arc<Agent>) {
    let entries = agent.journal.read().unwrap_or_default();
    left_behind(entries).iter().for_each(|known| orphans::end(agent, known));
}

/// A shim that the former agent started a moment ago may not have said so yet.
pub async fn settle(agent: &Agent) {
    for _ in 0..20 {
        let known = open_ends(agent).unwrap_or_default();
        if known.iter().all(|known| known.stage != Stage::Spawning) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[cfg(test)]
mod tests;
