//! Commands of a runner.
use super::{Identity, Refusal, Side};
use crate::{
    actor::Actor,
    decider::Timestamp,
    ids::{ExecutionId, JobId},
};

/// Command that the aggregate may reject.
#[derive(Debug, Clone, PartialEq)]
pub enum RunnerCommand {
    /// Enrol the runner.
    Enrol(Identity),
    /// Replace the key that the runner signs with.
    Rekey {
        /// New public key, hexadecimal.
        identity_key: String,
    },
    /// Request that the runner replaces its key.
    RequestRekey {
        /// Actor that decides.
        by: Actor,
        /// Reason, if one was given.
        reason: Option<String>,
    },
    /// Record that the runner has not called for minutes, or announced its end.
    Disconnect {
        /// Time of the last call of the runner.
        last_contact_at: Timestamp,
        /// True if the runner announced its end.
        stopped: bool,
    },
    /// Record that the runner reconnected.
    Reconnect,
    /// Drain the runner: it finishes its jobs and gets no new ones.
    Drain {
        /// Actor that decides.
        by: Actor,
        /// Reason, if one was given.
        reason: Option<String>,
    },
    /// Resume new work after a drain.
    Resume {
        /// Actor that decides.
        by: Actor,
        /// Reason, if one was given.
        reason: Option<String>,
    },
    /// Disable the runner for one side.
    Disable {
        /// Side that disables the runner.
        side: Side,
        /// Actor that decides.
        by: Actor,
        reason: String,
    },
    /// Enable the runner for one side.
    Enable {
        /// Side that enables the runner.
        side: Side,
        /// Actor that decides.
        by: Actor,
        /// Reason, if one was given.
        reason: Option<String>,
    },
    /// Revoke the runner permanently.
    Revoke {
        /// Actor that decides.
        by: Actor,
        /// Reason that was given.
        reason: String,
    },
    /// Record that the runner refused a job.
    Refuse(Refusal),
    /// Record that more than one agent may use the credential of the runner.
    SuspectClone {
        /// Number of sessions that the runner opened in a short time.
        sessions: u32,
    },
    /// Record calls about a job that the runner does not own.
    SuspectForgery {
        /// Job of the last such call.
        job: JobId,
        /// Execution of the last such call.
        execution: ExecutionId,
        /// Number of such calls since the last record.
        calls: u32,
    },
}
