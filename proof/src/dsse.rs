//! Signed bytes with a type: DSSE envelopes, Ed25519.
//!
//! The payload is verified as received and handed out as it is; it is never serialised again.
use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};

/// A payload, what it is, and who signed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// The payload in base64.
    pub payload: String,
    /// The media type that was signed with it.
    #[serde(rename = "payloadType")]
    pub payload_type: String,
    /// One per key.
    pub signatures: Vec<EnvelopeSignature>,
}

/// One signature of an [`Envelope`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvelopeSignature {
    /// [`key_id`] of the key; a hint only, the key itself decides.
    pub keyid: String,
    /// The Ed25519 signature in base64.
    pub sig: String,
}

/// Why an envelope's payload is not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    /// It says that it is something else.
    #[error("the envelope holds {found:?}, not {expected:?}")]
    Type { expected: String, found: String },
    /// Its payload or a signature is not base64.
    #[error("the envelope is not base64")]
    Base64,
    /// None of the signatures is by a key that we know.
    #[error("the envelope is not signed by a known key")]
    Signature,
}

/// The name of a public key: the SHA-256 of its 32 bytes in lower-case hex.
pub fn key_id(key: &VerifyingKey) -> String {
    hex::encode(crate::sha256(key.as_bytes()))
}

/// Sign a payload and its type.
pub fn sign(payload_type: &str, payload: &[u8], key: &SigningKey) -> Envelope {
    sign_by(payload_type, payload, [key])
}

/// The same by several keys: who knows one of them believes it.
pub fn sign_by<'k>(
    payload_type: &str,
    payload: &[u8],
    keys: impl IntoIterator<Item = &'k SigningKey>,
) -> Envelope {
    let signed = pre_authentication(payload_type, payload);
    let signature = |key: &SigningKey| EnvelopeSignature {
        keyid: key_id(&key.verifying_key()),
        sig: BASE64.encode(key.sign(&signed).to_bytes()),
    };
    Envelope {
        payload: BASE64.encode(payload),
        payload_type: payload_type.into(),
        signatures: keys.into_iter().map(signature).collect(),
    }
}

/// The payload, if one of these keys signed it, whatever its type.
///
/// # Errors
/// [`EnvelopeError`].
pub fn verify(envelope: &Envelope, keys: &[VerifyingKey]) -> Result<Vec<u8>, EnvelopeError> {
    let payload = BASE64.decode(&envelope.payload).map_err(|_| EnvelopeError::Base64)?;
    let signed = pre_authentication(&envelope.payload_type, &payload);
    for signature in &envelope.signatures {
        let bytes = BASE64.decode(&signature.sig).map_err(|_| EnvelopeError::Base64)?;
        let Ok(signature) = Signature::from_slice(&bytes) else { continue };
        if keys.iter().any(|key| key.verify_strict(&signed, &signature).is_ok()) {
            return Ok(payload);
        }
    }
    Err(EnvelopeError::Signature)
}

/// The payload, if it is of this type and one of these keys signed it.
///
/// # Errors
/// [`EnvelopeError`].
pub fn verify_as(
    payload_type: &str,
    envelope: &Envelope,
    keys: &[VerifyingKey],
) -> Result<Vec<u8>, EnvelopeError> {
    if envelope.payload_type != payload_type {
        return Err(EnvelopeError::Type {
            expected: payload_type.into(),
            found: envelope.payload_type.clone(),
        });
    }
    verify(envelope, keys)
}

/// The bytes that are signed: DSSE's PAE.
pub fn pre_authentication(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let head = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len());
    [head.as_bytes(), payload].concat()
}
