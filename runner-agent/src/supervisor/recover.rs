//! Recovers the open claims of an earlier agent process from the journal.
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
    journal::{Entry, JournalEvent, Stop},
};

/// Time after the `spawning` entry of an abandoned claim in which its shim may still start.
const LATE_START_WINDOW: TimeDelta = TimeDelta::hours(1);

/// Progress of a claim.
#[derive(Debug, Clone, PartialEq)]
pub enum ClaimStage {
    /// The claim request may have been sent.
    Claiming,
    /// The server granted the claim.
    Claimed,
    /// The server granted the claim and the runner refused the job.
    Refused { by: RefusedBy, rule: String, detail: String },
    /// The agent was about to start the shim.
    Spawning,
    /// The shim started as this process.
    Spawned(Process),
    /// The journal has the result of the job.
    Exited(Exit),
}

/// Open claim: the journal has neither its report nor its abandonment.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenClaim {
    pub job: JobId,
    /// Execution of the job, once the claim was granted.
    pub execution: Option<ExecutionId>,
    /// Idempotency key of the claim.
    pub claim_id: String,
    pub stage: ClaimStage,
    /// Process groups that the plugin started, each with its stop signal and grace period.
    pub children: Vec<(Process, Stop)>,
}

/// Folds journal entries into the open claims, in the order of the claims.
pub fn fold(entries: impl IntoIterator<Item = Entry>) -> Vec<OpenClaim> {
    let mut open: BTreeMap<String, OpenClaim> = BTreeMap::new();
    for Entry { event, .. } in entries {
        let mut of = |execution_id: ExecutionId, change: &mut dyn FnMut(&mut OpenClaim)| {
            open.values_mut()
                .filter(|claim| claim.execution == Some(execution_id))
                .for_each(change);
        };
        match event {
            JournalEvent::Claiming { job, claim_id } => {
                let (execution, stage, children) = (None, ClaimStage::Claiming, Vec::new());
                let claim =
                    OpenClaim { job, execution, claim_id: claim_id.clone(), stage, children };
                open.insert(claim_id, claim);
            }
            JournalEvent::Claimed { execution, claim_id, .. } => {
                if let Some(claim) = open.get_mut(&claim_id) {
                    (claim.execution, claim.stage) = (Some(execution), ClaimStage::Claimed);
                }
            }
            JournalEvent::Refused { execution, refused_by: by, rule, detail, .. } => {
                let stage = ClaimStage::Refused { by, rule, detail };
                of(execution, &mut |claim| claim.stage = stage.clone());
            }
            JournalEvent::Spawning { execution, .. } => {
                of(execution, &mut |claim| claim.stage = ClaimStage::Spawning);
            }
            JournalEvent::Spawned { execution, process, .. } => {
                of(execution, &mut |claim| claim.stage = ClaimStage::Spawned(process.clone()));
            }
            JournalEvent::ChildStarted { execution, process, stop } => {
                let child = (process, stop);
                of(execution, &mut |claim| claim.children.push(child.clone()));
            }
            JournalEvent::Exited { execution, exit, .. } => {
                of(execution, &mut |claim| claim.stage = ClaimStage::Exited(exit.clone()));
            }
            JournalEvent::ClaimRejected { claim_id, .. }
            | JournalEvent::Abandoned { claim_id, .. } => {
                open.remove(&claim_id);
            }
            JournalEvent::Reported { execution, .. } => {
                open.retain(|_, claim| claim.execution != Some(execution));
            }
            JournalEvent::Opened { .. }
            | JournalEvent::ChainStarted { .. }
            | JournalEvent::SessionOpened { .. }
            | JournalEvent::Verified { .. }
            | JournalEvent::StatementSigned { .. }
            | JournalEvent::StatementRejected { .. }
            | JournalEvent::LogRejected { .. }
            | JournalEvent::ApprovalRequested { .. }
            | JournalEvent::ApprovalDecided { .. }
            | JournalEvent::Isolated { .. }
            | JournalEvent::Cancelling { .. }
            | JournalEvent::Checkpoint { .. }
            | JournalEvent::EpochAccepted { .. }
            | JournalEvent::Rekeyed { .. }
            | JournalEvent::StateSeen { .. }
            | JournalEvent::StateAccepted { .. }
            | JournalEvent::StateResolving { .. }
            | JournalEvent::StateResolved { .. }
            | JournalEvent::StateUnproved { .. }
            | JournalEvent::Disabled { .. }
            | JournalEvent::Enabled {}
            | JournalEvent::PolicyChosen { .. }
            | JournalEvent::PublishersTrusted { .. }
            | JournalEvent::CarriedOver { .. }
            | JournalEvent::Unknown => {}
        }
    }
    // Claim ids are ULIDs, so the map is in the order of the claims.
    open.into_values().collect()
}

