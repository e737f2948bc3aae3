//! Derivation of keys from a secret of 32 bytes.
use ed25519_dalek::SigningKey;
use hkdf::Hkdf;
use hpke::{Kem as _, Serializable as _, kem::X25519HkdfSha256};
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::context::Encoder;

pub(crate) type Kem = X25519HkdfSha256;
pub(crate) type ReceivingKey = <Kem as hpke::Kem>::PrivateKey;

/// Secret of 32 bytes, overwritten when it is dropped.
pub(crate) type Secret = Zeroizing<[u8; 32]>;

const SALT: &[u8] = b"stead/install-keys/v1";

/// Derives 32 bytes for one purpose: a label and the parts that it applies to.
pub(crate) fn expand(secret: &[u8; 32], label: &str, parts: &[&[u8]]) -> Secret {
    let mut info = Encoder::new(label);
    for part in parts {
        info.bytes(part);
    }
    let mut key = Zeroizing::new([0; 32]);
    // HKDF fails only for more than 255 digests.
    let _ = Hkdf::<Sha256>::new(Some(SALT), secret).expand(&info.finish(), key.as_mut());
    key
}

/// Keys of one generation.
pub(crate) struct KeySet {
    pub(crate) receiving: ReceivingKey,
    pub(crate) signing: SigningKey,
}

impl KeySet {
    pub(crate) fn derive(secret: &[u8; 32], generation: u32) -> Self {
        let number = generation.to_be_bytes();
        let ikm = expand(secret, "receive", &[&number]);
        let (receiving, _) = Kem::derive_keypair(ikm.as_ref());
        let signing = SigningKey::from_bytes(&expand(secret, "sign", &[&number]));
        KeySet { receiving, signing }
    }

    /// Returns the public key that others encrypt to.
    pub(crate) fn public_encryption(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        Kem::sk_to_pk(&self.receiving).write_exact(&mut bytes);
        bytes
    }
}
