//! A data subject is a principal, or a customer, identified by an install. The log encrypts the
//! personal data of each subject with a separate key. Deletion of that key is permanent.
//!
//! The stream of a subject has two events at most. The first is the decision to delete the key,
//! which takes effect immediately. The second follows when the server has erased all reachable
//! copies of the key and of the data.
use crate::decider::{Decider, Timestamp};

mod command;
mod error;
mod event;
mod state;
#[cfg(test)]
mod tests;
pub use command::SubjectCommand;
pub use error::SubjectError;
pub use event::SubjectEvent;
pub use state::{Shredding, Subject, SubjectId, SubjectIdError};

impl Decider for Subject {
    const NAME: &'static str = "subject";
    type Command = SubjectCommand;
    type Event = SubjectEvent;
    type Error = SubjectError;

    fn decide(
        &self,
        command: SubjectCommand,
        _now: Timestamp,
    ) -> Result<Vec<SubjectEvent>, SubjectError> {
        match (command, &self.shredded) {
            (SubjectCommand::Shred { .. }, Some(_)) => Ok(vec![]),
            (SubjectCommand::Shred { reason, .. }, None) if reason.trim().is_empty() => {
                Err(SubjectError::NoReason)
            }
            (SubjectCommand::Shred { by, reason }, None) => {
                Ok(vec![SubjectEvent::Shredded { by, reason }])
            }
            (SubjectCommand::CompleteErasure, None) => Err(SubjectError::NotShredded),
            (SubjectCommand::CompleteErasure, Some(_)) if self.erased => Ok(vec![]),
            (SubjectCommand::CompleteErasure, Some(_)) => Ok(vec![SubjectEvent::ErasureCompleted]),
        }
    }

    fn evolve(&mut self, event: SubjectEvent) {
        match event {
            SubjectEvent::Shredded { by, reason } => self.shredded = Some(Shredding { by, reason }),
            SubjectEvent::ErasureCompleted => self.erased = true,
        }
    }
}
