//! Recovery of the keys of an install by a runner on a new host.
use std::collections::BTreeMap;

use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use super::{Install, InstallError, InstallEvent};
use crate::{ids::RunnerId, state_version::StateVersion};

/// Recovery of the keys of an install. The caller has verified the signature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Recovery {
    /// Runner that recovered the keys.
    pub runner: RunnerId,
    /// Runner whose keys it recovered. The server rejects it from now on.
    pub former: RunnerId,
    /// Generation of the keys from now on.
    pub generation: u32,
    /// Signature of the new public keys by the signing key of the former runner's install keys,
    /// base64.
    pub signature: String,
    /// States that the customer accepted as the newest ones, by component. Nothing proves that: the
    /// lost host may have written later ones.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unproved_states: BTreeMap<String, StateVersion>,
}

impl Install {
    /// Records a recovery unless another host has recovered the keys of the same runner: both hosts
    /// would continue from them.
    pub(super) fn recover(&self, recovery: Recovery) -> Result<Vec<InstallEvent>, InstallError> {
        let former = recovery.former;
        match self.recoveries.iter().find(|known| known.former == former) {
            Some(known) => Err(InstallError::AlreadyRecovered { former, runner: known.runner }),
            None => Ok(vec![InstallEvent::Recovered(recovery)]),
        }
    }

    pub(super) fn recovered(&mut self, recovery: Recovery) {
        self.recoveries.push(Recovery { unproved_states: BTreeMap::new(), ..recovery });
    }
}
