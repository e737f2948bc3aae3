use super::PluginVersion;

/// Command that the aggregate may reject.
#[derive(Debug, Clone, PartialEq)]
pub enum PluginCommand {
    /// Publish a version whose artifact is stored.
    Publish(PluginVersion),
}
