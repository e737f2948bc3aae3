//! Access of a principal: roles and API tokens. Events contain neither the display name of the
//! principal nor the secret of a token.
use crate::decider::{Decider, Timestamp};

mod command;
mod error;
mod event;
mod state;
#[cfg(test)]
mod tests;
pub use command::AccessCommand;
pub use error::AccessError;
pub use event::AccessEvent;
pub use state::{Access, IssuedToken, PrincipalKind, Role};

impl Decider for Access {
    const NAME: &'static str = "access";
    type Command = AccessCommand;
    type Event = AccessEvent;
    type Error = AccessError;

    fn decide(
        &self,
        command: AccessCommand,
        now: Timestamp,
    ) -> Result<Vec<AccessEvent>, AccessError> {
        use AccessCommand::*;
        let Some(principal) = self.kind else {
            return match command {
                AddPrincipal { kind, name_ref } => {
                    Ok(vec![AccessEvent::PrincipalAdded { kind, name_ref }])
                }
                GrantRole { .. } | RevokeRole { .. } | IssueToken(_) | RevokeToken { .. } => {
                    Err(AccessError::NotFound)
                }
            };
        };
        match command {
            AddPrincipal { kind, .. } if kind == principal => Ok(vec![]),
            AddPrincipal { .. } => Err(AccessError::AlreadyAdded { kind: principal }),
            GrantRole { role } if self.roles.contains(&role) => Ok(vec![]),
            GrantRole { role } => Ok(vec![AccessEvent::RoleGranted { role }]),
            RevokeRole { role } if !self.roles.contains(&role) => Ok(vec![]),
            RevokeRole { role } => Ok(vec![AccessEvent::RoleRevoked { role }]),
            IssueToken(new) => match self.token(new.token) {
                Some(existing) if *existing == new => Ok(vec![]),
                Some(_) => Err(AccessError::AlreadyIssued),
                None if new.expires_at.is_some_and(|end| end <= now) => {
                    Err(AccessError::ExpiresInThePast)
                }
                None => Ok(vec![AccessEvent::TokenIssued(new)]),
            },
            RevokeToken { token } if self.revoked.contains(&token) => Ok(vec![]),
            RevokeToken { token } => match self.token(token) {
                Some(_) => Ok(vec![AccessEvent::TokenRevoked { token }]),
                None => Err(AccessError::NoSuchToken),
            },
        }
    }

    fn evolve(&mut self, event: AccessEvent) {
        match event {
            AccessEvent::PrincipalAdded { kind, .. } => self.kind = Some(kind),
            AccessEvent::RoleGranted { role } => {
                self.roles.insert(role);
            }
            AccessEvent::RoleRevoked { role } => {
                self.roles.remove(&role);
            }
            AccessEvent::TokenIssued(token) => self.tokens.push(token),
            AccessEvent::TokenRevoked { token } => {
                self.revoked.insert(token);
            }
        }
    }
}
