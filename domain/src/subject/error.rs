/// Reason to reject a subject command.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SubjectError {
    /// Deletion of a key is permanent, so the log must contain the reason.
    #[error("cannot shred the key: the reason is empty; give a reason")]
    NoReason,
    /// Erasure of copies follows the decision to delete the key.
    #[error("cannot complete the erasure: the key of the subject is not shredded")]
    NotShredded,
}
