use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use super::{FailureReason, FinalizedLog, Outcome, PlanReport, SignedResult, Work};
use crate::{
    actor::Actor,
    artifact::Artifact,
    check::Check,
    ids::{ExecutionId, RunnerId, SessionId},
    isolation::Isolation,
    outputs::Outputs,
    state_version::StateVersion,
};

/// Commands of a job, in the order of its lifecycle.
#[derive(Debug, Clone, PartialEq)]
pub enum JobCommand {
    Queue(Work),
    /// Claim the job. While the execution holds the job, a repeated command with the same session
    /// and claim id changes nothing.
    Claim {
        /// Id of the new execution. Ignored in a repeated command.
        execution: ExecutionId,
        runner: RunnerId,
        session: SessionId,
        /// Random id from the runner's journal.
        claim_id: String,
    },
    /// Record a report from the runner, once and in order.
    Report {
        /// Execution that the report is about.
        execution: ExecutionId,
        /// Sequence number among the reports of the execution, from 1 and without gaps.
        seq: u64,
        report: Report,
        /// Signature of the final report. `None` for other reports, and from runners that do not
        /// sign.
        signed: Option<SignedResult>,
    },
    /// Record that the lease of the execution has elapsed without contact.
    Disconnect {
        execution: ExecutionId,
    },
    /// Record that the runner called again with this execution.
    Reattach {
        execution: ExecutionId,
    },
    /// Declare an execution lost. Depending on class and reason, the job is queued again, lost, or
    /// has an unknown outcome.
    DeclareLost {
        execution: ExecutionId,
        loss_reason: LossReason,
    },
    /// Resolve the unknown outcome of an execution by decision of an actor.
    Resolve {
        execution: ExecutionId,
        by: Actor,
        resolution: Resolution,
        reason: String,
    },
    /// Request the cancellation of the job. A queued job is cancelled immediately; otherwise the
    /// runner must confirm.
    RequestCancel {
        by: Actor,
        reason: String,
        /// True to shorten the grace period between SIGTERM and SIGKILL.
        force: bool,
    },
    /// Record that the runner did not confirm the cancellation in time.
    DeclareCancelUnconfirmed {
        execution: ExecutionId,
    },
    /// Fail the job, because no runner claimed it in time.
    Expire {
        /// Number of the attempt that no runner claimed in time. The command fails if a later
        /// attempt waits.
        attempt: u32,
    },
    /// Fail the job, because the server cannot give it to a runner.
    FailUnclaimed {
        /// Number of the attempt that waits. The command fails if a later attempt waits.
        attempt: u32,
        /// Explanation for users.
        detail: String,
    },
    /// Finalize the log of an ended or lost execution: the log is complete, or the wait for the
    /// rest timed out.
    FinalizeLog(FinalizedLog),
    /// Record that the runner sent bytes that differ from the stored bytes of the log.
    RecordDivergence {
        execution: ExecutionId,
        /// Offset of the first byte of the rejected chunk.
        offset_bytes: u64,
    },
    /// Record a result that arrived too late: the job had ended, or the execution had lost it.
    RecordLateResult {
        /// Execution that the report is about.
        execution: ExecutionId,
        /// Sequence number of the report.
        seq: u64,
        result: ExecutionResult,
        /// Signature of the report, if the runner signed it.
        signed: Option<SignedResult>,
    },
}

/// Report of a runner about an execution.
#[derive(Debug, Clone, PartialEq)]
pub enum Report {
    /// The plugin starts its work.
    Started {
        isolation: Option<Isolation>,
    },
    Phase {
        phase: String,
    },
    /// Changes that an apply would make.
    Plan(PlanReport),
    /// Outputs that other components may read.
    Outputs {
        outputs: Outputs,
    },
    /// Version of the state that a plan read or an apply wrote.
    State {
        state: StateVersion,
    },
    /// Artifact that a build pushed.
    Artifact(Artifact),
    /// Checks of a preflight.
    Checks {
        checks: Vec<Check>,
    },
    /// The execution ended with this result.
    Finished(ExecutionResult),
}

/// Result of an execution in the final report of its runner.
#[derive(Debug, Clone, PartialEq)]
pub enum ExecutionResult {
    Succeeded {
        /// Exit code of the child process. `None` if no process ran.
        exit_code: Option<i32>,
        /// Processes of the job that the runner could not end, each as `name (pid 7)`.
        not_ended: Vec<String>,
    },
    Failed {
        reason: FailureReason,
        detail: String,
        /// Exit code of the child process. `None` if a signal ended the process or none ran.
        exit_code: Option<i32>,
        /// Number of the signal that ended the child process.
        signal: Option<i32>,
        /// Processes of the job that the runner could not end, each as `name (pid 7)`.
        not_ended: Vec<String>,
    },
    /// The runner stopped the execution because of a cancel request.
    Cancelled {
        /// True if the child process did not stop after SIGTERM and the runner sent SIGKILL.
        forced: bool,
        /// Processes of the job that the runner could not end, each as `name (pid 7)`.
        not_ended: Vec<String>,
    },
}

/// Reason to declare an execution lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LossReason {
    /// The runner reconnected, and its journal has no entry for the execution.
    ExecutionNotInJournal,
    /// The deadline of the execution passed without a result.
    DeadlinePassed,
    /// The runner was disconnected for longer than the server waits for pure work.
    Disconnected,
    /// The runner's journal shows that the runner started no process for the claim.
    NeverSpawned,
    /// The install was recovered on another host, which does not know the execution.
    HostReplaced,
}

/// Decision of an actor on an unknown outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Resolution {
    /// The work was done. The job counts as succeeded.
    Succeeded,
    /// The work was not done. The job counts as failed.
    Failed,
    /// The actor considers a repetition of the work safe. The job is queued again.
    Retry,
}

impl Resolution {
    /// Returns the resulting outcome of the job. `None` for a retry.
    pub fn outcome(self) -> Option<Outcome> {
        match self {
            Resolution::Succeeded => Some(Outcome::Succeeded),
            Resolution::Failed => Some(Outcome::Failed),
            Resolution::Retry => None,
        }
    }
}