/// Returns the open claims of this agent's journal.
pub fn open_claims(agent: &Agent) -> io::Result<Vec<OpenClaim>> {
    Ok(fold(agent.journal.read()?))
}

impl OpenClaim {
    /// Returns the current state of the execution. An error means that the shim could not be
    /// inspected: check again.
    pub fn state(&self, data: &Data) -> io::Result<ExecutionState> {
        Ok(match &self.stage {
            ClaimStage::Claiming | ClaimStage::Claimed => ExecutionState::NeverSpawned,
            ClaimStage::Refused { .. } | ClaimStage::Exited(_) => ExecutionState::Exited,
            ClaimStage::Spawned(process) if process.is_alive()? => ExecutionState::Alive,
            // The shim writes its final report before it writes the journal entry.
            ClaimStage::Spawning | ClaimStage::Spawned(_) if self.final_report(data).is_some() => {
                ExecutionState::Exited
            }
            ClaimStage::Spawning | ClaimStage::Spawned(_) => ExecutionState::Unknown,
        })
    }

    /// Returns the shim's final report, if it wrote one.
    pub fn final_report(&self, data: &Data) -> Option<Finished> {
        let text = fs::read(data.job(self.execution?).reports()).ok()?;
        // A line without a newline is incomplete. `ReportQueue::read` ignores it as well.
        let complete = text.iter().rposition(|byte| *byte == b'\n')?;
        let lines = text[..complete].split(|byte| *byte == b'\n');
        lines.filter_map(|line| serde_json::from_slice::<Report>(line).ok()).find_map(|report| {
            match report.body {
                ReportBody::Finished(last) => Some(last),
                ReportBody::Started { .. }
                | ReportBody::Phase { .. }
                | ReportBody::Plan(_)
                | ReportBody::Outputs { .. }
                | ReportBody::State(_)
                | ReportBody::Artifact(_)
                | ReportBody::Checks { .. }
                | ReportBody::Refused { .. }
                | ReportBody::CancelProgress { .. } => None,
            }
        })
    }

    /// Returns the shim of the claim, which leads the session of the children.
    pub(super) fn shim(&self) -> Option<&Process> {
        match &self.stage {
            ClaimStage::Spawned(shim) => Some(shim),
            ClaimStage::Claiming
            | ClaimStage::Claimed
            | ClaimStage::Refused { .. }
            | ClaimStage::Spawning
            | ClaimStage::Exited(_) => None,
        }
    }

    /// Returns whether a child's process group has members. A group that cannot be inspected counts
    /// as alive.
    pub fn has_children(&self) -> bool {
        self.children.iter().any(|(child, _)| child.group_lives(self.shim()).unwrap_or(true))
    }

