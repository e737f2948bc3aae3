//! Public keys of an install, and their signature by the identity key of its runner.
use base64::{Engine as _, engine::general_purpose::STANDARD};
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use proof::dsse;

use super::InstallPublicKeys;

/// DSSE payload type of the signed fields.
pub const INSTALL_KEYS_TYPE: &str = "application/vnd.stead.install-keys.v1+json";

/// Signs the public keys of an install. The keys are hexadecimal.
pub fn sign_install_keys(
    generation: u32,
    encryption_key: String,
    signing_key: String,
    identity: &SigningKey,
) -> InstallPublicKeys {
    let mut keys =
        InstallPublicKeys { generation, encryption_key, signing_key, signature: String::new() };
    keys.signature = STANDARD.encode(identity.sign(&signed_bytes(&keys)).to_bytes());
    keys
}

/// Returns true if the identity key, hexadecimal, signed these keys.
pub fn install_keys_are_signed(keys: &InstallPublicKeys, identity_key: &str) -> bool {
    let verify = || {
        let key: [u8; 32] = hex::decode(identity_key).ok()?.try_into().ok()?;
        let key = VerifyingKey::from_bytes(&key).ok()?;
        let signature = STANDARD.decode(&keys.signature).ok()?;
        key.verify_strict(&signed_bytes(keys), &Signature::from_slice(&signature).ok()?).ok()
    };
    verify().is_some()
}

/// Returns the signed bytes: DSSE around RFC 8785 JSON of the other fields and the version 1.
fn signed_bytes(keys: &InstallPublicKeys) -> Vec<u8> {
    let InstallPublicKeys { generation, encryption_key, signing_key, signature: _ } = keys;
    // The keys are sorted, and `json!` escapes like RFC 8785.
    let payload = serde_json::json!({
        "encryption_key": encryption_key,
        "generation": generation,
        "signing_key": signing_key,
        "version": 1,
    });
    dsse::pre_authentication(INSTALL_KEYS_TYPE, payload.to_string().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_covers_every_field() {
        let identity = SigningKey::from_bytes(&[1; 32]);
        let public = |key: &SigningKey| hex::encode(key.verifying_key().as_bytes());
        let keys = sign_install_keys(1, "aa".into(), "bb".into(), &identity);
        assert!(install_keys_are_signed(&keys, &public(&identity)));
        assert!(!install_keys_are_signed(&keys, &public(&SigningKey::from_bytes(&[2; 32]))));
        let others = [
            InstallPublicKeys { generation: 2, ..keys.clone() },
            InstallPublicKeys { encryption_key: "ab".into(), ..keys.clone() },
            InstallPublicKeys { signing_key: "ab".into(), ..keys.clone() },
            InstallPublicKeys { signature: "AAAA".into(), ..keys },
        ];
        for other in others {
            assert!(!install_keys_are_signed(&other, &public(&identity)), "{other:?}");
        }
    }
}
