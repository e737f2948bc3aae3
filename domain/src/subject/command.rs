use crate::actor::Actor;

#[derive(Debug, Clone, PartialEq)]
pub enum SubjectCommand {
    /// Delete the key of the subject, which makes the data permanently unreadable.
    Shred { by: Actor, reason: String },
    /// Record that the server has erased all reachable copies.
    CompleteErasure,
}
