//! Commands of a job, in the order of its lifecycle.
use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use super::{FailureReason, FinalizedLog, Outcome, PlanReport, SignedResult, Work};
use crate::{
    actor::Actor,
    artifact::Artifact,
    ids::{ExecutionId, RunnerId, SessionId},
    outputs::Outputs,
    state_version::StateVersion,
};

/// Command that the aggregate may reject.
#[derive(Debug, Clone, PartialEq)]
pub enum JobCommand {
    /// Queue the work for a runner.
    Queue(Work),
    /// Claim the job. The same session and claim id again mean the same claim.
    Claim {
        /// Id of the new execution; ignored if this claim already has one.
        execution: ExecutionId,
        /// Runner that claims the job.
        runner: RunnerId,
        /// Session of the runner.
        session: SessionId,
        /// Claim id that the runner chose.
        claim_id: String,
    },
    /// Record a report of the runner.
    Report {
        /// Execution that reports.
        execution: ExecutionId,
        /// Sequence number among the reports of the execution, from 1.
        seq: u64,
        report: Report,
        /// Signature, if this is the final report and the runner signed it.
        signed: Option<SignedResult>,
    },
    /// Record that the runner is disconnected.
    Disconnect {
        /// Execution of the runner.
        execution: ExecutionId,
    },
    /// Record that the runner reconnected.
    Reattach {
        /// Execution of the runner.
        execution: ExecutionId,
    },
    /// Give up an execution.
    DeclareLost {
        /// Execution to give up.
        execution: ExecutionId,
        /// Reason to give it up.
        loss_reason: LossReason,
    },
    /// Resolve the unknown outcome of an execution.
    Resolve {
        execution: ExecutionId,
        /// Actor that resolves it.
        by: Actor,
        /// Resolution of the outcome.
        resolution: Resolution,
        reason: String,
    },
    /// Request the cancellation of the job.
    RequestCancel {
        /// Actor of the request.
        by: Actor,
        /// Reason that was given.
        reason: String,
        /// True to shorten the grace period.
        force: bool,
    },
    /// Record that the runner did not confirm a cancel in time.
    DeclareCancelUnconfirmed { execution: ExecutionId },
    /// Fail the job, because no runner claimed it in time.
    Expire {
        /// Number of the attempt that no runner claimed in time. The command fails if a later
        /// attempt waits.
        attempt: u32,
    },
    /// Finalize the log of an execution. Either the log is complete, or the wait for its end timed
    /// out.
    FinalizeLog(FinalizedLog),
    /// Record that the runner sent other bytes for a part of the log that the server has stored.
    RecordDivergence {
        /// Execution of the log.
        execution: ExecutionId,
        /// Offset of the first byte of the rejected chunk.
        offset_bytes: u64,
    },
    /// Record a result that arrived after the end of the job, or after the execution had lost the
    /// job.
    RecordLateResult {
        /// Execution that reports.
        execution: ExecutionId,
        /// Sequence number among the reports of the execution.
        seq: u64,
        /// Reported result.
        result: ExecutionResult,
        /// Signature, if the runner signed it.
        signed: Option<SignedResult>,
    },
}

/// Report of a runner about its work.
#[derive(Debug, Clone, PartialEq)]
pub enum Report {
    /// The child process is about to run.
    Started,
    /// The work entered a phase.
    Phase {
        /// Name of the phase.
        phase: String,
    },
    /// Plan: the changes that an apply would make.
    Plan(PlanReport),
    /// Outputs that other components may read.
    Outputs { outputs: Outputs },
    /// State that a plan was made from, or that an apply wrote.
    State { state: StateVersion },
    /// Artifact of a build.
    Artifact(Artifact),
    /// The work has ended.
    Finished(ExecutionResult),
}

/// Result of an execution, as its runner reports it.
#[derive(Debug, Clone, PartialEq)]
pub enum ExecutionResult {
    Succeeded {
        /// Exit code of the child process, if there was one.
        exit_code: Option<i32>,
        /// Processes of the job that could not be ended.
        not_ended: Vec<String>,
    },
    Failed {
        /// Kind of failure.
        reason: FailureReason,
        /// Explanation for users.
        detail: String,
        /// Exit code of the child process, if it exited.
        exit_code: Option<i32>,
        /// Signal that ended the child process, if one did.
        signal: Option<i32>,
        /// Processes of the job that could not be ended.
        not_ended: Vec<String>,
    },
    /// The runner stopped the work on request.
    Cancelled {
        /// True if the runner had to kill the child process.
        forced: bool,
        /// Processes of the job that could not be ended.
        not_ended: Vec<String>,
    },
}

/// Reason to give up an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LossReason {
    /// The runner reconnected, and its journal does not have the execution.
    ExecutionNotInJournal,
    /// The deadline passed.
    DeadlinePassed,
    /// The runner was disconnected for longer than the server waits for pure work.
    Disconnected,
    /// The runner's journal proves that it started no process for the claim.
    NeverSpawned,
}

/// Manual resolution of an unknown outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Resolution {
    /// The work was done.
    Succeeded,
    /// The work was not done.
    Failed,
    /// The job runs again, because repeating the work is safe.
    Retry,
}

impl Resolution {
    /// Returns the outcome of this resolution; none for a retry.
    pub fn outcome(self) -> Option<Outcome> {
        match self {
            Resolution::Succeeded => Some(Outcome::Succeeded),
            Resolution::Failed => Some(Outcome::Failed),
            Resolution::Retry => None,
        }
    }
}
