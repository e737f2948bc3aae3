//! Why a subject says no, in the words of the business.

/// Why a subject says no.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SubjectError {
    /// It cannot be undone, so somebody must be able to say why it was done.
    #[error("shredding needs a reason")]
    NoReason,
    /// Nobody decided so.
    #[error("subject is not shredded")]
    NotShredded,
}
