use super::PublishedComponent;
use crate::{digest::Digest, plugin::PinnedPlugin};

/// Command that the aggregate may reject.
#[derive(Debug, Clone, PartialEq)]
pub enum AppCommand {
    Create {
        name: String,
    },
    /// Publish a bundle as the next config version.
    Publish {
        /// Digest of the bundle, which is stored as a blob.
        bundle: Digest,
        /// All components of the config version.
        components: Vec<PublishedComponent>,
        /// Published plugins that the config version uses.
        plugins: Vec<PinnedPlugin>,
    },
}
