//! What can be asked of a subject.
use crate::actor::Actor;

/// A request that may be refused.
#[derive(Debug, Clone, PartialEq)]
pub enum SubjectCommand {
    /// Make what is kept of it unreadable, for ever.
    Shred {
        /// Who decides.
        by: Actor,
        /// Why.
        reason: String,
    },
    /// Note that the server has no copy left.
    CompleteErasure,
}
