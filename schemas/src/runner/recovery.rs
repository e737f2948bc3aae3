//! Recovery of the keys of an install on a new host: the wrapped seeds that the server stores, and
//! the enrolment of the successor.
use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use domain::{
    ids::{InstallId, RunnerId},
    state_version::StateVersion,
};
use ed25519_dalek::{Signature, VerifyingKey};
use proof::dsse;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{InstallPublicKeys, StateHead};

/// DSSE payload type of the fields that the former keys of an install sign.
pub const SUCCESSION_TYPE: &str = "application/vnd.stead.install-keys-succession.v1+json";
/// Maximum number of recovery recipients of a runner.
pub const MAX_RECIPIENTS: usize = 10;
/// Maximum size of a wrapped seed in bytes.
pub const WRAPPED_SEED_BYTES: usize = 4096;
/// Maximum length of a recipient in bytes.
const RECIPIENT_BYTES: usize = 128;

/// Seed of an install, wrapped for one recovery recipient. The server stores it and cannot read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WrappedSeed {
    /// Recipient: the public key of an age identity.
    #[schema(max_length = 128)]
    pub recipient: String,
    /// Generation of the keys.
    pub generation: u32,
    /// Document that `stead-runner recovery export` prints.
    #[schema(max_length = 4096)]
    pub wrapped: String,
}

impl WrappedSeed {
    /// Returns why the server cannot store it.
    pub fn problem(&self) -> Option<&'static str> {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let recipient = self.recipient.as_bytes();
        if recipient.is_empty()
            || recipient.len() > RECIPIENT_BYTES
            || !recipient.iter().copied().all(is_plain)
        {
            return Some("must have the public key of an age identity in recipient");
        }
        if self.generation == 0 {
            return Some("must have a generation from 1 on");
        }
        let size = self.wrapped.len();
        let is_too_large = size == 0 || size > WRAPPED_SEED_BYTES || self.wrapped.contains('\0');
        is_too_large.then_some("must have 1 to 4096 bytes of text in wrapped")
    }
}

/// Request of `POST /runner/v1/recovery`.
///
/// Responses: 200 [`RecoveryOffer`]. 401 for an unknown, revoked or expired token. 409 for a token
/// that a runner has enrolled with, or that was used 100 times. 422 for a token of a build runner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RecoveryRequest {
    /// Enrolment token of the new runner. The request does not use it up.
    pub token: String,
}

/// Response to [`RecoveryRequest`]. The new host checks everything in it: the server can lie.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RecoveryOffer {
    /// Id of the install: `ins_` and a ULID.
    #[schema(value_type = String)]
    pub install: InstallId,
    /// Id of the server's log.
    pub log_id: String,
    /// Wrapped seeds of the current keys of the install, or of the former runner that the vendor
    /// chose, at most 100: those of its runner first, and the last stored first.
    pub seeds: Vec<OfferedSeed>,
    /// Newest state of each component that has one.
    pub states: BTreeMap<String, StateHead>,
    /// Later states that the lost host reported and never sent, by component. Each component waits
    /// until a user of the vendor accepts another one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub awaited: BTreeMap<String, StateVersion>,
}

/// Wrapped seed, and the runner that stored it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OfferedSeed {
    /// Id of the runner: `rnr_` and a ULID.
    #[schema(value_type = String)]
    pub runner: RunnerId,
    /// Document that this runner stored.
    pub wrapped: String,
}

/// Proof in an enrolment that the new runner recovered the keys of the install.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RecoveryProof {
    /// Id of the runner whose keys were recovered: `rnr_` and a ULID. The server revokes it.
    #[schema(value_type = String)]
    pub former: RunnerId,
    /// Signature of the new public keys ([`succession`]) by the former signing key, base64.
    pub signature: String,
    /// States that the customer accepted as the newest ones, by component. They must be those that
    /// the server has.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub accepted_states: BTreeMap<String, StateHead>,
    /// Wrapped seeds of the new keys. The new host may be lost before its first session.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 10)]
    pub wrapped_seeds: Vec<WrappedSeed>,
}

/// Returns the bytes that the former keys of an install sign: DSSE around RFC 8785 JSON of the log,
/// the install and the new keys.
pub fn succession(log_id: &str, install: InstallId, keys: &InstallPublicKeys) -> Vec<u8> {
    // The keys are sorted, and `json!` escapes like RFC 8785.
    let payload = serde_json::json!({
        "encryption_key": keys.encryption_key,
        "generation": keys.generation,
        "install": install,
        "log_id": log_id,
        "signing_key": keys.signing_key,
        "version": 1,
    });
    dsse::pre_authentication(SUCCESSION_TYPE, payload.to_string().as_bytes())
}

/// Returns true if `former_key`, hexadecimal, signed the new keys of the install.
pub fn succession_is_signed(
    (log_id, install): (&str, InstallId),
    keys: &InstallPublicKeys,
    former_key: &str,
    signature: &str,
) -> bool {
    let verify = || {
        let key: [u8; 32] = hex::decode(former_key).ok()?.try_into().ok()?;
        let key = VerifyingKey::from_bytes(&key).ok()?;
        let signature = Signature::from_slice(&STANDARD.decode(signature).ok()?).ok()?;
        key.verify_strict(&succession(log_id, install, keys), &signature).ok()
    };
    verify().is_some()
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::{Signer as _, SigningKey};

    use super::*;
    use crate::runner::sign_install_keys;

    #[test]
    fn the_succession_covers_log_install_and_keys() {
        let (former, other) = (SigningKey::from_bytes(&[1; 32]), SigningKey::from_bytes(&[2; 32]));
        let public = |key: &SigningKey| hex::encode(key.verifying_key().as_bytes());
        let id =
            |digit| format!("ins_0000000000000000000000000{digit}").parse::<InstallId>().unwrap();
        let install = id(1);
        let keys = sign_install_keys(2, "aa".into(), "bb".into(), &other);
        let signature = STANDARD.encode(former.sign(&succession("log", install, &keys)).to_bytes());
        let is_signed = |of: (&str, InstallId), keys: &InstallPublicKeys, by: &SigningKey| {
            succession_is_signed(of, keys, &public(by), &signature)
        };
        assert!(is_signed(("log", install), &keys, &former));
        assert!(!is_signed(("log", install), &keys, &other));
        assert!(!is_signed(("other", install), &keys, &former));
        assert!(!is_signed(("log", id(2)), &keys, &former));
        for changed in [
            InstallPublicKeys { generation: 3, ..keys.clone() },
            InstallPublicKeys { encryption_key: "ab".into(), ..keys.clone() },
            InstallPublicKeys { signing_key: "ab".into(), ..keys },
        ] {
            assert!(!is_signed(("log", install), &changed, &former), "{changed:?}");
        }
    }

    #[test]
    fn a_wrapped_seed_has_limits() {
        let (recipient, wrapped) = ("age1mz625ny4".to_owned(), "{}".to_owned());
        let seed = WrappedSeed { recipient, generation: 1, wrapped };
        assert_eq!(seed.problem(), None);
        for broken in [
            WrappedSeed { recipient: String::new(), ..seed.clone() },
            WrappedSeed { recipient: "age1 x".into(), ..seed.clone() },
            WrappedSeed { recipient: "a".repeat(129), ..seed.clone() },
            WrappedSeed { generation: 0, ..seed.clone() },
            WrappedSeed { wrapped: "x".repeat(4097), ..seed.clone() },
            WrappedSeed { wrapped: "a\0".into(), ..seed },
        ] {
            assert!(broken.problem().is_some(), "{broken:?}");
        }
    }
}
