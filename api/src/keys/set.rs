//! All keys of a server at one time: signing keys and replaced keys.
use chrono::TimeDelta;
use domain::decider::Timestamp;
use ed25519_dalek::{SigningKey, VerifyingKey};
use event_log::CheckpointKey;
use proof::{
    dsse::{self, Envelope},
    key::VerifierKey,
};
use schemas::{
    keys::{KEYS_TYPE, KeyList, KeyUse, ServerKey, fingerprint},
    moment,
};
use serde::Serialize;

/// Time after which every server should have loaded a new key. It is three check intervals.
const RELOAD_TIME: TimeDelta = TimeDelta::seconds(6);

pub struct KeySet {
    pub(super) tokens: CurrentKey,
    pub(super) manifests: CurrentKey,
    pub(super) checkpoints: CurrentKey,
    pub(super) former: Vec<FormerKey>,
}

/// Signing key with its creation time.
pub(super) struct CurrentKey {
    pub key: SigningKey,
    pub made_at: Timestamp,
}

pub struct FormerKey {
    pub usage: KeyUse,
    pub key: VerifyingKey,
    /// Secret key, stored for manifest keys only. The key still signs the key list. It also signs
    /// manifests and grants until every server publishes its successor.
    pub(super) secret: Option<SigningKey>,
    pub made_at: Timestamp,
    /// Time from which the key is invalid.
    pub ended_at: Timestamp,
    /// Size of the log at the last checkpoint that the key signed. Recorded only for an expired
    /// checkpoint key.
    pub last_size: Option<u64>,
}

/// Public data of a key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct PublicKey {
    #[serde(rename = "use")]
    pub usage: KeyUse,
    /// Public key: 32 bytes as 64 hexadecimal digits.
    pub key: String,
    /// SHA-256 of the public key, as printed by the enrol command.
    pub fingerprint: String,
    /// Checkpoint key in the format that proof verifiers use. Absent for other keys, and if no
    /// server has run with these keys yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verifier_key: Option<String>,
    /// Creation time.
    #[serde(with = "moment")]
    pub not_before: Timestamp,
    /// Time from which the key is invalid. Absent for a signing key.
    #[serde(default, with = "moment::optional", skip_serializing_if = "Option::is_none")]
    pub not_after: Option<Timestamp>,
    /// Size of the log at the last checkpoint that an expired checkpoint key signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_size: Option<u64>,
}

impl KeySet {
    pub fn tokens(&self) -> &SigningKey {
        &self.tokens.key
    }

    /// Newest key for manifests and grants.
    pub fn manifests(&self) -> &SigningKey {
        &self.manifests.key
    }

    /// Key that signs manifests and grants at this time. Every server must publish a new key before
    /// any server signs with it, because a runner may fetch the list from any server.
    pub fn manifests_at(&self, now: Timestamp) -> &SigningKey {
        if now >= self.manifests.made_at + RELOAD_TIME {
            return &self.manifests.key;
        }
        let former = self.former(KeyUse::Manifests).filter(|former| now < former.ended_at);
        let latest = former.max_by_key(|former| former.made_at);
        latest.and_then(|former| former.secret.as_ref()).unwrap_or(&self.manifests.key)
    }

    pub fn checkpoints(&self) -> &SigningKey {
        &self.checkpoints.key
    }

    /// Creation time of the key that signs checkpoints.
    pub fn checkpoints_since(&self) -> Timestamp {
        self.checkpoints.made_at
    }

    /// All checkpoint keys, including expired ones, which signed checkpoints while they were valid.
    pub fn checkpoint_keys(&self) -> Vec<VerifyingKey> {
        let former = self.former(KeyUse::Checkpoints).map(|former| former.key);
        std::iter::once(self.checkpoints.key.verifying_key()).chain(former).collect()
    }

    /// Current and former checkpoint keys, and the time at which each former key expires.
    pub fn seal_keys(&self) -> Vec<CheckpointKey> {
        let former = self.former(KeyUse::Checkpoints);
        let former = former.map(|former| CheckpointKey {
            key: former.key,
            until: Some(former.ended_at),
            last_size: former.last_size,
        });
        std::iter::once(self.checkpoints.key.verifying_key().into()).chain(former).collect()
    }

    /// Replaced keys of one use.
    pub fn former(&self, usage: KeyUse) -> impl Iterator<Item = &FormerKey> {
        self.former.iter().filter(move |former| former.usage == usage)
    }

    /// Fingerprint of the manifest key as `sha256:<hex>`. The enrol command prints it so that a
    /// runner can authenticate the server.
    pub fn fingerprint(&self) -> String {
        fingerprint(self.manifests.key.verifying_key().as_bytes())
    }

    /// Public data of all keys, the signing keys first.
    pub fn public(&self) -> Vec<PublicKey> {
        let current = [
            (KeyUse::Tokens, &self.tokens),
            (KeyUse::Manifests, &self.manifests),
            (KeyUse::Checkpoints, &self.checkpoints),
        ];
        let current = current.into_iter().map(|(usage, stored)| {
            public(usage, &stored.key.verifying_key(), stored.made_at, None)
        });
        let former = self.former.iter();
        let former = former.map(|was| PublicKey {
            last_size: was.last_size,
            ..public(was.usage, &was.key, was.made_at, Some(was.ended_at))
        });
        current.chain(former).collect()
    }

    /// Public data of all keys. If the log is known, adds checkpoint keys in the format of
    /// verifiers.
    pub fn public_of(&self, log_id: Option<&str>) -> Vec<PublicKey> {
        let mut all = self.public();
        let Some(log_id) = log_id else { return all };
        // Both lists have the order of `public`: the signing key first, then the replaced keys.
        let known = self.checkpoint_keys();
        let checkpoint_keys = all.iter_mut().filter(|key| key.usage == KeyUse::Checkpoints);
        for (public, key) in checkpoint_keys.zip(known) {
            let name = format!("stead/{log_id}");
            public.verifier_key = Some(VerifierKey { name, key }.to_string());
        }
        all
    }

    /// List of keys, signed by the current and all former manifest keys.
    pub(super) fn list(&self, log_id: &str, now: Timestamp) -> Result<Envelope, serde_json::Error> {
        let listed = |key: PublicKey| ServerKey {
            usage: key.usage,
            key: key.key,
            // The clock may have been set back since the key was created, and a key must not start
            // in the future.
            not_before: key.not_before.min(now),
            not_after: key.not_after,
        };
        let keys = self.public().into_iter().map(listed).collect();
        let list = KeyList { version: 1, log_id: log_id.into(), issued_at: now, keys };
        let former = self.former.iter().filter_map(|former| former.secret.as_ref());
        let signers = std::iter::once(&self.manifests.key).chain(former);
        Ok(dsse::sign_by(KEYS_TYPE, &serde_json::to_vec(&list)?, signers))
    }
}

fn public(
    usage: KeyUse,
    key: &VerifyingKey,
    not_before: Timestamp,
    not_after: Option<Timestamp>,
) -> PublicKey {
    let bytes = key.as_bytes();
    let (key, fingerprint) = (hex::encode(bytes), fingerprint(bytes));
    PublicKey {
        usage,
        key,
        fingerprint,
        verifier_key: None,
        not_before,
        not_after,
        last_size: None,
    }
}
