//! Public keys of a server, and the rules by which a runner trusts them.
//!
//! `GET /.well-known/stead-keys` returns a DSSE envelope around a [`KeyList`], signed by manifest
//! keys of the server. The enrol command contains the [`fingerprint`] of the manifest key that the
//! runner trusts first. Later, the runner accepts a new key only from a list that an already
//! trusted manifest key has signed.
//!
//! The server also signs the list with its former manifest keys until they expire. A runner that
//! trusts only a former key can therefore accept the current key.
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::moment;

/// Path of the key list on the listeners of the Control API and of the Runner API.
pub const KEYS_PATH: &str = "/.well-known/stead-keys";
/// DSSE payload type of the key list.
pub const KEYS_TYPE: &str = "application/vnd.stead.keys.v1+json";

/// List of all public keys of a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct KeyList {
    /// Format version, always 1.
    pub version: u32,
    /// Id of the server's log, a ULID.
    pub log_id: String,
    /// Time when the server signed the list.
    #[serde(with = "moment")]
    pub issued_at: DateTime<Utc>,
    /// Keys in no particular order. After a rotation, the list has several keys of one use.
    pub keys: Vec<ServerKey>,
}

/// Ed25519 public key with its only use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ServerKey {
    /// Only use of the key.
    #[serde(rename = "use")]
    pub usage: KeyUse,
    /// Public key, 32 bytes as 64 hexadecimal digits.
    pub key: String,
    /// Time from which the key is valid.
    #[serde(with = "moment")]
    pub not_before: DateTime<Utc>,
    /// Time until which the key is valid. If absent, the key is valid until a later list omits it.
    #[serde(default, with = "moment::optional", skip_serializing_if = "Option::is_none")]
    pub not_after: Option<DateTime<Utc>>,
}

/// Use of a server key: the kind of documents that the key signs.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum KeyUse {
    /// Access tokens and job tokens of runners.
    Tokens,
    /// Manifests, grants and the key list.
    Manifests,
    /// Checkpoints of the log.
    Checkpoints,
    /// Unknown use of a later version. A runner stores such a key, but never uses it.
    #[serde(other)]
    Other,
}

impl KeyList {
    /// Returns the keys of one use that are valid at the time `at`, as 32 bytes each. Skips
    /// malformed keys.
    ///
    /// A time before the issue time of the list counts as the issue time. Otherwise the holder of
    /// an expired key could make the key valid again with a false time.
    pub fn of(&self, usage: KeyUse, at: DateTime<Utc>) -> Vec<[u8; 32]> {
        let at = at.max(self.issued_at);
        let is_valid =
            |key: &&ServerKey| key.not_before <= at && key.not_after.is_none_or(|end| at < end);
        let of_use = self.keys.iter().filter(|key| key.usage == usage).filter(is_valid);
        of_use.filter_map(|key| hex::decode(&key.key).ok()?.try_into().ok()).collect()
    }
}

/// Returns the fingerprint of a public key: `sha256:` and the SHA-256 of its 32 bytes, hexadecimal.
pub fn fingerprint(key: &[u8; 32]) -> String {
    use sha2::{Digest as _, Sha256};
    format!("sha256:{}", hex::encode(Sha256::digest(key)))
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    #[test]
    fn a_key_is_valid_only_in_its_period() {
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
        let count = |list: &KeyList, at| list.of(KeyUse::Manifests, at).len();
        let second = TimeDelta::seconds(1);
        assert_eq!((count(&list, from - second), count(&list, from)), (0, 1));
        assert_eq!((count(&list, until - second), count(&list, until)), (1, 0));
        assert_eq!(list.of(KeyUse::Tokens, from).len(), 0);
        // A time before the list's issue time must not make an expired key valid again.
        list.issued_at = until;
        assert_eq!(count(&list, until - TimeDelta::hours(1)), 0);
    }
}
