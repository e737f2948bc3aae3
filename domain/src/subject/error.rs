//! Reasons to reject a subject command.

/// Reason to reject a subject command.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SubjectError {
    /// Shredding is permanent, so it needs a recorded reason.
    #[error("shredding needs a reason")]
    NoReason,
    /// Erasure follows only after the decision to shred.
    #[error("subject is not shredded")]
    NotShredded,
}
