//! Commands of a component.
use super::Definition;

/// Command that the aggregate may reject.
#[derive(Debug, Clone, PartialEq)]
pub enum ComponentCommand {
    /// Publish the definition of a config version.
    Publish(Definition),
    /// Retire the component, which a config version no longer has.
    Retire {
        /// First config version without the component.
        config_version: u32,
    },
}
