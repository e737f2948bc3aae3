/// Command that the aggregate may reject.
#[derive(Debug, Clone, PartialEq)]
pub enum NameCommand {
    /// Take the free name.
    Take { owner: String },
    /// Release the name of this owner.
    Release { owner: String },
}
