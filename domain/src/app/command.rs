use super::PublishedComponent;
use crate::{digest::Digest, ids::JobId, plugin::PinnedPlugin};

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
    /// Record the job that resolves a reference of a version. The same log commit queues the job.
    QueueResolve {
        config_version: u32,
        repo: String,
        reference: String,
        job: JobId,
    },
    /// Record the commit of a reference of a version, once.
    Resolve {
        config_version: u32,
        repo: String,
        reference: String,
        commit: String,
    },
    /// Record that a reference of a version cannot be resolved.
    FailResolve {
        config_version: u32,
        repo: String,
        reference: String,
        detail: String,
    },
}
