use std::fmt;

use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Maximum length of a lineage in bytes. Lineages of Terraform are UUIDs.
pub const LINEAGE_BYTES: usize = 128;
/// Maximum length of a digest in bytes.
const DIGEST_BYTES: usize = 128;

/// Version of the Terraform state of a component. Within one lineage, a higher serial is newer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode, ToSchema)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StateVersion {
    /// Random id of the state, which Terraform assigns when it creates the state.
    pub lineage: String,
    /// Serial number, which increases with each write of the state.
    pub serial: u64,
    /// Keyed digest of the state, which reveals nothing without the key of its component. Absent if
    /// the runner reported none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

impl StateVersion {
    /// Returns true if the lineage has 1 to [`LINEAGE_BYTES`] printable ASCII characters without
    /// spaces, and the digest is printable, so that messages can contain them. The database must
    /// accept the serial.
    pub fn is_valid(&self) -> bool {
        let is_printable = |text: &str, most: usize| {
            (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
        };
        let digest = self.digest.as_deref();
        is_printable(&self.lineage, LINEAGE_BYTES)
            && i64::try_from(self.serial).is_ok()
            && digest.is_none_or(|digest| is_printable(digest, DIGEST_BYTES))
    }

    /// Returns true if both are the same write of the same state.
    pub fn is_same(&self, other: &StateVersion) -> bool {
        self.lineage == other.lineage && self.serial == other.serial
    }

    /// Returns true if this version includes the other one: it is a later write of the same lineage,
    /// or the same write with the same content.
    pub fn includes(&self, other: &StateVersion) -> bool {
        let has_other_content = match (&self.digest, &other.digest) {
            (Some(own), Some(digest)) => own != digest,
            (Some(_) | None, None) | (None, Some(_)) => false,
        };
        match self.serial.cmp(&other.serial) {
            std::cmp::Ordering::Less => false,
            std::cmp::Ordering::Equal => self.lineage == other.lineage && !has_other_content,
            std::cmp::Ordering::Greater => self.lineage == other.lineage,
        }
    }
}

impl fmt::Display for StateVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "serial {} of lineage {}", self.serial, self.lineage)
    }
}
