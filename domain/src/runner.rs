//! A runner is one agent with an identity and a purpose.
//!
//! A runner gets jobs unless it is revoked, draining or disabled. Vendor and customer disable and
//! enable a runner separately, and neither can reverse the decision of the other side. The log
//! records disconnects and reconnects, but no polls and sessions.
use crate::{
    actor::Actor,
    decider::{Decider, Timestamp},
    ids::InstallId,
};

mod command;
mod error;
mod event;
mod state;
#[cfg(test)]
mod tests;
pub use command::RunnerCommand;
pub use error::RunnerError;
pub use event::RunnerEvent;
pub use state::{
    Host, Identity, InstallPublicKeys, Refusal, RefusedBy, Runner, RunnerMode, Side, WrappedSeed,
};

type Decision = Result<Vec<RunnerEvent>, RunnerError>;

impl Decider for Runner {
    const NAME: &'static str = "runner";
    type Command = RunnerCommand;
    type Event = RunnerEvent;
    type Error = RunnerError;

    fn decide(&self, command: RunnerCommand, _now: Timestamp) -> Decision {
        use RunnerCommand::*;
        let Some(identity) = &self.identity else {
            return match command {
                Enrol(identity) => {
                    identity.check()?;
                    Ok(vec![RunnerEvent::Enrolled(identity)])
                }
                Rekey { .. }
                | ReplaceInstallKeys(_)
                | ChangeRecoveryRecipients { .. }
                | RequestRekey { .. }
                | Disconnect { .. }
                | Reconnect
                | Drain { .. }
                | Resume { .. }
                | Disable { .. }
                | Enable { .. }
                | Revoke { .. }
                | Refuse(_)
                | SuspectClone { .. }
                | SuspectForgery { .. } => Err(RunnerError::NotFound),
            };
        };
        let unless_done = |is_done: bool, event| Ok(if is_done { vec![] } else { vec![event] });
        match command {
            Enrol(new) if new == *identity => Ok(vec![]),
            Enrol(_) => Err(RunnerError::AlreadyEnrolled),
            // A user may have revoked the runner of a lost host before its successor does.
            Revoke { by: by @ Actor::Runner(_), reason } => {
                unless_done(self.replaced, RunnerEvent::Revoked { by, reason })
            }
            Revoke { by, reason } => unless_done(self.revoked, RunnerEvent::Revoked { by, reason }),
            // A revoked runner can still become disconnected. The next arm rejects the remaining
            // commands.
            Disconnect { last_contact_at, stopped } => unless_done(
                self.disconnected_since.is_some(),
                RunnerEvent::Disconnected { last_contact_at, stopped },
            ),
            Rekey { .. }
            | ReplaceInstallKeys(_)
            | ChangeRecoveryRecipients { .. }
            | RequestRekey { .. }
            | Reconnect
            | Drain { .. }
            | Resume { .. }
            | Disable { .. }
            | Enable { .. }
            | Refuse(_)
            | SuspectClone { .. }
            | SuspectForgery { .. }
                if self.revoked =>
            {
                Err(RunnerError::Revoked)
            }
            Rekey { identity_key } if self.former_keys.contains(&identity_key) => {
                Err(RunnerError::KeyWasReplaced)
            }
            Rekey { identity_key } => unless_done(
                self.key() == Some(&identity_key),
                RunnerEvent::Rekeyed { identity_key },
            ),
            ReplaceInstallKeys(_) if identity.install.is_none() => {
                Err(RunnerError::InstallNotAllowed)
            }
            ReplaceInstallKeys(keys) => match &identity.install_keys {
                None => Ok(vec![RunnerEvent::InstallKeysReplaced(keys)]),
                Some(recorded) if recorded.is_same(&keys) => Ok(vec![]),
                Some(_) => Err(RunnerError::InstallKeysDiffer),
            },
            ChangeRecoveryRecipients { .. } if identity.install.is_none() => {
                Err(RunnerError::InstallNotAllowed)
            }
            ChangeRecoveryRecipients { recipients } => unless_done(
                self.recipients == recipients,
                RunnerEvent::RecoveryRecipientsChanged { recipients },
            ),
            RequestRekey { by, reason } => {
                unless_done(self.rekey_requested, RunnerEvent::RekeyRequested { by, reason })
            }
            Reconnect => unless_done(self.disconnected_since.is_none(), RunnerEvent::Reconnected),
            Drain { by, reason } => unless_done(self.draining, RunnerEvent::Drained { by, reason }),
            Resume { by, reason } => {
                unless_done(!self.draining, RunnerEvent::Resumed { by, reason })
            }
            Disable { side, by, reason } => unless_done(
                self.disabled.contains(&side),
                RunnerEvent::Disabled { side, by, reason },
            ),
            Enable { side, by, reason } => unless_done(
                !self.disabled.contains(&side),
                RunnerEvent::Enabled { side, by, reason },
            ),
            Refuse(refusal) => {
                unless_done(self.refusals.contains(&refusal), RunnerEvent::Refused(refusal))
            }
            SuspectClone { sessions } => Ok(vec![RunnerEvent::CloneSuspected { sessions }]),
            SuspectForgery { job, execution, calls } => {
                Ok(vec![RunnerEvent::ForgerySuspected { job, execution, calls }])
            }
        }
    }

    fn evolve(&mut self, event: RunnerEvent) {
        match event {
            RunnerEvent::Enrolled(identity) => self.identity = Some(identity),
            RunnerEvent::Rekeyed { identity_key } => {
                self.rekey_requested = false;
                if let Some(identity) = &mut self.identity {
                    let former_key = std::mem::replace(&mut identity.identity_key, identity_key);
                    self.former_keys.insert(former_key);
                }
            }
            RunnerEvent::InstallKeysReplaced(keys) => {
                if let Some(identity) = &mut self.identity {
                    identity.install_keys = Some(keys);
                }
            }
            RunnerEvent::RecoveryRecipientsChanged { recipients } => self.recipients = recipients,
            RunnerEvent::RekeyRequested { .. } => self.rekey_requested = true,
            RunnerEvent::Disconnected { last_contact_at, stopped } => {
                (self.disconnected_since, self.stopped) = (Some(last_contact_at), stopped);
            }
            RunnerEvent::Reconnected => (self.disconnected_since, self.stopped) = (None, false),
            RunnerEvent::Drained { .. } => self.draining = true,
            RunnerEvent::Resumed { .. } => self.draining = false,
            RunnerEvent::Disabled { side, .. } => {
                self.disabled.insert(side);
            }
            RunnerEvent::Enabled { side, .. } => {
                self.disabled.remove(&side);
            }
            RunnerEvent::Revoked { by, .. } => {
                self.revoked = true;
                self.replaced |= matches!(by, Actor::Runner(_));
            }
            RunnerEvent::Refused(refusal) => self.store_refusal(refusal),
            RunnerEvent::CloneSuspected { .. } | RunnerEvent::ForgerySuspected { .. } => {}
        }
    }

    fn customer(&self, _id: &str) -> Option<InstallId> {
        self.identity.as_ref()?.install
    }
}
