//! Events of a runner. The log stores their names: add events, never rename them.
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Identity, InstallPublicKeys, Refusal, Side, WrappedSeed};
use crate::{
    actor::Actor,
    decider::{Event, Timestamp},
    ids::{ExecutionId, JobId},
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum RunnerEvent {
    /// The runner enrolled with an enrolment token.
    Enrolled(Identity),
    /// The runner replaced its identity key. The former key is permanently invalid.
    Rekeyed {
        /// New Ed25519 public key, hexadecimal.
        identity_key: String,
    },
    /// The runner reported other public keys of its install.
    InstallKeysReplaced(InstallPublicKeys),
    /// The customer chose other recipients that can recover the keys of the install. These are all
    /// of them.
    RecoveryRecipientsChanged {
        /// Wrapped seeds by recipient, the public key of an age identity.
        recipients: BTreeMap<String, WrappedSeed>,
    },
    /// An actor requested that the runner replaces its identity key.
    RekeyRequested {
        /// Actor of the change.
        by: Actor,
        /// Reason that the actor gave. Absent if there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The runner is disconnected: it has made no call for minutes, or announced its shutdown.
    Disconnected {
        #[serde(with = "crate::moment")]
        #[cfg_attr(test, schemars(with = "Timestamp"))]
        last_contact_at: Timestamp,
        /// True if the runner announced its shutdown.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        stopped: bool,
    },
    /// The runner called again after it was recorded as disconnected.
    Reconnected,
    /// The runner finishes its jobs and gets no new ones.
    Drained {
        /// Actor of the change.
        by: Actor,
        /// Reason that the actor gave. Absent if there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The drain ended, so the runner can get jobs again.
    Resumed {
        /// Actor of the change.
        by: Actor,
        /// Reason that the actor gave. Absent if there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// One side disabled the runner, which gets no new jobs until the same side enables it.
    Disabled {
        side: Side,
        /// Actor of the change.
        by: Actor,
        /// Reason that the actor gave.
        reason: String,
    },
    /// One side reversed its disable decision. The runner gets jobs if the other side has not
    /// disabled it.
    Enabled {
        side: Side,
        /// Actor of the change.
        by: Actor,
        /// Reason that the actor gave. Absent if there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The runner was revoked permanently. The server rejects every later call of the runner.
    Revoked {
        /// Actor of the change.
        by: Actor,
        /// Reason that the actor gave.
        reason: String,
    },
    /// The runner refused a job, for example because of the customer's policy.
    Refused(Refusal),
    /// More than one agent may use the identity key of the runner.
    CloneSuspected {
        /// Number of sessions that the runner opened in a short time.
        sessions: u32,
    },
    /// The runner made calls about a job that it does not own, or signed a false statement about
    /// its own job. The server rejected the calls.
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
            RunnerEvent::InstallKeysReplaced(_) => "runner.install_keys_replaced",
            RunnerEvent::RecoveryRecipientsChanged { .. } => "runner.recovery_recipients_changed",
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
