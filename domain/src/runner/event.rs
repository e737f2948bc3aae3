//! Events of a runner. The log stores their names: add events, never rename them.
use serde::{Deserialize, Serialize};

use super::{Identity, Refusal, Side};
use crate::{
    actor::Actor,
    decider::{Event, Timestamp},
    ids::{ExecutionId, JobId},
};

/// Event of a runner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum RunnerEvent {
    /// The runner enrolled.
    Enrolled(Identity),
    /// The runner replaced the key that it signs with.
    Rekeyed {
        /// New public key, hexadecimal.
        identity_key: String,
    },
    /// An actor requested that the runner replaces its key.
    RekeyRequested {
        /// Actor that decided.
        by: Actor,
        /// Reason, if one was given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The runner has not called for minutes, or announced its end.
    Disconnected {
        /// Time of the last call of the runner.
        #[serde(with = "crate::moment")]
        #[cfg_attr(test, schemars(with = "Timestamp"))]
        last_contact_at: Timestamp,
        /// True if the runner announced its end.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        stopped: bool,
    },
    /// The runner reconnected.
    Reconnected,
    /// The runner finishes its jobs and gets no new ones.
    Drained {
        /// Actor that decided.
        by: Actor,
        /// Reason, if one was given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The runner gets jobs again.
    Resumed {
        /// Actor that decided.
        by: Actor,
        /// Reason, if one was given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// One side disabled the runner.
    Disabled {
        /// Side that disabled the runner.
        side: Side,
        /// Actor that decided.
        by: Actor,
        /// Reason that was given.
        reason: String,
    },
    /// The vendor or the customer enabled the runner.
    Enabled {
        /// Side that enabled the runner.
        side: Side,
        /// Actor that decided.
        by: Actor,
        /// Reason, if one was given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The runner was revoked permanently.
    Revoked {
        /// Actor that decided.
        by: Actor,
        /// Reason that was given.
        reason: String,
    },
    /// The runner refused a job.
    Refused(Refusal),
    /// More than one agent may use the credential of the runner.
    CloneSuspected {
        /// Number of sessions that the runner opened in a short time.
        sessions: u32,
    },
    /// The runner reported on a job that it does not own, or signed a false statement about its own
    /// job. The server rejected the calls.
    ForgerySuspected {
        /// Job of the last such call.
        job: JobId,
        /// Execution of the last such call.
        execution: ExecutionId,
        /// Number of such calls that a server counted since its last event of this type, or since
        /// its start.
        calls: u32,
    },
}

impl Event for RunnerEvent {
    fn name(&self) -> &'static str {
        match self {
            RunnerEvent::Enrolled(_) => "runner.enrolled",
            RunnerEvent::Rekeyed { .. } => "runner.rekeyed",
            RunnerEvent::RekeyRequested { .. } => "runner.rekey_requested",
            RunnerEvent::Disconnected { .. } => "runner.disconnected",
            RunnerEvent::Reconnected => "runner.reconnected",
            RunnerEvent::Drained { .. } => "runner.drained",
            RunnerEvent::Resumed { .. } => "runner.resumed",
            RunnerEvent::Disabled { .. } => "runner.disabled",
            RunnerEvent::Enabled { .. } => "runner.enabled",
            RunnerEvent::Revoked { .. } => "runner.revoked",
            RunnerEvent::Refused(_) => "runner.refused",
            RunnerEvent::CloneSuspected { .. } => "runner.clone_suspected",
            RunnerEvent::ForgerySuspected { .. } => "runner.forgery_suspected",
        }
    }

    fn version(&self) -> &'static str {
        "1"
    }
}
