//! Enrolment of a runner with its server, once.
//!
//! The customer has the fingerprint of one key. That key must sign the list of keys that the server
//! returns. Only then does the runner send its token.
use std::{collections::BTreeMap, io};

use anyhow::{Context as _, bail};
use domain::ids::{InstallId, RunnerId};
use proof::{
    dsse::{self, Envelope},
    key::VerifierKey,
};
use reqwest::Method;
use schemas::{
    keys::{KEYS_PATH, KEYS_TYPE, KeyList, KeyUse, fingerprint},
    runner::{Enrol, Enrolled, Host, RecoveryOffer, RecoveryProof, RecoveryRequest, RunnerMode},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use zeroize::Zeroizing;

use crate::{
    client::{ApiRequest, Client},
    data::{self, Data},
    host,
    keys::Keys,
    tls::Trust,
    witness,
};

/// Identity of an enrolled runner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Identity {
    pub runner: RunnerId,
    pub mode: RunnerMode,
    /// Install of the runner; `None` for a build runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install: Option<InstallId>,
    /// Id of the server's log, which the runner witnesses.
    pub log_id: String,
    /// URL of the Runner API.
    pub server: String,
    /// Trusted certificates of the server.
    pub trust: Trust,
}

#[derive(Clone)]
pub struct EnrolmentOptions {
    pub mode: RunnerMode,
    pub server: String,
    pub trust: Trust,
    pub token: Zeroizing<String>,
    /// Fingerprint of the server's manifest key.
    pub server_key: String,
    pub stack_outputs: BTreeMap<String, Value>,
    /// Install whose keys this runner recovered, and the proof.
    pub recovery: Option<(InstallId, RecoveryProof)>,
}

/// Returns the identity of this runner, or `None` if the runner is not enrolled.
pub fn stored_identity(data: &Data) -> io::Result<Option<Identity>> {
    data::read_json(&data.path("runner.json"))
}

pub fn store_identity(data: &Data, identity: &Identity) -> io::Result<()> {
    data::replace_json(&data.path("runner.json"), identity)
}

/// Returns the trusted keys of the server.
pub fn server_keys(data: &Data) -> anyhow::Result<KeyList> {
    let keys = data::read_json(&data.path("server-keys.json"))?;
    keys.context(
        "cannot read the server's keys: the data directory has none; enrol the runner first",
    )
}

/// Returns the checkpoint keys that are valid now, for verifiers outside this runner.
pub fn checkpoint_keys(data: &Data) -> anyhow::Result<Vec<VerifierKey>> {
    let list = server_keys(data)?;
    let name = format!("stead/{}", list.log_id);
    let keys = witness::of(&list, KeyUse::Checkpoints, host::server_now());
    Ok(keys.into_iter().map(|key| VerifierKey { name: name.clone(), key }).collect())
}

/// Reads what a new host needs to recover the keys of the install.
pub async fn recovery_offer(options: &EnrolmentOptions) -> anyhow::Result<RecoveryOffer> {
    const FAILED: &str = "cannot recover the install";
    let client = Client::new(&options.server, &options.trust)?;
    let list = verified_key_list(&fetch_keys(&client).await?, &options.server_key)?;
    let body = RecoveryRequest { token: options.token.to_string() };
    let request = ApiRequest::json(Method::POST, "/runner/v1/recovery", &body)?;
    let response = client.send::<RecoveryOffer>(&request.without_token().idle()).await;
    let offer = response.context(FAILED)?.body.context(FAILED)?;
    if offer.log_id != list.log_id {
        bail!("{FAILED}: the server's response is of another log than its keys; check --server");
    }
    Ok(offer)
}

/// Enrols this runner. A repeated request with the same token and keys gets the same response.
pub async fn enrol(
    data: &Data,
    keys: &Keys,
    options: &EnrolmentOptions,
) -> anyhow::Result<Identity> {
    let client = Client::new(&options.server, &options.trust)?;
    let list = verified_key_list(&fetch_keys(&client).await?, &options.server_key)?;
    let install = options.mode == RunnerMode::Install;
    let body = Enrol {
        token: options.token.to_string(),
        mode: options.mode,
        identity_key: keys.identity_hex(),
        install_keys: keys.signed_install_keys().filter(|_| install),
        version: env!("CARGO_PKG_VERSION").into(),
        host: this_host(),
        stack_outputs: options.stack_outputs.clone(),
        recovery: options.recovery.as_ref().map(|(_, proof)| proof.clone()),
    };
    let request = ApiRequest::json(Method::POST, "/runner/v1/enrol", &body)?.without_token().idle();
    let response = client.send::<Enrolled>(&request).await.context("cannot enrol")?;
    let enrolled = response.body.context("cannot enrol: the server's response has no body")?;
    host::set_server_time(enrolled.server_time);
    if enrolled.log_id != list.log_id {
        bail!(
            "cannot enrol: the server enrolled this runner with log {}, but the server's keys are of log {}",
            enrolled.log_id,
            list.log_id
        );
    }
    // The server could give the keys of one install to a runner of another one.
    if let Some((install, _)) = &options.recovery
        && enrolled.install != Some(*install)
    {
        bail!(
            "cannot enrol: the keys are of {install}, but the server enrolled this runner for another install; remove the data \
             directory, and ask the vendor for the reason"
        );
    }
    let identity = Identity {
        runner: enrolled.runner,
        mode: enrolled.mode,
        install: enrolled.install,
        log_id: enrolled.log_id,
        server: options.server.clone(),
        trust: options.trust.clone(),
    };
    data::replace_json(&data.path("server-keys.json"), &list)?;
    store_identity(data, &identity)?;
    Ok(identity)
}

