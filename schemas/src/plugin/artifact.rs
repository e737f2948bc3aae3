//! Published plugin: an OCI index with one image manifest per platform. Each manifest has two
//! layers: the executable, and a DSSE envelope with a [`PluginStatement`] that the publisher
//! signed.
use domain::digest::Digest;
use ed25519_dalek::VerifyingKey;
use proof::dsse::{self, Envelope, EnvelopeError};
use serde::{Deserialize, Serialize};

/// Artifact type of the index and of its manifests.
pub const ARTIFACT_TYPE: &str = "application/vnd.stead.plugin.v1";
/// Media type of the layer with the executable.
pub const EXECUTABLE_TYPE: &str = "application/vnd.stead.plugin.executable.v1";
/// Media type of the layer with the envelope.
pub const ENVELOPE_TYPE: &str = "application/vnd.dsse.envelope.v1+json";
/// DSSE payload type of a [`PluginStatement`].
pub const STATEMENT_TYPE: &str = "application/vnd.stead.plugin.v1+json";
/// Maximum size of an executable in bytes.
pub const EXECUTABLE_LIMIT: u64 = 512 << 20;
/// Maximum size of an envelope in bytes.
pub const ENVELOPE_LIMIT: u64 = 64 << 10;
/// First part of the repository of every plugin. Names of apps contain no `.`.
pub const REPOSITORY: &str = "stead.plugins";

/// Returns the repository of a plugin.
pub fn repository(name: &str) -> String {
    format!("{REPOSITORY}/{name}")
}

/// Returns whether a platform has the form `os/architecture`, in lower-case letters and digits.
pub fn is_platform(text: &str) -> bool {
    let plain = |part: &str| {
        (1..=32).contains(&part.len())
            && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    };
    text.split_once('/').is_some_and(|(os, architecture)| plain(os) && plain(architecture))
}

/// Returns whether a version has 1 to 64 letters, digits, `.`, `-`, `+` and `_`.
pub fn is_version(text: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'+' | b'_');
    (1..=64).contains(&text.len()) && text.bytes().all(allowed)
}

/// Returns the OCI platform of this program. `None` on an architecture without support for plugins.
pub fn host_platform() -> Option<String> {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        _ => return None,
    };
    Some(format!("{}/{architecture}", std::env::consts::OS))
}

/// Statement of a publisher about one executable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginStatement {
    /// Name of the plugin, which is the component type.
    pub name: String,
    /// Version that the executable reports.
    pub version: String,
    /// Platform of the executable, `os/architecture`.
    pub platform: String,
    /// SHA-256 of the executable.
    pub executable: Digest,
    /// Size of the executable in bytes.
    pub size_bytes: u64,
    /// Protocol versions that the executable supports.
    pub protocols: Vec<u32>,
}

/// Reason to reject the statement about an executable.
#[derive(Debug, thiserror::Error)]
pub enum StatementError {
    /// The envelope has another type, or the publisher did not sign it.
    #[error(transparent)]
    Envelope(#[from] EnvelopeError),
    /// The envelope or its payload is malformed.
    #[error("invalid statement of the publisher: {0}")]
    Malformed(#[from] serde_json::Error),
    /// The statement cannot be serialized as JSON.
    #[error("cannot serialize the statement: {0}")]
    Unwritable(#[from] proof::canonical::CanonicalError),
}

impl PluginStatement {
    /// Signs the statement.
    ///
    /// # Errors
    /// Fails if the statement cannot be serialized as JSON.
    pub fn sign(&self, key: &ed25519_dalek::SigningKey) -> Result<Vec<u8>, StatementError> {
        let payload = proof::canonical::json(self)?;
        Ok(serde_json::to_vec(&dsse::sign(STATEMENT_TYPE, &payload, key))?)
    }

    /// Returns the statement in an envelope that this publisher signed.
    ///
    /// # Errors
    /// [`StatementError`].
    pub fn verify(envelope: &[u8], publisher: &VerifyingKey) -> Result<Self, StatementError> {
        let envelope: Envelope = serde_json::from_slice(envelope)?;
        let payload = dsse::verify_as(STATEMENT_TYPE, &envelope, &[*publisher])?;
        Ok(serde_json::from_slice(&payload)?)
    }
}

/// Parses the public key of a publisher, 64 hexadecimal digits.
pub fn parse_publisher(text: &str) -> Option<VerifyingKey> {
    let bytes: [u8; 32] = hex::decode(text).ok()?.try_into().ok()?;
    VerifyingKey::from_bytes(&bytes).ok()
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::SigningKey;

    use super::*;

    fn statement() -> PluginStatement {
        PluginStatement {
            name: "vault".into(),
            version: "1.0.0".into(),
            platform: "linux/amd64".into(),
            executable: format!("sha256:{:064x}", 7).parse().unwrap(),
            size_bytes: 12,
            protocols: vec![1, 2],
        }
    }

    #[test]
    fn only_the_publisher_signs_a_statement() {
        let (ours, other) = (SigningKey::from_bytes(&[1; 32]), SigningKey::from_bytes(&[2; 32]));
        let envelope = statement().sign(&ours).unwrap();
        let read = PluginStatement::verify(&envelope, &ours.verifying_key()).unwrap();
        assert_eq!(read, statement());
        assert!(PluginStatement::verify(&envelope, &other.verifying_key()).is_err());
        let text = String::from_utf8(envelope).unwrap();
        let changed = text.replace("vnd.stead.plugin.v1+json", "vnd.stead.plugin.v2+json");
        assert!(PluginStatement::verify(changed.as_bytes(), &ours.verifying_key()).is_err());
        assert!(PluginStatement::verify(b"{}", &ours.verifying_key()).is_err());
        // A second signature of the same statement has the same bytes, so a push is idempotent.
        assert_eq!(statement().sign(&ours).unwrap(), text.into_bytes());
    }

    #[test]
    fn keys_platforms_and_versions_have_one_form() {
        let key = SigningKey::from_bytes(&[1; 32]).verifying_key();
        assert_eq!(parse_publisher(&hex::encode(key.as_bytes())), Some(key));
        assert_eq!(parse_publisher("ab"), None);
        for platform in ["linux/amd64", "linux/arm64"] {
            assert!(is_platform(platform), "{platform}");
        }
        for platform in ["", "linux", "linux/", "linux/arm64/v8", "Linux/amd64", "../x"] {
            assert!(!is_platform(platform), "{platform}");
        }
        assert!(is_version("1.0.0-rc.1+build_5") && !is_version("") && !is_version("1 0"));
        assert!(host_platform().is_none_or(|platform| is_platform(&platform)));
    }
}