    /// Returns the entry of this claim in a session request.
    pub fn entry(&self, data: &Data) -> io::Result<JournalEntry> {
        let log = self.execution.and_then(|execution| fs::metadata(data.job(execution).log()).ok());
        let exit = match &self.stage {
            ClaimStage::Exited(exit) => Some(exit.clone()),
            ClaimStage::Refused { .. } => Some(Exit {
                outcome: Outcome::Failed,
                code: None,
                signal: None,
                reason: Some(FailureReason::Refused),
            }),
            ClaimStage::Claiming
            | ClaimStage::Claimed
            | ClaimStage::Spawning
            | ClaimStage::Spawned(_) => self.final_report(data).map(|last| Exit {
                outcome: last.outcome,
                code: last.exit_code,
                signal: last.signal,
                reason: last.reason,
            }),
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

/// Returns whether the shim of an abandoned execution may run. A slow shim can write its `spawned`
/// entry after the agent abandoned the claim.
pub fn started_late(agent: &Agent, execution_id: ExecutionId) -> bool {
    let entries = agent.journal.read().unwrap_or_default();
    entries.into_iter().any(|entry| {
        let JournalEvent::Spawned { execution, process, .. } = entry.event else { return false };
        execution == execution_id && process.may_be_alive()
    })
}

/// Returns the abandoned claims, each in its last state before the abandonment.
fn abandoned_claims(entries: Vec<Entry>) -> Vec<OpenClaim> {
    let is_abandoned = |entry: &Entry| matches!(entry.event, JournalEvent::Abandoned { .. });
    let (abandonments, others): (Vec<_>, Vec<_>) = entries.into_iter().partition(is_abandoned);
    let claim_ids: BTreeSet<_> =
        abandonments.iter().filter_map(|entry| entry.event.claim_id()).collect();
    let is_of_abandoned_claim = |claim: &OpenClaim| claim_ids.contains(claim.claim_id.as_str());
    fold(others).into_iter().filter(is_of_abandoned_claim).collect()
}

/// Returns the abandoned claims whose shim has ended. Their children may still run if an earlier
/// agent exited first.
pub fn abandoned_without_shim(entries: Vec<Entry>) -> Vec<OpenClaim> {
    let is_orphaned = |claim: &OpenClaim| match &claim.stage {
        // A shim that cannot be inspected may be alive. A later call checks it again.
        ClaimStage::Spawned(shim) => !shim.may_be_alive(),
        ClaimStage::Claiming
        | ClaimStage::Claimed
        | ClaimStage::Refused { .. }
        | ClaimStage::Spawning
        | ClaimStage::Exited(_) => false,
    };
    abandoned_claims(entries).into_iter().filter(is_orphaned).collect()
}

/// Returns the claims whose files and journal entries must be kept. These are the open claims, and
/// abandoned claims that have running processes or whose shim may still start.
pub(super) fn retained_claims(
    entries: Vec<Entry>,
    ending: &BTreeSet<ExecutionId>,
) -> Vec<OpenClaim> {
    let earliest_start = host::now() - LATE_START_WINDOW;
    let late: BTreeSet<_> = entries
        .iter()
        .filter(|entry| {
            matches!(entry.event, JournalEvent::Spawning { .. }) && entry.at > earliest_start
        })
        .filter_map(|entry| entry.event.execution())
        .collect();
    let is_ending = |claim: &OpenClaim| claim.execution.is_some_and(|of| ending.contains(&of));
    let must_be_kept = |claim: &OpenClaim| match &claim.stage {
        ClaimStage::Spawned(shim) => {
            is_ending(claim)
                || shim.may_be_alive()
                || claim.has_children()
                || shim.session_lives().unwrap_or(true)
        }
        ClaimStage::Spawning => claim.execution.is_some_and(|execution| late.contains(&execution)),
        ClaimStage::Claiming
        | ClaimStage::Claimed
        | ClaimStage::Refused { .. }
        | ClaimStage::Exited(_) => false,
    };
    let mut needed = fold(entries.clone());
    needed.extend(abandoned_claims(entries).into_iter().filter(must_be_kept));
    needed
}

/// Ends the processes of claims that earlier agents abandoned.
pub fn end_abandoned(agent: &Arc<Agent>) {
    let entries = agent.journal.read().unwrap_or_default();
    abandoned_without_shim(entries).iter().for_each(|claim| orphans::end(agent, claim));
}

/// Waits up to 2 seconds for shims of an earlier agent that have not written their `spawned` entry
/// yet.
pub async fn wait_for_spawned(agent: &Agent) {
    for _ in 0..20 {
        let claims = open_claims(agent).unwrap_or_default();
        if claims.iter().all(|claim| claim.stage != ClaimStage::Spawning) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[cfg(test)]
mod tests;
