//! Encrypted versions of the Terraform state of a component.
use domain::{
    ids::{ExecutionId, JobId},
    state_version::StateVersion,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::manifest::Fence;

/// Header of a stored state: [`StateUpload`] in a request and [`StateHead`] in a response, as JSON.
pub const STATE_VERSION: &str = "state-version";
/// Header of a response to a read: the newest [`StateVersion`] in the log as JSON. Absent if the log
/// has none.
pub const STATE_RECORDED: &str = "state-recorded";
/// Maximum size of a state in bytes.
pub const STATE_BYTES: u64 = 100 << 20;
/// Maximum size of an encrypted state in bytes. Encryption adds a header, and 16 bytes per 64 KiB.
pub const STATE_CIPHERTEXT_BYTES: u64 = STATE_BYTES + (64 << 10);

/// Version of a state that the server stores encrypted. A version with a higher fence is newer, then
/// one with a higher serial of the same lineage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StateHead {
    /// Random id of the state, which Terraform assigns when it creates the state.
    pub lineage: String,
    /// Serial number, which increases with each write of the state.
    pub serial: u64,
    /// Fence of the execution that wrote the state.
    pub fence: Fence,
    /// Keyed digest of the state: `hmac-sha256:`, the generation of the key, `:` and 64 hexadecimal
    /// digits.
    pub digest: String,
    /// True if the state has no resources, so that another lineage may follow.
    #[serde(default)]
    pub is_empty: bool,
}

/// Version to store, and its origin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateUpload {
    /// Version to store.
    #[serde(flatten)]
    pub head: StateHead,
    /// Job and execution that wrote the state, for an upload with the token of the runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_by: Option<(JobId, ExecutionId)>,
    /// True if a user of the customer chose this state on the runner's host.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_decided: bool,
}

impl StateHead {
    /// Returns the version as in reports.
    pub fn version(&self) -> StateVersion {
        let (lineage, digest) = (self.lineage.clone(), Some(self.digest.clone()));
        StateVersion { lineage, serial: self.serial, digest }
    }

    /// Returns true if every field has its format.
    pub fn is_valid(&self) -> bool {
        let digest = || {
            let (generation, digits) = self.digest.strip_prefix("hmac-sha256:")?.split_once(':')?;
            let is_number = generation.parse::<u32>().is_ok_and(|number| number > 0);
            let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
            Some(is_number && digits.len() == 64 && digits.bytes().all(is_hex))
        };
        let fits = |number: u64| i64::try_from(number).is_ok();
        self.version().is_valid()
            && digest() == Some(true)
            && [self.serial, self.fence.epoch, self.fence.position].into_iter().all(fits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_has_a_printable_lineage_and_a_keyed_digest() {
        let digest = format!("hmac-sha256:1:{}", "0a".repeat(32));
        let (lineage, fence) = ("l".to_owned(), Fence { epoch: 1, position: 9 });
        let head = StateHead { lineage, serial: 7, fence, digest, is_empty: false };
        assert!(head.is_valid());
        for broken in [
            StateHead { lineage: "a b".into(), ..head.clone() },
            StateHead { serial: u64::MAX, ..head.clone() },
            StateHead { digest: "hmac-sha256:0:00".into(), ..head.clone() },
            StateHead { digest: format!("sha256:{}", "0a".repeat(32)), ..head.clone() },
        ] {
            assert!(!broken.is_valid(), "{broken:?}");
        }
    }
}
