//! What can be asked of a component.
use super::Definition;

/// A request that may be refused.
#[derive(Debug, Clone, PartialEq)]
pub enum ComponentCommand {
    /// A config version has it like this.
    Publish(Definition),
    /// A config version no longer has it.
    Retire {
        /// Which config version.
        config_version: u32,
    },
}
