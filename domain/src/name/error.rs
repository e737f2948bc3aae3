//! Reasons to reject a name command.

/// Reason to reject a name command.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum NameError {
    /// The name belongs to another owner.
    #[error("name is taken by {owner}")]
    Taken {
        /// Id of the current owner.
        owner: String,
    },
}
