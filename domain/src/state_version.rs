//! Identity of one version of a component's state.
use std::fmt;

use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Longest lineage that is accepted, in bytes. Terraform's are UUIDs.
pub const LINEAGE_BYTES: usize = 128;

/// Lineage and serial of a state. Within one lineage a higher serial is newer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode, ToSchema)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StateVersion {
    /// Assigned when the state is created.
    pub lineage: String,
    /// Increases with each write.
    pub serial: u64,
}

impl StateVersion {
    /// Returns true if the lineage has 1 to [`LINEAGE_BYTES`] printable ASCII characters, so that a
    /// log line can show it.
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