/// Stores a key list, if a trusted manifest key signed it and it is not older than `trusted`.
/// Responses can arrive out of order, so `trusted` must be the trusted list at the arrival of the
/// response.
pub fn renew_keys(data: &Data, envelope: &Envelope, trusted: &KeyList) -> anyhow::Result<KeyList> {
    // An expired key cannot sign a new list.
    let signers = witness::of(trusted, KeyUse::Manifests, host::server_now());
    let bytes = dsse::verify_as(KEYS_TYPE, envelope, &signers)?;
    let list: KeyList = serde_json::from_slice(&bytes)?;
    if list.log_id != trusted.log_id {
        bail!(
            "rejected the server's key list: it belongs to log {}, but this runner is enrolled with log {}",
            list.log_id,
            trusted.log_id
        );
    }
    if list.issued_at < trusted.issued_at {
        bail!(
            "rejected the server's key list: it was issued at {}, before the stored list of {}",
            list.issued_at,
            trusted.issued_at
        );
    }
    data::replace_json(&data.path("server-keys.json"), &list)?;
    Ok(list)
}

/// Fetches the server's key list without verifying its signature.
pub async fn fetch_keys(client: &Client) -> anyhow::Result<Envelope> {
    let request = ApiRequest::new(Method::GET, KEYS_PATH).without_token().idle();
    let response =
        client.send::<Envelope>(&request).await.context("cannot fetch the server's keys")?;
    response.body.context("cannot fetch the server's keys: the response has no body")
}

/// Returns the key list, if it contains the key with this fingerprint and that key signed the list.
fn verified_key_list(envelope: &Envelope, expected: &str) -> anyhow::Result<KeyList> {
    let expected = expected.trim_start_matches("sha256:").to_lowercase();
    // Searches for the key in unverified data. The list is trusted only if that key signed it.
    let unverified = dsse_payload(envelope)?;
    let list: KeyList =
        serde_json::from_slice(&unverified).context("cannot parse the server's keys")?;
    let is_expected = |key: &&[u8; 32]| fingerprint(key).trim_start_matches("sha256:") == expected;
    let keys = list.of(KeyUse::Manifests, list.issued_at);
    let Some(key) = keys.iter().find(is_expected) else {
        bail!(
            "cannot enrol: the server does not have the key of --server-key; check --server and --server-key"
        );
    };
    let key = ed25519_dalek::VerifyingKey::from_bytes(key)?;
    let bytes = dsse::verify_as(KEYS_TYPE, envelope, &[key])?;
    Ok(serde_json::from_slice(&bytes)?)
}

fn dsse_payload(envelope: &Envelope) -> anyhow::Result<Vec<u8>> {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    Ok(STANDARD.decode(&envelope.payload)?)
}

fn this_host() -> Host {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let hostname = name.map(|name| name.trim().to_owned());
    Host { os: std::env::consts::OS.into(), arch: std::env::consts::ARCH.into(), hostname }
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::SigningKey;
    use schemas::keys::ServerKey;

    use super::*;

    fn list(key: &SigningKey) -> KeyList {
        let now = "2026-11-21T12:00:00Z".parse().unwrap();
        let key = ServerKey {
            usage: KeyUse::Manifests,
            key: hex::encode(key.verifying_key().as_bytes()),
            not_before: now,
            not_after: None,
        };
        KeyList { version: 1, log_id: "L".into(), issued_at: now, keys: vec![key] }
    }

    #[test]
    fn checkpoint_keys_are_those_valid_now() {
        let dir = tempfile::tempdir().unwrap();
        let data = Data::open(dir.path()).unwrap();
        assert!(checkpoint_keys(&data).is_err());
        let key = |seed: u8| SigningKey::from_bytes(&[seed; 32]);
        let mut all = list(&key(1));
        let at = all.issued_at - chrono::TimeDelta::days(1);
        for (seed, not_after) in [(2, None), (3, Some(at))] {
            let key = hex::encode(key(seed).verifying_key().as_bytes());
            let usage = KeyUse::Checkpoints;
            all.keys.push(ServerKey { usage, key, not_before: at, not_after });
        }
        data::replace_json(&data.path("server-keys.json"), &all).unwrap();
        let valid = checkpoint_keys(&data).unwrap();
        let expected = VerifierKey { name: "stead/L".into(), key: key(2).verifying_key() };
        assert_eq!(valid, std::slice::from_ref(&expected));
        assert_eq!(expected.to_string().parse(), Ok(expected));
    }

    #[test]
    fn only_the_pinned_key_authenticates_the_key_list() {
        let (ours, other) = (SigningKey::from_bytes(&[1; 32]), SigningKey::from_bytes(&[2; 32]));
        let payload = serde_json::to_vec(&list(&ours)).unwrap();
        let pinned = fingerprint(ours.verifying_key().as_bytes());
        let honest = dsse::sign(KEYS_TYPE, &payload, &ours);
        assert_eq!(verified_key_list(&honest, &pinned).unwrap(), list(&ours));
        assert!(verified_key_list(&honest, &pinned.to_uppercase().replace("SHA256:", "")).is_ok());
        assert!(
            verified_key_list(&honest, &fingerprint(other.verifying_key().as_bytes())).is_err()
        );
        // The list contains the key, but another key signed it.
        assert!(verified_key_list(&dsse::sign(KEYS_TYPE, &payload, &other), &pinned).is_err());
    }
}
