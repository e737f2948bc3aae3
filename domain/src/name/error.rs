//! Why a name says no, in the words of the business.

/// Why a name says no.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum NameError {
    /// It belongs to another.
    #[error("name is taken by {owner}")]
    Taken {
        /// Whose it is.
        owner: String,
    },
}
