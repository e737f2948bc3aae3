//! What can be asked of an app.
use super::PublishedComponent;
use crate::digest::Digest;

/// A request that may be refused.
#[derive(Debug, Clone, PartialEq)]
pub enum AppCommand {
    /// Bring it into being.
    Create {
        /// By which people call it.
        name: String,
    },
    /// Make a bundle the next config version.
    Publish {
        /// The bytes of the app directory, a blob.
        bundle: Digest,
        /// Every component of it.
        components: Vec<PublishedComponent>,
    },
}
