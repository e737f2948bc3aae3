//! What can have happened to a job. The names are on disk: add, never rename.
use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use super::{FailureReason, LossReason, Outcome, PlanReport, Resolution, SealedLog, Signed, Work};
use crate::{
    actor::Actor,
    artifact::Artifact,
    decider::{Event, Timestamp},
    ids::{ExecutionId, RunnerId, SessionId},
    outputs::Outputs,
    state_version::StateVersion,
};

/// A fact about a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum JobEvent {
    /// It waits for a runner.
    Queued(Work),
    /// A runner has it.
    Claimed {
        /// The attempt, and the fencing token that proves it.
        execution: ExecutionId,
        /// Who has it.
        runner: RunnerId,
        /// In which life.
        session: SessionId,
        /// The runner's own name for the claim.
        claim_id: String,
        /// 1 first.
        attempt: u32,
        /// It must be over by then.
        #[serde(with = "crate::moment")]
        #[cfg_attr(test, schemars(with = "Timestamp"))]
        #[bincode(with_serde)]
        deadline: Timestamp,
    },
    /// The child runs.
    Started {
        /// Which attempt.
        execution: ExecutionId,
        /// The place among its reports.
        seq: u64,
    },
    /// The work is in another phase.
    PhaseEntered {
        /// Which attempt.
        execution: ExecutionId,
        /// The place among its reports.
        seq: u64,
        /// Its name.
        phase: String,
    },
    /// What an apply would change.
    PlanProduced {
        /// Which attempt.
        execution: ExecutionId,
        /// The place among its reports.
        seq: u64,
        /// The plan.
        plan: PlanReport,
    },
    /// What the work gives to others.
    OutputsReported {
        /// Which attempt.
        execution: ExecutionId,
        /// The place among its reports.
        seq: u64,
        /// By name.
        outputs: Outputs,
    },
    /// State that a plan was made from, or that an apply wrote.
    StateReported {
        /// Which attempt.
        execution: ExecutionId,
        /// The place among its reports.
        seq: u64,
        /// The state.
        state: StateVersion,
    },
    /// What a build made.
    ArtifactPushed {
        /// Which attempt.
        execution: ExecutionId,
        /// The place among its reports.
        seq: u64,
        /// The artifact.
        artifact: Artifact,
    },
    /// No word from its runner.
    Disconnected {
        /// Which attempt.
        execution: ExecutionId,
    },
    /// Its runner is back, and goes on with it.
    Reattached {
        /// Which attempt.
        execution: ExecutionId,
    },
    /// It waits for a runner again. Without a loss reason after a manual resolution.
    Requeued {
        /// The attempt that is over.
        execution: ExecutionId,
        /// The attempt to come.
        attempt: u32,
        /// Reason to give up the former attempt.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        loss_reason: Option<LossReason>,
    },
    /// Nobody can say what became of it, and somebody must decide.
    OutcomeUnknown {
        /// Which attempt.
        execution: ExecutionId,
        /// Reason to give up the attempt.
        loss_reason: LossReason,
    },
    /// Who decided and why; what follows from it is the next event.
    OutcomeResolved {
        /// Which attempt.
        execution: ExecutionId,
        /// Who decided.
        by: Actor,
        /// What became of it.
        verdict: Resolution,
        /// Why.
        reason: String,
    },
    /// Somebody wants it to end.
    CancelRequested {
        /// Who.
        by: Actor,
        /// Why.
        reason: String,
        /// Whether to leave the work no time to end by itself.
        force: bool,
    },
    /// Its runner did not confirm the cancel in time; it may still do so.
    CancelUnconfirmed {
        /// Which attempt.
        execution: ExecutionId,
    },
    /// It did what it was for. Without a place among the reports when somebody decided so.
    Succeeded {
        /// Which attempt.
        execution: ExecutionId,
        /// The place among its reports.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seq: Option<u64>,
        /// Of the child, where there was one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        /// Its runner's own word.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signed: Option<Signed>,
        /// Processes of the job that could not be ended: `name (pid 7)`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        not_ended: Vec<String>,
    },
    /// It did not. Without an execution when nobody took it in time.
    Failed {
        /// Which attempt.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        execution: Option<ExecutionId>,
        /// The place among its reports.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seq: Option<u64>,
        /// What kind of failure.
        reason: FailureReason,
        /// In words.
        detail: String,
        /// Of the child, if it exited.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        /// That killed the child, if one did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
        /// Its runner's own word.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signed: Option<Signed>,
        /// Processes of the job that could not be ended: `name (pid 7)`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        not_ended: Vec<String>,
    },
    /// Somebody asked, and it ended. Without an execution when nobody had taken it.
    Cancelled {
        /// Which attempt.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        execution: Option<ExecutionId>,
        /// The place among its reports.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seq: Option<u64>,
        /// Whether it had to be killed.
        forced: bool,
        /// Its runner's own word.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signed: Option<Signed>,
        /// Processes of the job that could not be ended: `name (pid 7)`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        not_ended: Vec<String>,
    },
    /// Nobody can say what became of it, and it was safe to give up.
    Lost {
        /// Which attempt.
        execution: ExecutionId,
        /// Reason to give up the attempt.
        loss_reason: LossReason,
    },
    /// Nothing is added to the log of this execution any more.
    LogSealed(SealedLog),
    /// Its runner sent other bytes for a place of the log that is kept already. What is kept stays; said once.
    LogDiverged {
        /// Which attempt.
        execution: ExecutionId,
        /// The first byte of what it sent.
        offset_bytes: u64,
    },
    /// Its runner said how it ended when the job was over, or another attempt's. It changes nothing; said once.
    LateResultReported {
        /// Which attempt.
        execution: ExecutionId,
        /// The place among its reports.
        seq: u64,
        /// How it ended, as its runner says.
        outcome: Outcome,
        /// What kind of failure.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<FailureReason>,
        /// In words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
        /// Of the child, if it exited.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        /// That killed the child, if one did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
        /// Its runner's own word.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signed: Option<Signed>,
        /// Processes of the job that could not be ended: `name (pid 7)`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        not_ended: Vec<String>,
    },
}

