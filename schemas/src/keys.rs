//! The public keys of a server, and how a runner comes to trust them.
//!
//! `GET /.well-known/stead-keys` answers a DSSE envelope around a [`KeyList`], signed by a manifest key. The
//! enrol command names that key by its [`fingerprint`]; from then on a runner takes a new key only from a
//! list that is signed by a manifest key it already has. So a list is signed by the former manifest keys, too:
//! that is how a runner that knows only one of them comes to the new one.
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::moment;

/// Where both listeners serve the list.
pub const KEYS_PATH: &str = "/.well-known/stead-keys";
/// DSSE payload type of the list.
pub const KEYS_TYPE: &str = "application/vnd.stead.keys.v1+json";

/// Every key that a runner may meet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct KeyList {
    /// 1.
    pub version: u32,
    /// The ULID of the log that these keys speak for.
    pub log_id: String,
    /// When the list was signed.
    #[serde(with = "moment")]
    pub issued_at: DateTime<Utc>,
    /// In no particular order; several of one use while keys rotate.
    pub keys: Vec<ServerKey>,
}

/// One Ed25519 public key and what it signs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ServerKey {
    /// What it signs. A key signs nothing else.
    #[serde(rename = "use")]
    pub usage: KeyUse,
    /// The 32 bytes, 64 hexadecimal digits.
    pub key: String,
    /// From when on.
    #[serde(with = "moment")]
    pub not_before: DateTime<Utc>,
    /// Until when; absent: until a list without it.
    #[serde(default, with = "moment::maybe", skip_serializing_if = "Option::is_none")]
    pub not_after: Option<DateTime<Utc>>,
}

/// What a server's key signs.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum KeyUse {
    /// Access tokens and job tokens.
    Tokens,
    /// Manifests, grants and this list.
    Manifests,
    /// Checkpoints of the log.
    Checkpoints,
    /// A use of a later version; such a key is kept and never used.
    #[serde(other)]
    Other,
}

impl KeyList {
    /// The keys of one use that are good at this moment, as their 32 bytes; a malformed key is left out. The
    /// moment is never before the list itself: whoever has a key whose time is over may also say what time it is.
    pub fn of(&self, usage: KeyUse, at: DateTime<Utc>) -> Vec<[u8; 32]> {
        let at = at.max(self.issued_at);
        let good =
            |key: &&ServerKey| key.not_before <= at && key.not_after.is_none_or(|end| at < end);
        let of_use = self.keys.iter().filter(|key| key.usage == usage).filter(good);
        of_use.filter_map(|key| hex::decode(&key.key).ok()?.try_into().ok()).collect()
    }
}

/// What the enrol command prints: `sha256:` and the SHA-256 of the key's 32 bytes.
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
        // Who says that it is an hour ago does not bring back what was over when the list was made.
        list.issued_at = until;
        assert_eq!(found(&list, until - TimeDelta::hours(1)), 0);
    }
}
