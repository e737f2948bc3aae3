//! Events of a runner. Their names and payloads are stored: from the first release on, add and never rename.
use serde::{Deserialize, Serialize};

use super::{Identity, Refusal, Side};
use crate::{
    actor::Actor,
    decider::{Event, Timestamp},
    ids::{ExecutionId, JobId},
};

/// An event of a runner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum RunnerEvent {
    /// The runner enrolled.
    Enrolled(Identity),
    /// The runner replaced its key.
    Rekeyed {
        /// Public key, hexadecimal.
        identity_key: String,
    },
    /// A principal asked the runner to replace its key.
    RekeyRequested {
        /// Principal that decided.
        by: Actor,
        /// Reason, if one was given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The runner has not called for minutes, or announced that it stops.
    Disconnected {
        /// Time of its last call.
        #[serde(with = "crate::moment")]
        #[cfg_attr(test, schemars(with = "Timestamp"))]
        last_contact_at: Timestamp,
        /// Whether the runner announced that it stops.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        stopped: bool,
    },
    /// The runner called again.
    Reconnected,
    /// The runner completes its jobs and gets no more.
    Drained {
        /// Principal that decided.
        by: Actor,
        /// Reason, if one was given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The runner gets jobs again.
    Resumed {
        /// Principal that decided.
        by: Actor,
        /// Reason, if one was given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The vendor or the customer disabled the runner.
    Disabled {
        /// The party whose setting changed.
        side: Side,
        /// Actor that changed it.
        by: Actor,
        /// Reason.
        reason: String,
    },
    /// The vendor or the customer enabled the runner.
    Enabled {
        /// The party whose setting changed.
        side: Side,
        /// Actor that changed it.
        by: Actor,
        /// Reason, if one was given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The runner was revoked.
    Revoked {
        /// Principal that decided.
        by: Actor,
        /// Reason.
        reason: String,
    },
    /// The runner refused a job.
    Refused(Refusal),
    /// More than one agent seems to use the runner's credential.
    CloneSuspected {
        /// Number of sessions that it opened in a short time.
        sessions: u32,
    },
    /// The runner reported on a job of another runner, or signed a false statement, and was rejected.
    ForgerySuspected {
        /// The last such job.
        job: JobId,
        /// The execution in the last such call.
        execution: ExecutionId,
        /// Number of such calls since the server last recorded one, or since it started.
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
