//! Events of a job. Their names and payloads are stored: from the first release on, add and never rename.
use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use super::{FailureReason, FinalizedLog, Outcome, PlanReport, Proof, Signed, Verdict, Work};
use crate::{
    actor::Actor,
    artifact::Artifact,
    decider::{Event, Timestamp},
    ids::{ExecutionId, RunnerId, SessionId},
    outputs::Outputs,
    state_version::StateVersion,
};

/// An event of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum JobEvent {
    /// The job waits for a runner.
    Queued(Work),
    /// A runner claimed the job.
    Claimed {
        /// The execution: with the log's epoch, the fencing token of the claim.
        execution: ExecutionId,
        /// The runner.
        runner: RunnerId,
        /// Session of the runner.
        session: SessionId,
        /// Idempotency key of the claim, chosen by the runner.
        claim_id: String,
        /// Number of the attempt, from 1.
        attempt: u32,
        /// Time by which the execution must end.
        #[serde(with = "crate::moment")]
        #[cfg_attr(test, schemars(with = "Timestamp"))]
        #[bincode(with_serde)]
        deadline: Timestamp,
    },
    /// The child process started.
    Started {
        /// The execution.
        execution: ExecutionId,
        /// Number of the report within the execution, from 1.
        seq: u64,
    },
    /// The execution entered another phase.
    PhaseEntered {
        /// The execution.
        execution: ExecutionId,
        /// Number of the report within the execution, from 1.
        seq: u64,
        /// Name of the phase.
        phase: String,
    },
    /// The runner reported a plan.
    PlanProduced {
        /// The execution.
        execution: ExecutionId,
        /// Number of the report within the execution, from 1.
        seq: u64,
        /// The plan.
        plan: PlanReport,
    },
    /// The runner reported outputs.
    OutputsReported {
        /// The execution.
        execution: ExecutionId,
        /// Number of the report within the execution, from 1.
        seq: u64,
        /// Values by output name.
        outputs: Outputs,
    },
    /// The runner reported the state that a plan was made from or an apply wrote.
    StateReported {
        /// The execution.
        execution: ExecutionId,
        /// Number of the report within the execution, from 1.
        seq: u64,
        /// The state.
        state: StateVersion,
    },
    /// The runner pushed the artifact of a build.
    ArtifactPushed {
        /// The execution.
        execution: ExecutionId,
        /// Number of the report within the execution, from 1.
        seq: u64,
        /// The artifact.
        artifact: Artifact,
    },
    /// The runner of the execution is disconnected.
    Disconnected {
        /// The execution.
        execution: ExecutionId,
    },
    /// The runner reconnected and continues the execution.
    Reattached {
        /// The execution.
        execution: ExecutionId,
    },
    /// The job waits for a runner again. Without a loss reason, a resolution decided so.
    Requeued {
        /// The execution that ended.
        execution: ExecutionId,
        /// Number of the next attempt.
        attempt: u32,
        /// Reason for the loss of that execution.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        proof: Option<Proof>,
    },
    /// The outcome is unknown, and a user must resolve it.
    OutcomeUnknown {
        /// The execution.
        execution: ExecutionId,
        /// Reason for which the outcome is unknown.
        proof: Proof,
    },
    /// A user or policy resolved an unknown outcome. The next event has the consequence.
    OutcomeResolved {
        /// The execution.
        execution: ExecutionId,
        /// Principal that decided.
        by: Actor,
        /// The resolution.
        resolution: Verdict,
        /// Reason.
        reason: String,
    },
    /// Cancellation was requested.
    CancelRequested {
        /// Principal that asked.
        by: Actor,
        /// Reason.
        reason: String,
        /// Whether to kill the work without a grace period.
        force: bool,
    },
    /// The runner did not confirm the cancellation in time; it may still do so.
    CancelUnconfirmed {
        /// The execution.
        execution: ExecutionId,
    },
    /// The job succeeded. Without a report number, a resolution decided so.
    Succeeded {
        /// The execution.
        execution: ExecutionId,
        /// Number of the report within the execution, from 1.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seq: Option<u64>,
        /// Exit code of the child process, if there was one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        /// Statement that the runner signed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signed: Option<Signed>,
        /// Processes of the job that could not be ended, as `name (pid 7)`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        not_ended: Vec<String>,
    },
    /// The job failed. Without an execution, no runner claimed it in time.
    Failed {
        /// The execution.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        execution: Option<ExecutionId>,
        /// Number of the report within the execution, from 1.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seq: Option<u64>,
        /// Kind of failure.
        reason: FailureReason,
        /// Description of the failure.
        detail: String,
        /// Exit code of the child process, if it exited.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        /// Signal that killed the child process, if one did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
        /// Statement that the runner signed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signed: Option<Signed>,
        /// Processes of the job that could not be ended, as `name (pid 7)`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        not_ended: Vec<String>,
    },
    /// The job was cancelled. Without an execution, no runner had claimed it.
    Cancelled {
        /// The execution.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        execution: Option<ExecutionId>,
        /// Number of the report within the execution, from 1.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seq: Option<u64>,
        /// Whether it had to be killed.
        forced: bool,
        /// Statement that the runner signed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signed: Option<Signed>,
        /// Processes of the job that could not be ended, as `name (pid 7)`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        not_ended: Vec<String>,
    },
    /// The execution was lost, and its work is safe to abandon.
    Lost {
        /// The execution.
        execution: ExecutionId,
        /// Reason.
        proof: Proof,
    },
    /// The job log of an execution is complete, or nothing is added to it any more.
    LogFinalized(FinalizedLog),
    /// The runner sent different bytes for a stored part of the job log. The stored bytes stay; recorded once.
    LogDiverged {
        /// The execution.
        execution: ExecutionId,
        /// Offset of the first byte that it sent.
        offset_bytes: u64,
    },
    /// The runner reported a result after the job ended or moved to another attempt. It changes nothing; recorded once.
    LateResultReported {
        /// The execution.
        execution: ExecutionId,
        /// Number of the report within the execution, from 1.
        seq: u64,
        /// Outcome that the runner reported.
        outcome: Outcome,
        /// Kind of failure.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<FailureReason>,
        /// Description of the failure.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
        /// Exit code of the child process, if it exited.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        /// Signal that killed the child process, if one did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
        /// Statement that the runner signed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signed: Option<Signed>,
        /// Processes of the job that could not be ended, as `name (pid 7)`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        not_ended: Vec<String>,
    },
}

impl JobEvent {
    /// The event without its signature: a runner with a new key signs the same statement again.
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

    /// Whether the event ends the job.
    pub fn is_end(&self) -> bool {
        match self {
            JobEvent::Succeeded { .. }
            | JobEvent::Failed { .. }
            | JobEvent::Cancelled { .. }
            | JobEvent::Lost { .. } => true,
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
            | JobEvent::LogFinalized(_)
            | JobEvent::LogDiverged { .. }
            | JobEvent::LateResultReported { .. } => false,
        }
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
            JobEvent::LogFinalized(_) => "job.log_finalized",
            JobEvent::LogDiverged { .. } => "job.log_diverged",
            JobEvent::LateResultReported { .. } => "job.late_result_reported",
        }
    }

    fn version(&self) -> &'static str {
        "1"
    }
}
