//! Commands of a data subject.
use crate::actor::Actor;

/// Command that the aggregate may reject.
#[derive(Debug, Clone, PartialEq)]
pub enum SubjectCommand {
    /// Shred the key of the subject, which makes its data permanently unreadable.
    Shred {
        /// Actor that decides.
        by: Actor,
        reason: String,
    },
    /// Record that the server has erased all its copies.
    CompleteErasure,
}
