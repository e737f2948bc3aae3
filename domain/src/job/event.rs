//! Events of a job. The log stores their names: add events, never rename them.
use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use super::{
    FailureReason, FinalizedLog, LossReason, Outcome, PlanReport, Resolution, SignedResult, Work,
};
use crate::{
    actor::Actor,
    artifact::Artifact,
    decider::{Event, Timestamp},
    ids::{ExecutionId, RunnerId, SessionId},
    outputs::Outputs,
    state_version::StateVersion,
};

/// Event of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum JobEvent {
    /// The job waits for a runner.
    Queued(Work),
    /// A runner claimed the job.
    Claimed {
        /// Execution of this attempt, whose id is the fencing token.
        execution: ExecutionId,
        /// Runner that claimed the job.
        runner: RunnerId,
        /// Session of the runner.
        session: SessionId,
        /// Claim id that the runner chose.
        claim_id: String,
        /// Number of the attempt, from 1.
        attempt: u32,
        /// Time by which the execution must have ended.
        #[serde(with = "crate::moment")]
        #[cfg_attr(test, schemars(with = "Timestamp"))]
        #[bincode(with_serde)]
        deadline: Timestamp,
    },
    /// The child process runs.
    Started {
        /// Execution that reports.
        execution: ExecutionId,
        /// Sequence number among its reports.
        seq: u64,
    },
    /// The work entered a phase.
    PhaseEntered {
        /// Execution that reports.
        execution: ExecutionId,
        /// Sequence number among its reports.
        seq: u64,
        /// Name of the phase.
        phase: String,
    },
    /// The runner reported a plan: the changes that an apply would make.
    PlanProduced {
        /// Execution that reports.
        execution: ExecutionId,
        /// Sequence number among its reports.
        seq: u64,
        /// The plan.
        plan: PlanReport,
    },
    /// The runner reported outputs that other components may read.
    OutputsReported {
        /// Execution that reports.
        execution: ExecutionId,
        /// Sequence number among its reports.
        seq: u64,
        /// Output values by name.
        outputs: Outputs,
    },
    /// The runner reported the state that a plan was made from, or that an apply wrote.
    StateReported {
        /// Execution that reports.
        execution: ExecutionId,
        /// Sequence number among its reports.
        seq: u64,
        /// Lineage and serial of the state.
        state: StateVersion,
    },
    /// The runner pushed the artifact of a build.
    ArtifactPushed {
        /// Execution that reports.
        execution: ExecutionId,
        /// Sequence number among its reports.
        seq: u64,
        /// The artifact.
        artifact: Artifact,
    },
    /// The runner is disconnected.
    Disconnected {
        /// Execution of the runner.
        execution: ExecutionId,
    },
    /// The runner reconnected and continues the job.
    Reattached {
        /// Execution of the runner.
        execution: ExecutionId,
    },
    /// The job waits for a runner again. The loss reason is absent after a manual resolution.
    Requeued {
        /// Execution that is over.
        execution: ExecutionId,
        /// Number of the next attempt.
        attempt: u32,
        /// Reason to give up the former attempt.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        loss_reason: Option<LossReason>,
    },
    /// The outcome of the execution is unknown and must be resolved.
    OutcomeUnknown {
        /// Execution with the unknown outcome.
        execution: ExecutionId,
        /// Reason to give up the attempt.
        loss_reason: LossReason,
    },
    /// An actor resolved the unknown outcome. The next event records the consequence.
    OutcomeResolved {
        /// Execution with the unknown outcome.
        execution: ExecutionId,
        /// Actor that decided.
        by: Actor,
        /// Resolution of the outcome.
        resolution: Resolution,
        /// Reason that was given.
        reason: String,
    },
    /// An actor requested the cancellation of the job.
    CancelRequested {
        /// Actor of the request.
        by: Actor,
        /// Reason that was given.
        reason: String,
        /// True to shorten the grace period.
        force: bool,
    },
    /// The runner did not confirm the cancel in time. It may still do so.
    CancelUnconfirmed {
        /// Execution of the runner.
        execution: ExecutionId,
    },
    /// The work succeeded. The sequence number is absent if an actor resolved the outcome.
    Succeeded {
        /// Execution that succeeded.
        execution: ExecutionId,
        /// Sequence number among its reports.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seq: Option<u64>,
        /// Exit code of the child process, if there was one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        /// Result that the runner signed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signed: Option<SignedResult>,
        /// Processes of the job that could not be ended, as `name (pid 7)`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        not_ended: Vec<String>,
    },
    /// The work failed. The execution is absent if no runner claimed the job in time.
    Failed {
        /// Execution that failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        execution: Option<ExecutionId>,
        /// Sequence number among its reports.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seq: Option<u64>,
        /// Kind of failure.
        reason: FailureReason,
        /// Explanation for users.
        detail: String,
        /// Exit code of the child process, if it exited.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        /// Signal that ended the child process, if one did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
        /// Result that the runner signed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signed: Option<SignedResult>,
        /// Processes of the job that could not be ended, as `name (pid 7)`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        not_ended: Vec<String>,
    },
    /// The job was cancelled on request. The execution is absent if no runner had claimed the job.
    Cancelled {
        /// Execution that was cancelled.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        execution: Option<ExecutionId>,
        /// Sequence number among its reports.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seq: Option<u64>,
        /// True if the runner had to kill the child process.
        forced: bool,
        /// Result that the runner signed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signed: Option<SignedResult>,
        /// Processes of the job that could not be ended, as `name (pid 7)`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        not_ended: Vec<String>,
    },
    /// The server gave up on the job: its outcome is unknown, and giving up is safe.
    Lost {
        /// Execution that was lost.
        execution: ExecutionId,
        /// Reason to give up the attempt.
        loss_reason: LossReason,
    },
    /// The log of an execution was finalized.
    LogFinalized(FinalizedLog),
    /// The runner sent other bytes for a part of the log that the server has stored. The stored
    /// bytes do not change. Recorded once per execution.
    LogDiverged {
        /// Execution of the log.
        execution: ExecutionId,
        /// Offset of the first byte of the rejected chunk.
        offset_bytes: u64,
    },
    /// The runner reported a result after the end of the job, or after its execution had lost the
    /// job. The result has no effect. Recorded once per execution.
    LateResultReported {
        /// Execution that reports.
        execution: ExecutionId,
        /// Sequence number among its reports.
        seq: u64,
        /// Outcome that the runner reported.
        outcome: Outcome,
        /// Kind of failure.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<FailureReason>,
        /// Explanation for users.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
        /// Exit code of the child process, if it exited.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        /// Signal that ended the child process, if one did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
        /// Result that the runner signed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signed: Option<SignedResult>,
        /// Processes of the job that could not be ended, as `name (pid 7)`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        not_ended: Vec<String>,
    },
}

impl JobEvent {
    /// Returns the event without its signature, for comparison: after a rekey, a runner signs the
    /// same report with another key.
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
            | JobEvent::LogFinalized(_)
            | JobEvent::LogDiverged { .. }
            | JobEvent::LateResultReported { .. } => None,
        }
    }

    /// Returns true if the event ends the job.
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
            JobEvent::LogFinalized(_) => "job.log_finalized",
            JobEvent::LogDiverged { .. } => "job.log_diverged",
            JobEvent::LateResultReported { .. } => "job.late_result_reported",
        }
    }

    fn version(&self) -> &'static str {
        "1"
    }
}
