//! Public keys of a server, and the rules for a runner to trust them.
//!
//! `GET /.well-known/stead-keys` returns a DSSE envelope around a [`KeyList`], signed by a manifest
//! key. The enrol command pins that key by its [`fingerprint`]. Later, a runner accepts a new key
//! only from a list that a manifest key it already trusts has signed.
//!
//! The server therefore signs the list with its former manifest keys too. A runner that trusts only
//! a former key can then accept the current one.
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::moment;

/// Path of the key list on both listeners.
pub const KEYS_PATH: &str = "/.well-known/stead-keys";
/// DSSE payload type of the key list.
pub const KEYS_TYPE: &str = "application/vnd.stead.keys.v1+json";

/// All public keys of a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct KeyList {
    /// Format version, always 1.
    pub version: u32,
    /// ULID of the log that the keys belong to.
    pub log_id: String,
    /// Time when the list was signed.
    #[serde(with = "moment")]
    pub issued_at: DateTime<Utc>,
    /// Keys, in no particular order. A rotation lists several keys of the same use.
    pub keys: Vec<ServerKey>,
}

/// Ed25519 public key with its only use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ServerKey {
    /// Use of the key. A key signs nothing else.
    #[serde(rename = "use")]
    pub usage: KeyUse,
    /// Public key, 32 bytes as 64 hexadecimal digits.
    pub key: String,
    /// Time from which the key is valid.
    #[serde(with = "moment")]
    pub not_before: DateTime<Utc>,
    /// Time until which the key is valid. Absent: until a later list omits the key.
    #[serde(default, with = "moment::maybe", skip_serializing_if = "Option::is_none")]
    pub not_after: Option<DateTime<Utc>>,
}

/// Use of a server key.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum KeyUse {
    /// Signs access tokens and job tokens.
    Tokens,
    /// Signs manifests, grants and the key list.
    Manifests,
    /// Signs checkpoints of the log.
    Checkpoints,
    /// Unknown use from a later version. The runner stores such a key and never uses it.
    #[serde(other)]
    Other,
}

impl KeyList {
    /// Returns the keys of one use that are valid at `at`, as 32 bytes each. A malformed key is
    /// skipped.
    ///
    /// A time before the list's issue time counts as the issue time. Otherwise the holder of an
    /// expired key could make it valid again with a false time.
    pub fn of(&self, usage: KeyUse, at: DateTime<Utc>) -> Vec<[u8; 32]> {
        let at = at.max(self.issued_at);
        let good =
            |key: &&ServerKey| key.not_before <= at && key.not_after.is_none_or(|end| at < end);
        let of_use = self.keys.iter().filter(|key| key.usage == usage).filter(good);
        of_use.filter_map(|key| hex::decode(&key.key).ok()?.try_into().ok()).collect()
    }
}

/// Returns the fingerprint that the enrol command prints: `sha256:` and the SHA-256 of the key's 32
/// bytes.
pub fn fingerprint(key: &[u8; 32]) -> String {
    use sha2::{Digest as _, Sha256};
    format!("sha256:{}", hex::encode(Sha256::digest(key)))
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    #[test]
    fn a_key_is_one_only_in_its_time() {
        let from: DateTime<Utc> = "2026-11-21T12:00:00Z".parse().unwrap();
        let until = from + TimeDelta::days(1);
        let key = ServerKey {
            usage: KeyUse::Manifests,
            key: "11".repeat(32),
            not_before: from,
            not_after: Some(until),
        };
        let issued_at = from - TimeDelta::days(1);
        let mut list = KeyList { version: 1, log_id: "L".into(), issued_at, keys: vec![key] };
        let found = |list: &KeyList, at| list.of(KeyUse::Manifests, at).len();
        let second = TimeDelta::seconds(1);
        assert_eq!((found(&list, from - second), found(&list, from)), (0, 1));
        assert_eq!((found(&list, until - second), found(&list, until)), (1, 0));
        assert_eq!(list.of(KeyUse::Tokens, from).len(), 0);
        // A time before the list's issue time must not make an expired key valid again.
        list.issued_at = until;
        assert_eq!(found(&list, until - TimeDelta::hours(1)), 0);
    }
}
