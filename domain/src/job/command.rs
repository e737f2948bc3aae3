//! What can be asked of a job, in the order of its life.
use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use super::{FailureReason, Outcome, PlanReport, SealedLog, Signed, Work};
use crate::{
    actor::Actor,
    artifact::Artifact,
    ids::{ExecutionId, RunnerId, SessionId},
    outputs::Outputs,
    state_version::StateVersion,
};

/// A request that may be refused.
#[derive(Debug, Clone, PartialEq)]
pub enum JobCommand {
    /// Put the work where runners find it.
    Queue(Work),
    /// Take the job. The same session and claim id again mean the same claim.
    Claim {
        /// The execution to be, unless this claim already has one.
        execution: ExecutionId,
        /// Who takes it.
        runner: RunnerId,
        /// In which life.
        session: SessionId,
        /// The runner's own name for this claim.
        claim_id: String,
    },
    /// What the runner says while it works, in its order.
    Report {
        /// Who speaks.
        execution: ExecutionId,
        /// The place of this report among those of its execution, 1 first.
        seq: u64,
        /// What it says.
        report: Report,
        /// Its signature, if it is its last word and it has signed it.
        signed: Option<Signed>,
    },
    /// The runner has not called for a while.
    Disconnect {
        /// Whose runner.
        execution: ExecutionId,
    },
    /// The runner called again.
    Reattach {
        /// Whose runner.
        execution: ExecutionId,
    },
    /// Give up an execution.
    DeclareLost {
        /// The execution.
        execution: ExecutionId,
        /// Reason to give it up.
        loss_reason: LossReason,
    },
    /// Say what became of an execution whose outcome nobody knows.
    Resolve {
        /// Which.
        execution: ExecutionId,
        /// Who says so.
        by: Actor,
        /// What became of it.
        verdict: Resolution,
        /// Why.
        reason: String,
    },
    /// Ask for the end.
    RequestCancel {
        /// Who asks.
        by: Actor,
        /// Why.
        reason: String,
        /// Whether to leave the work no time to end by itself.
        force: bool,
    },
    /// The runner had long enough to confirm a cancel, and did not.
    DeclareCancelUnconfirmed {
        /// Which.
        execution: ExecutionId,
    },
    /// Nobody took the job in time.
    Expire {
        /// The attempt that was waited for.
        attempt: u32,
    },
    /// The log of an execution is complete, or nobody waits for it any longer.
    SealLog(SealedLog),
    /// The runner sent other bytes for a place of the log that is kept already.
    NoteDivergence {
        /// Whose log.
        execution: ExecutionId,
        /// The first byte of what it sent.
        offset_bytes: u64,
    },
    /// The runner's last word came when the job was over, or another execution's.
    NoteLateResult {
        /// Who speaks.
        execution: ExecutionId,
        /// The place of this report among those of its execution.
        seq: u64,
        /// What it says.
        result: ExecutionResult,
        /// Its signature, if it has signed it.
        signed: Option<Signed>,
    },
}

/// What a runner says of its work.
#[derive(Debug, Clone, PartialEq)]
pub enum Report {
    /// The child is about to run.
    Started,
    /// The work is in another phase.
    Phase {
        /// Its name.
        phase: String,
    },
    /// What an apply would change.
    Plan(PlanReport),
    /// What the work gives to others.
    Outputs {
        /// By name.
        outputs: Outputs,
    },
    /// State that a plan was made from, or that an apply wrote.
    State {
        /// The state.
        state: StateVersion,
    },
    /// What a build made.
    Artifact(Artifact),
    /// It is over.
    Finished(ExecutionResult),
}

/// Result of an execution, as its runner reports it.
#[derive(Debug, Clone, PartialEq)]
pub enum ExecutionResult {
    /// It did what it was for.
    Succeeded {
        /// Of the child, where there was one.
        exit_code: Option<i32>,
        /// Processes of the job that could not be ended.
        not_ended: Vec<String>,
    },
    /// It did not.
    Failed {
        /// What kind of failure.
        reason: FailureReason,
        /// In words.
        detail: String,
        /// Of the child, if it exited.
        exit_code: Option<i32>,
        /// That killed the child, if one did.
        signal: Option<i32>,
        /// Processes of the job that could not be ended.
        not_ended: Vec<String>,
    },
    /// It was stopped because somebody asked.
    Cancelled {
        /// Whether it had to be killed.
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
    /// The work is done.
    Succeeded,
    /// The work is not done.
    Failed,
    /// The work is repeated.
    Retry,
}

impl Resolution {
    /// The outcome it leads to; none when the work is to be done again.
    pub fn outcome(self) -> Option<Outcome> {
        match self {
            Resolution::Succeeded => Some(Outcome::Succeeded),
            Resolution::Failed => Some(Outcome::Failed),
            Resolution::Retry => None,
        }
    }
}
