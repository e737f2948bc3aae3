//! What can have happened to a runner. The names are on disk: add, never rename.
use serde::{Deserialize, Serialize};

use super::{Identity, Refusal, Side};
use crate::{
    actor::Actor,
    decider::{Event, Timestamp},
    ids::{ExecutionId, JobId},
};

/// A fact about a runner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum RunnerEvent {
    /// It is known.
    Enrolled(Identity),
    /// It signs with another key from now on.
    Rekeyed {
        /// The public key, hexadecimal.
        identity_key: String,
    },
    /// It is to make itself another key, and has not yet.
    RekeyRequested {
        /// Who decided.
        by: Actor,
        /// Why, if they say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// No call for minutes, or the runner said that it ends.
    Disconnected {
        /// Its last call.
        #[serde(with = "crate::moment")]
        #[cfg_attr(test, schemars(with = "Timestamp"))]
        last_contact_at: Timestamp,
        /// Whether the runner said that it ends.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        stopped: bool,
    },
    /// It called again.
    Reconnected,
    /// It finishes what it has, and gets nothing more.
    Drained {
        /// Who decided.
        by: Actor,
        /// Why, if they say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// It gets work again.
    Resumed {
        /// Who decided.
        by: Actor,
        /// Why, if they say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// A switch is off.
    Disabled {
        /// Whose switch.
        side: Side,
        /// Who turned it.
        by: Actor,
        /// Why.
        reason: String,
    },
    /// A switch is on.
    Enabled {
        /// Whose switch.
        side: Side,
        /// Who turned it.
        by: Actor,
        /// Why, if they say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// It is never heard again.
    Revoked {
        /// Who decided.
        by: Actor,
        /// Why.
        reason: String,
    },
    /// It will not do a job.
    Refused(Refusal),
    /// Its credential is used by more than one agent.
    CloneSuspected {
        /// How many sessions it opened in a short time.
        sessions: u32,
    },
    /// It spoke of a job that is not its own, or signed of its own what is not so, and was refused.
    ForgerySuspected {
        /// The last one that it spoke of.
        job: JobId,
        /// The execution that it named.
        execution: ExecutionId,
        /// How many such calls a server counted since it last said so, or since it started.
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
