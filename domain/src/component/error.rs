use super::Definition;

/// Reason to reject a component command.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ComponentError {
    #[error("component does not exist")]
    NotFound,
    #[error("cannot publish the component: the id belongs to {name}; use a new id")]
    AnotherComponent {
        /// Name of the component that has the id.
        name: String,
    },
    /// The config version of a change must be later than that of the last change.
    #[error(
        "cannot change the component: its last change is in config version {config_version}; use a later version"
    )]
    VersionNotLater { config_version: u32 },
}

impl Definition {
    pub(super) fn check_is_earlier_than(&self, config_version: u32) -> Result<(), ComponentError> {
        if self.config_version < config_version {
            Ok(())
        } else {
            Err(ComponentError::VersionNotLater { config_version: self.config_version })
        }
    }
}
