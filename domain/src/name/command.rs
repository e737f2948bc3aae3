//! Commands of a name.

/// Command that the aggregate may reject.
#[derive(Debug, Clone, PartialEq)]
pub enum NameCommand {
    /// Take the name exclusively.
    Take {
        /// Id of the owner.
        owner: String,
    },
    /// Release the name.
    Release {
        /// Id of the owner.
        owner: String,
    },
}
