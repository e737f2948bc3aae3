use crate::digest::Digest;

/// Reason to reject a plugin command.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PluginError {
    /// A published version never changes.
    #[error(
        "cannot publish the plugin {name}: its version {version} is already published with the digest {digest}; increase the version of the plugin"
    )]
    OtherContent { name: String, version: String, digest: Digest },
}
