//! Plan digests, which approvals cover.
//!
//! The digest covers the plan file, the summary that the user read, the plan job's manifest and the
//! tool. A runner therefore refuses to apply anything else. Version 2 also covers the [`details`] of
//! the plan, the plugin and the executable of the tool.
//!
//! The runner that made the plan signs a [`statement`] with the plan digest, the job and the
//! execution.
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use serde::Serialize;

use crate::{
    Hash,
    canonical::{self, CanonicalError},
    digest_text, dsse, sha256_of,
};

/// DSSE payload type of a signed [`statement`].
pub const STATEMENT: &str = "application/vnd.stead.plan.v1+json";

/// Returns the digest of a plan from its parts.
///
/// `file` is the hash of the plan file, and `manifest` is the hash of the plan job's manifest.
/// `tool` is the name and version of the tool in one string, such as `terraform 1.9.8`.
///
/// # Errors
/// [`CanonicalError`] if the summary has no canonical JSON.
pub fn digest<S: Serialize>(
    file: &Hash,
    summary: &S,
    manifest: &Hash,
    tool: &str,
) -> Result<Hash, CanonicalError> {
    Ok(digest_of(file, &canonical::hash(summary)?, manifest, tool))
}

/// Returns the plan digest from the hash of the summary's canonical JSON.
pub fn digest_of(file: &Hash, summary: &Hash, manifest: &Hash, tool: &str) -> Hash {
    // A tool's name and version are far below 4 GiB.
    let length = u32::try_from(tool.len()).unwrap_or(u32::MAX).to_be_bytes();
    sha256_of(&[b"stead/plan/v1\n", file, summary, manifest, &length, tool.as_bytes()])
}

/// Digests of the parts that only version 2 of the plan digest covers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PartsV2 {
    /// [`details`] digest. Absent without details.
    pub details: Option<Hash>,
    /// Digest of the plugin. Absent for a plugin that is built into the runner.
    pub plugin: Option<Hash>,
    /// Digest of the executable of the tool. Absent if the plugin is the tool.
    pub tool: Option<Hash>,
}

/// Returns the plan digest of version 2 from the parts of version 1 and the further parts.
pub fn digest_v2(
    file: &Hash,
    summary: &Hash,
    manifest: &Hash,
    tool: &str,
    parts: &PartsV2,
) -> Hash {
    let length = u32::try_from(tool.len()).unwrap_or(u32::MAX).to_be_bytes();
    let [details, plugin, executable] =
        [parts.details, parts.plugin, parts.tool].map(|part| match part {
            None => vec![0],
            Some(hash) => [&[1], &hash[..]].concat(),
        });
    sha256_of(&[
        b"stead/plan/v2\n",
        file,
        summary,
        manifest,
        &details,
        &plugin,
        &executable,
        &length,
        tool.as_bytes(),
    ])
}

/// Returns the salt of a plan's details, from the hash of the plan file and a secret key of the
/// install's runner.
///
/// Events keep the digest of the details. Without the salt, which is erased with the details, the
/// digest cannot confirm a guess of their content.
pub fn salt(file: &Hash, key: &Hash) -> Hash {
    sha256_of(&[b"stead/plan-salt/v1\n", file, key])
}

/// Returns the digest of a plan's details: their RFC 8785 JSON with its salt.
pub fn details(salt: &Hash, content: &[u8]) -> Hash {
    sha256_of(&[b"stead/plan-details/v1\n", salt, content])
}

/// Returns the statement that a runner signs about a plan, the payload of a DSSE envelope of type
/// [`STATEMENT`].
///
/// The runner's key also signs other documents. The type and the ids prevent the reuse of a
/// signature for another document.
pub fn statement(plan: &Hash, job: &str, execution: &str) -> Vec<u8> {
    // Ids and digests need no escapes, so this is already RFC 8785 JSON.
    let digest = digest_text(plan);
    format!(r#"{{"digest":"{digest}","execution":"{execution}","job":"{job}"}}"#).into_bytes()
}

/// Returns the signature of a [`statement`], in base64 as in an envelope.
pub fn sign(statement: &[u8], key: &SigningKey) -> String {
    let signature = key.sign(&dsse::pre_authentication(STATEMENT, statement));
    BASE64.encode(signature.to_bytes())
}

/// Returns whether this key signed the [`statement`].
pub fn is_signed(statement: &[u8], signature: &str, key: &VerifyingKey) -> bool {
    let signature = BASE64.decode(signature).ok();
    let signature = signature.and_then(|bytes| Signature::from_slice(&bytes).ok());
    signature.is_some_and(|signature| {
        key.verify_strict(&dsse::pre_authentication(STATEMENT, statement), &signature).is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_canonical_and_its_signature_is_valid_for_no_other_document() {
        let key = SigningKey::from_bytes(&[7; 32]);
        let signed = statement(&[1; 32], "job_1", "exe_1");
        let read: serde_json::Value = serde_json::from_slice(&signed).expect("JSON");
        assert_eq!(canonical::json(&read).expect("canonical"), signed);
        let signature = sign(&signed, &key);
        assert!(is_signed(&signed, &signature, &key.verifying_key()));
        let another = SigningKey::from_bytes(&[8; 32]).verifying_key();
        assert!(!is_signed(&signed, &signature, &another));
        for other in [("job_2", "exe_1"), ("job_1", "exe_2")] {
            let other = statement(&[1; 32], other.0, other.1);
            assert!(!is_signed(&other, &signature, &key.verifying_key()));
        }
        let bare = BASE64.encode(key.sign(&signed).to_bytes());
        assert!(!is_signed(&signed, &bare, &key.verifying_key()));
    }
}
