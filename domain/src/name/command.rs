//! What can be asked of a name.

/// A request that may be refused.
#[derive(Debug, Clone, PartialEq)]
pub enum NameCommand {
    /// Have it, alone.
    Take {
        /// The id of the thing.
        owner: String,
    },
    /// Leave it to others.
    Release {
        /// The id of the thing.
        owner: String,
    },
}
