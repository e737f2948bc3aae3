use std::collections::BTreeMap;

use super::{Identity, InstallPublicKeys, Refusal, Side, WrappedSeed};
use crate::{
    actor::Actor,
    decider::Timestamp,
    ids::{ExecutionId, JobId},
};

/// Command that the aggregate may reject.
#[derive(Debug, Clone, PartialEq)]
pub enum RunnerCommand {
    Enrol(Identity),
    /// Replace the identity key of the runner.
    Rekey {
        /// New Ed25519 public key, hexadecimal.
        identity_key: String,
    },
    /// Record the public keys of the install, if the runner has reported none yet.
    ReplaceInstallKeys(InstallPublicKeys),
    /// Record all recipients that can recover the keys of the install.
    ChangeRecoveryRecipients {
        /// Wrapped seeds by recipient.
        recipients: BTreeMap<String, WrappedSeed>,
    },
    /// Request that the runner replaces its identity key.
    RequestRekey {
        by: Actor,
        reason: Option<String>,
    },
    /// Record that the runner is disconnected: it has made no call for minutes, or announced its
    /// shutdown.
    Disconnect {
        last_contact_at: Timestamp,
        /// True if the runner announced its shutdown.
        stopped: bool,
    },
    Reconnect,
    /// Drain the runner: it finishes its jobs and gets no new ones.
    Drain {
        by: Actor,
        reason: Option<String>,
    },
    /// End the drain, so that the runner gets new jobs.
    Resume {
        by: Actor,
        reason: Option<String>,
    },
    /// Disable the runner by decision of one side: it gets no new jobs.
    Disable {
        side: Side,
        by: Actor,
        reason: String,
    },
    /// Reverse the disable decision of one side. The decision of the other side stays.
    Enable {
        side: Side,
        by: Actor,
        reason: Option<String>,
    },
    /// Revoke the runner permanently: the server rejects every later call of the runner.
    Revoke {
        by: Actor,
        reason: String,
    },
    /// Record a refusal of a job. A repeated command changes nothing.
    Refuse(Refusal),
    /// Record that more than one agent may use the identity key of the runner.
    SuspectClone {
        /// Number of sessions that the runner opened in a short time.
        sessions: u32,
    },
    /// Record that the runner made forged calls about jobs.
    SuspectForgery {
        /// Job of the last such call.
        job: JobId,
        /// Execution of the last such call.
        execution: ExecutionId,
        /// Number of such calls since the last record.
        calls: u32,
    },
}
