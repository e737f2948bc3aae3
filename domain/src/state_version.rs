use std::fmt;

use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Maximum length of a lineage in bytes. Lineages of Terraform are UUIDs.
pub const LINEAGE_BYTES: usize = 128;

/// Version of the Terraform state of a component. Within one lineage, a higher serial is newer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode, ToSchema)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StateVersion {
    /// Random id of the state, which Terraform assigns when it creates the state.
    pub lineage: String,
    /// Serial number, which increases with each write of the state.
    pub serial: u64,
}

impl StateVersion {
    /// Returns true if the lineage has 1 to [`LINEAGE_BYTES`] printable ASCII characters without
    /// spaces, so that messages can contain it.
    pub fn is_valid(&self) -> bool {
        (1..=LINEAGE_BYTES).contains(&self.lineage.len())
            && self.lineage.bytes().all(|byte| byte.is_ascii_graphic())
    }
}

impl fmt::Display for StateVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "serial {} of lineage {}", self.serial, self.lineage)
    }
}
