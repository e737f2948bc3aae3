//! Why a component says no, in the words of the business.
use super::Definition;

/// Why a component says no.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ComponentError {
    /// Nothing was defined under this id.
    #[error("component does not exist")]
    NotFound,
    /// The same id for another component.
    #[error("component is {name}, and stays it")]
    AnotherComponent {
        /// Its name.
        name: String,
    },
    /// The past does not change.
    #[error("component is already published in config version {config_version}")]
    NotLater {
        /// The last config version that changed it.
        config_version: u32,
    },
}

impl Definition {
    pub(super) fn comes_before(&self, config_version: u32) -> Result<(), ComponentError> {
        if self.config_version < config_version {
            Ok(())
        } else {
            Err(ComponentError::NotLater { config_version: self.config_version })
        }
    }
}
