//! Events of a job. The log stores their names: add events, never rename them.
use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use super::{
    FailureReason, FinalizedLog, LossReason, Outcome, PlanReport, Resolution, SignedResult, Work,
};
use crate::{
    actor::Actor,
    artifact::Artifact,
    check::Check,
    decider::{Event, Timestamp},
    ids::{ExecutionId, RunnerId, SessionId},
    isolation::Isolation,
    outputs::Outputs,
    state_version::StateVersion,
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum JobEvent {
    /// The job waits for a runner to claim it.
    Queued(Work),
    /// A runner claimed the job. A later claim has another execution.
    Claimed {
        /// Execution of this attempt. Its id is the fencing token.
        execution: ExecutionId,
        runner: RunnerId,
        session: SessionId,
        /// Random id from the runner's journal.
        claim_id: String,
        /// Number of the attempt, from 1.
        attempt: u32,
        /// Time by which the execution must end.
        #[serde(with = "crate::moment")]
        #[cfg_attr(test, schemars(with = "Timestamp"))]
        #[bincode(with_serde)]
        deadline: Timestamp,
    },
    /// The plugin started its work.
    Started {
        /// Execution that the report is about.
        execution: ExecutionId,
        /// Sequence number among the reports of the execution, from 1.
        seq: u64,
        /// Isolation of the execution. Absent from runners that do not report it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        isolation: Option<Isolation>,
    },
    /// The plugin entered a phase of its work. Phases are for display only.
    PhaseEntered {
        /// Execution that the report is about.
        execution: ExecutionId,
        /// Sequence number among the reports of the execution, from 1.
        seq: u64,
        phase: String,
    },
    /// The runner reported a plan: the changes that an apply would make.
    PlanProduced {
        /// Execution that the report is about.
        execution: ExecutionId,
        /// Sequence number among the reports of the execution, from 1.
        seq: u64,
        plan: PlanReport,
    },
    /// The runner reported outputs that other components may read.
    OutputsReported {
        /// Execution that the report is about.
        execution: ExecutionId,
        /// Sequence number among the reports of the execution, from 1.
        seq: u64,
        /// Output values by name.
        outputs: Outputs,
    },
    /// The runner reported the version of the state that a plan read or an apply wrote.
    StateReported {
        /// Execution that the report is about.
        execution: ExecutionId,
        /// Sequence number among the reports of the execution, from 1.
        seq: u64,
        state: StateVersion,
    },
    /// The runner pushed the artifact of a build to the registry.
    ArtifactPushed {
        /// Execution that the report is about.
        execution: ExecutionId,
        /// Sequence number among the reports of the execution, from 1.
        seq: u64,
        artifact: Artifact,
    },
    /// The runner reported the checks of a preflight.
    ChecksReported {
        /// Execution that the report is about.
        execution: ExecutionId,
        /// Sequence number among the reports of the execution, from 1.
        seq: u64,
        checks: Vec<Check>,
    },
    /// The lease of the execution elapsed without contact. The job may still run.
    Disconnected { execution: ExecutionId },
    /// The runner called again with this execution and continues the job.
    Reattached { execution: ExecutionId },
    /// The job waits for a runner again. The loss reason is absent if an actor resolved the outcome
    /// as a retry.
    Requeued {
        /// Former execution. Its late reports have no effect.
        execution: ExecutionId,
        /// Number of the next attempt.
        attempt: u32,
        /// Reason for the loss of the former execution.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        loss_reason: Option<LossReason>,
    },
    /// The execution was declared lost, and the work may have had effects. A late final report or a
    /// resolution determines the outcome.
    OutcomeUnknown {
        /// Execution with the unknown outcome.
        execution: ExecutionId,
        /// Reason for the loss of the execution.
        loss_reason: LossReason,
    },
    /// An actor resolved the unknown outcome. The next event of the job records the consequence.
    OutcomeResolved {
        /// Execution with the unknown outcome.
        execution: ExecutionId,
        /// Actor of the resolution.
        by: Actor,
        resolution: Resolution,
        /// Reason that the actor gave.
        reason: String,
    },
    /// An actor requested the cancellation of the job.
    CancelRequested {
        /// Actor of the request.
        by: Actor,
        /// Reason that the actor gave.
        reason: String,
        /// True to shorten the grace period between SIGTERM and SIGKILL.
        force: bool,
    },
    /// The runner did not confirm the cancellation in time. A later confirmation is still possible.
    CancelUnconfirmed { execution: ExecutionId },
    /// The runner reported success, or an actor resolved the outcome as succeeded. In the latter
    /// case, the sequence number is absent.
    Succeeded {
        execution: ExecutionId,
        /// Sequence number among the reports of the execution, from 1.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seq: Option<u64>,
        /// Exit code of the child process. Absent if no process ran.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        /// Signed result. Absent if the runner did not sign.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signed: Option<SignedResult>,
        /// Processes of the job that the runner could not end, each as `name (pid 7)`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        not_ended: Vec<String>,
    },
    /// The runner reported a failure, an actor resolved the outcome as failed, or no runner claimed
    /// the job in time. In the last case, the execution is absent.
    Failed {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        execution: Option<ExecutionId>,
        /// Sequence number among the reports of the execution, from 1.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seq: Option<u64>,
        /// Stable code of the failure.
        reason: FailureReason,
        /// Explanation of the failure for users.
        detail: String,
        /// Exit code of the child process. Absent if a signal ended the process or none ran.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        /// Number of the signal that ended the child process.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
        /// Signed result. Absent if the runner did not sign.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signed: Option<SignedResult>,
        /// Processes of the job that the runner could not end, each as `name (pid 7)`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        not_ended: Vec<String>,
    },
    /// The job was cancelled on request. The execution is absent if the job was waiting for a
    /// runner.
    Cancelled {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        execution: Option<ExecutionId>,
        /// Sequence number among the reports of the execution, from 1.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seq: Option<u64>,
        /// True if the child process did not stop after SIGTERM and the runner sent SIGKILL.
        forced: bool,
        /// Signed result. Absent if the runner did not sign.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signed: Option<SignedResult>,
        /// Processes of the job that the runner could not end, each as `name (pid 7)`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        not_ended: Vec<String>,
    },
    /// The server gave up on the job, because no attempt is left or a cancel was requested. The
    /// loss is safe: the work is pure, or no process started.
    Lost {
        execution: ExecutionId,
        /// Reason for the loss of the execution.
        loss_reason: LossReason,
    },
    /// The log of an execution has its final length and digest.
    LogFinalized(FinalizedLog),
    /// The runner sent bytes that differ from the stored bytes of the log. The stored bytes do not
    /// change. Recorded once per execution.
    LogDiverged {
        execution: ExecutionId,
        /// Offset of the first byte of the rejected chunk.
        offset_bytes: u64,
    },
    /// The runner reported a result too late: the job had ended, or the execution had lost it. The
    /// result has no effect. Recorded once per execution.
    LateResultReported {
        /// Execution that the report is about.
        execution: ExecutionId,
        /// Sequence number among the reports of the execution, from 1.
        seq: u64,
        /// Outcome that the runner reported.
        outcome: Outcome,
        /// Stable code of the failure.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<FailureReason>,
        /// Explanation of the failure for users.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
        /// Exit code of the child process. Absent if a signal ended the process or none ran.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        /// Number of the signal that ended the child process.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
        /// Signed result. Absent if the runner did not sign.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signed: Option<SignedResult>,
        /// Processes of the job that the runner could not end, each as `name (pid 7)`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        not_ended: Vec<String>,
    },
}

impl JobEvent {
    /// Returns the event without its signature, for comparisons. After a key replacement, a runner
    /// signs a repeated report with the new key.
    pub(super) fn unsigned(&self) -> JobEvent {
        let mut event = self.clone();
        if let JobEvent::Succeeded { signed, .. }
        | JobEvent::Failed { signed, .. }
        | JobEvent::Cancelled { signed, .. }
        | JobEvent::LateResultReported { signed, .. } = &mut event
        {
            *signed = None;
        }
        event
    }

    /// Returns the outcome of the job if this event ends it.
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
            | JobEvent::ChecksReported { .. }
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
            JobEvent::ChecksReported { .. } => "job.checks_reported",
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
