/// Reason to reject a name command.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum NameError {
    #[error("cannot change the name: {owner} has it; choose another name")]
    Taken { owner: String },
}
