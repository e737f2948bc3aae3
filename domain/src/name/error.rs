/// Reason to reject a name command.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum NameError {
    #[error("name is taken by {owner}; choose another name")]
    Taken { owner: String },
}