impl JobEvent {
    /// What it says, whoever vouches for it: a runner that has a new key signs the same word again.
    pub(super) fn unsigned(&self) -> JobEvent {
        let mut fact = self.clone();
        if let JobEvent::Succeeded { signed, .. }
        | JobEvent::Failed { signed, .. }
        | JobEvent::Cancelled { signed, .. }
        | JobEvent::LateResultReported { signed, .. } = &mut fact
        {
            *signed = None;
        }
        fact
    }

    /// Outcome that the job has with this event.
    pub fn outcome(&self) -> Option<Outcome> {
        match self {
            JobEvent::Succeeded { .. } => Some(Outcome::Succeeded),
            JobEvent::Failed { .. } => Some(Outcome::Failed),
            JobEvent::Cancelled { .. } => Some(Outcome::Cancelled),
            JobEvent::Lost { .. } => Some(Outcome::Lost),
            JobEvent::Queued(_)
            | JobEvent::Claimed { .. }
            | JobEvent::Started { .. }
            | JobEvent::PhaseEntered { .. }
            | JobEvent::PlanProduced { .. }
            | JobEvent::OutputsReported { .. }
            | JobEvent::StateReported { .. }
            | JobEvent::ArtifactPushed { .. }
            | JobEvent::Disconnected { .. }
            | JobEvent::Reattached { .. }
            | JobEvent::Requeued { .. }
            | JobEvent::OutcomeUnknown { .. }
            | JobEvent::OutcomeResolved { .. }
            | JobEvent::CancelRequested { .. }
            | JobEvent::CancelUnconfirmed { .. }
            | JobEvent::LogSealed(_)
            | JobEvent::LogDiverged { .. }
            | JobEvent::LateResultReported { .. } => None,
        }
    }

    /// Whether the job is over with this event.
    pub fn is_end(&self) -> bool {
        self.outcome().is_some()
    }
}

impl Event for JobEvent {
    fn name(&self) -> &'static str {
        match self {
            JobEvent::Queued(_) => "job.queued",
            JobEvent::Claimed { .. } => "job.claimed",
            JobEvent::Started { .. } => "job.started",
            JobEvent::PhaseEntered { .. } => "job.phase_entered",
            JobEvent::PlanProduced { .. } => "job.plan_produced",
            JobEvent::OutputsReported { .. } => "job.outputs_reported",
            JobEvent::StateReported { .. } => "job.state_reported",
            JobEvent::ArtifactPushed { .. } => "job.artifact_pushed",
            JobEvent::Disconnected { .. } => "job.disconnected",
            JobEvent::Reattached { .. } => "job.reattached",
            JobEvent::Requeued { .. } => "job.requeued",
            JobEvent::OutcomeUnknown { .. } => "job.outcome_unknown",
            JobEvent::OutcomeResolved { .. } => "job.outcome_resolved",
            JobEvent::CancelRequested { .. } => "job.cancel_requested",
            JobEvent::CancelUnconfirmed { .. } => "job.cancel_unconfirmed",
            JobEvent::Succeeded { .. } => "job.succeeded",
            JobEvent::Failed { .. } => "job.failed",
            JobEvent::Cancelled { .. } => "job.cancelled",
            JobEvent::Lost { .. } => "job.lost",
            JobEvent::LogSealed(_) => "job.log_sealed",
            JobEvent::LogDiverged { .. } => "job.log_diverged",
            JobEvent::LateResultReported { .. } => "job.late_result_reported",
        }
    }

    fn version(&self) -> &'static str {
        "1"
    }
}
