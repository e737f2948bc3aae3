//! DSSE envelopes: typed payloads with Ed25519 signatures.
//!
//! The payload is verified as received and returned unchanged. It is never serialized again.
use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};

/// Payload with its type and signatures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// Payload in base64.
    pub payload: String,
    /// Media type, covered by the signatures.
    #[serde(rename = "payloadType")]
    pub payload_type: String,
    /// Signatures, one per key.
    pub signatures: Vec<EnvelopeSignature>,
}

/// Signature of an [`Envelope`], with the id of its key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvelopeSignature {
    /// [`key_id`] of the key. It is only a hint: the verification tries every trusted key.
    pub keyid: String,
    /// Ed25519 signature in base64.
    pub sig: String,
}

/// Reason to reject an envelope.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    /// The envelope has another payload type.
    #[error("the envelope has type {found:?}, not {expected:?}")]
    Type {
        /// Required payload type.
        expected: String,
        /// Payload type of the envelope.
        found: String,
    },
    /// The payload or a signature is not base64.
    #[error("invalid envelope: the payload or a signature is not base64")]
    Base64,
    /// No signature belongs to a trusted key.
    #[error("the envelope is not signed by a known key")]
    Signature,
}

/// Returns the id of a public key: the SHA-256 of its 32 bytes in lower-case hexadecimal.
pub fn key_id(key: &VerifyingKey) -> String {
    hex::encode(crate::sha256(key.as_bytes()))
}

/// Signs a payload and its type.
pub fn sign(payload_type: &str, payload: &[u8], key: &SigningKey) -> Envelope {
    sign_by(payload_type, payload, [key])
}

/// Signs a payload and its type with several keys. A reader that trusts one of them accepts the
/// envelope.
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

/// Returns the payload if one of these keys signed it. Accepts any payload type.
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

/// Returns the payload if it has this type and one of these keys signed it.
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

/// Returns the signed bytes, the pre-authentication encoding (PAE) of DSSE.
pub fn pre_authentication(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let head = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len());
    [head.as_bytes(), payload].concat()
}
