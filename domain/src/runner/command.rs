//! What can be asked of a runner.
use super::{Identity, Refusal, Side};
use crate::{
    actor::Actor,
    decider::Timestamp,
    ids::{ExecutionId, JobId},
};

/// A request that may be refused.
#[derive(Debug, Clone, PartialEq)]
pub enum RunnerCommand {
    /// Let it in.
    Enrol(Identity),
    /// It signs with another key from now on.
    Rekey {
        /// The public key, hexadecimal.
        identity_key: String,
    },
    /// It is to make itself another key.
    RequestRekey {
        /// Who decided.
        by: Actor,
        /// Why, if they say.
        reason: Option<String>,
    },
    /// It has not called for minutes, or ended in order.
    Disconnect {
        /// Its last call.
        last_contact_at: Timestamp,
        /// Whether the runner announced its end.
        stopped: bool,
    },
    /// It called again.
    Reconnect,
    /// Let it finish, and give it nothing more.
    Drain {
        /// Who decided.
        by: Actor,
        /// Why, if they say.
        reason: Option<String>,
    },
    /// Give it work again.
    Resume {
        /// Who decided.
        by: Actor,
        /// Why, if they say.
        reason: Option<String>,
    },
    /// Turn a switch off.
    Disable {
        /// Whose switch.
        side: Side,
        /// Who turned it.
        by: Actor,
        /// Why.
        reason: String,
    },
    /// Turn a switch on.
    Enable {
        /// Whose switch.
        side: Side,
        /// Who turned it.
        by: Actor,
        /// Why, if they say.
        reason: Option<String>,
    },
    /// Never hear it again.
    Revoke {
        /// Who decided.
        by: Actor,
        /// Why.
        reason: String,
    },
    /// It will not do a job.
    Refuse(Refusal),
    /// Its credential is used by more than one agent.
    SuspectClone {
        /// How many sessions it opened in a short time.
        sessions: u32,
    },
    /// It spoke of a job that is not its own.
    SuspectForgery {
        /// The last one that it spoke of.
        job: JobId,
        /// The execution that it named.
        execution: ExecutionId,
        /// How often it did so since this was last said.
        calls: u32,
    },
}
