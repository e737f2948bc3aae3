//! All keys of a server at one moment: those that sign, and those that were replaced.
use chrono::TimeDelta;
use domain::decider::Timestamp;
use ed25519_dalek::{SigningKey, VerifyingKey};
use event_log::SealKey;
use proof::{
    dsse::{self, Envelope},
    key::VerifierKey,
};
use schemas::{
    keys::{KEYS_TYPE, KeyList, KeyUse, ServerKey, fingerprint},
    moment,
};
use serde::Serialize;

/// So long after a new key was made each server has looked for it, three times.
const SEEN: TimeDelta = TimeDelta::seconds(6);

/// The keys of a server.
pub struct KeySet {
    pub(super) tokens: Stored,
    pub(super) manifests: Stored,
    pub(super) checkpoints: Stored,
    pub(super) former: Vec<Former>,
}

/// One key and when it was made.
pub(super) struct Stored {
    pub key: SigningKey,
    pub made_at: Timestamp,
}

/// A key that was replaced.
pub struct Former {
    /// What it signed.
    pub usage: KeyUse,
    /// Its public half.
    pub key: VerifyingKey,
    /// Kept of a manifest key only: it signs the list, and manifests and grants until every server shows its successor.
    pub(super) secret: Option<SigningKey>,
    /// When it was made.
    pub made_at: Timestamp,
    /// From when on it is not believed.
    pub ended_at: Timestamp,
    /// Size of the log at the last checkpoint that it signed. Kept of a key of checkpoints only, when its time is over.
    pub last_size: Option<u64>,
}

/// What everybody may know of a key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct PublicKey {
    /// What it signs, or signed.
    #[serde(rename = "use")]
    pub usage: KeyUse,
    /// The 32 bytes, 64 hexadecimal digits.
    pub key: String,
    /// Their SHA-256, as the enrol command has it.
    pub fingerprint: String,
    /// A key of checkpoints as whoever checks a proof takes it. Absent: no server has run with these keys yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verifier_key: Option<String>,
    /// When it was made.
    #[serde(with = "moment")]
    pub not_before: Timestamp,
    /// Absent: it signs.
    #[serde(default, with = "moment::maybe", skip_serializing_if = "Option::is_none")]
    pub not_after: Option<Timestamp>,
    /// Size of the log at the last checkpoint that it signed, of a key of checkpoints whose time is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_size: Option<u64>,
}

impl KeySet {
    /// Signs tokens.
    pub fn tokens(&self) -> &SigningKey {
        &self.tokens.key
    }

    /// Signs manifests and grants.
    pub fn manifests(&self) -> &SigningKey {
        &self.manifests.key
    }

    /// Signs manifests and grants at this time. A new key is shown by every server that has these keys before one of
    /// them signs with it: a runner that asks another one must find it there.
    pub fn manifests_at(&self, now: Timestamp) -> &SigningKey {
        if now >= self.manifests.made_at + SEEN {
            return &self.manifests.key;
        }
        let former = self.former(KeyUse::Manifests).filter(|former| now < former.ended_at);
        let latest = former.max_by_key(|former| former.made_at);
        latest.and_then(|former| former.secret.as_ref()).unwrap_or(&self.manifests.key)
    }

    /// Signs checkpoints.
    pub fn checkpoints(&self) -> &SigningKey {
        &self.checkpoints.key
    }

    /// When the key that signs checkpoints was made.
    pub fn checkpoints_since(&self) -> Timestamp {
        self.checkpoints.made_at
    }

    /// Every key that signs checkpoints or did, whatever its time: a published one was signed in it.
    pub fn checkpoint_keys(&self) -> Vec<VerifyingKey> {
        let former = self.former(KeyUse::Checkpoints).map(|former| former.key);
        std::iter::once(self.checkpoints.key.verifying_key()).chain(former).collect()
    }

    /// Checkpoint keys, present and former, each with its end.
    pub fn seal_keys(&self) -> Vec<SealKey> {
        let former = self.former(KeyUse::Checkpoints);
        let former = former.map(|former| SealKey {
            key: former.key,
            until: Some(former.ended_at),
            last_size: former.last_size,
        });
        std::iter::once(self.checkpoints.key.verifying_key().into()).chain(former).collect()
    }

    /// The keys of one use that were replaced, and until when each is believed.
    pub fn former(&self, usage: KeyUse) -> impl Iterator<Item = &Former> {
        self.former.iter().filter(move |former| former.usage == usage)
    }

    /// What the enrol command prints so that a runner knows whom it talks to: `sha256:<hex>`.
    pub fn fingerprint(&self) -> String {
        fingerprint(self.manifests.key.verifying_key().as_bytes())
    }

    /// The public half of every key, the ones that sign first.
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

    /// The same, with what keys of checkpoints are called in this log.
    pub fn public_of(&self, log_id: Option<&str>) -> Vec<PublicKey> {
        let mut all = self.public();
        let Some(log_id) = log_id else { return all };
        // In the order of `public`: those that sign, then those that were replaced.
        let known = self.checkpoint_keys();
        let named = all.iter_mut().filter(|key| key.usage == KeyUse::Checkpoints);
        for (public, key) in named.zip(known) {
            let name = format!("stead/{log_id}");
            public.verifier_key = Some(VerifierKey { name, key }.to_string());
        }
        all
    }

    /// The list of them, signed by every manifest key that there was.
    pub(super) fn list(&self, log_id: &str, now: Timestamp) -> Result<Envelope, serde_json::Error> {
        let listed = |key: PublicKey| ServerKey {
            usage: key.usage,
            key: key.key,
            // A clock that was set back since must not make them keys of the future.
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
