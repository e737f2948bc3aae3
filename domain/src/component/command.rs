use super::Definition;

/// Command that the aggregate may reject.
#[derive(Debug, Clone, PartialEq)]
pub enum ComponentCommand {
    /// Publish the definition that a config version has.
    Publish(Definition),
    /// Retire a component that a config version removed.
    Retire {
        /// First config version without the component.
        config_version: u32,
    },
}
