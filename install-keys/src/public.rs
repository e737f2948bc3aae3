//! Public keys of an install, and their fingerprint.
use std::{fmt, str::FromStr};

use ed25519_dalek::VerifyingKey;
use rand_core::CryptoRng;
use sha2::{Digest as _, Sha256};

use crate::{
    context::{Encoder, Of, Value, Writer},
    encrypt::Encryptor,
    error::Error,
};

/// Public keys of one generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKeys {
    generation: u32,
    encryption: [u8; 32],
    signing: VerifyingKey,
}

/// Fingerprint of an install's public keys: `sha256:` and 64 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

/// Text that is not a fingerprint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid fingerprint {0:?}: expected `sha256:` and 64 lower-case hexadecimal digits")]
pub struct FingerprintError(String);

impl PublicKeys {
    pub(crate) fn of(generation: u32, encryption: [u8; 32], signing: VerifyingKey) -> Self {
        PublicKeys { generation, encryption, signing }
    }

    /// Reads keys in hexadecimal. Returns `None` if one is not a valid key in lower case, or if the
    /// generation is 0.
    pub fn parse(generation: u32, encryption: &str, signing: &str) -> Option<Self> {
        let key = |text: &str| -> Option<[u8; 32]> {
            hex::decode(text).ok()?.try_into().ok().filter(|key| hex::encode(key) == text)
        };
        let (encryption, signing) = (key(encryption)?, key(signing)?);
        let signing = VerifyingKey::from_bytes(&signing).ok().filter(|key| !key.is_weak())?;
        (generation > 0).then_some(PublicKeys { generation, encryption, signing })
    }

    /// Returns the generation of the keys.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Returns the X25519 key in hexadecimal.
    pub fn encryption_hex(&self) -> String {
        hex::encode(self.encryption)
    }

    /// Returns the Ed25519 key in hexadecimal.
    pub fn signing_hex(&self) -> String {
        hex::encode(self.signing.as_bytes())
    }

    /// Returns the fingerprint, which also covers the install and the log.
    pub fn fingerprint(&self, of: &Of<'_>) -> Fingerprint {
        let mut encoder = Encoder::new("fingerprint");
        encoder.of(of).number(self.generation.into());
        encoder.bytes(&self.encryption).bytes(self.signing.as_bytes());
        Fingerprint(Sha256::digest(encoder.finish()).into())
    }

    /// Encrypts a value that only the install can decrypt. The value must name
    /// [`Writer::PublicKeyHolder`] as its writer.
    pub fn encrypt(
        &self,
        value: &Value<'_>,
        plaintext: &[u8],
        rng: &mut impl CryptoRng,
    ) -> Result<Vec<u8>, Error> {
        match value.writer {
            Writer::PublicKeyHolder => {}
            Writer::Install => return Err(Error::BadSignature),
        }
        let (mut out, recipient) = (Vec::new(), (&self.encryption, self.generation));
        let mut encryptor = Encryptor::start(&value.encode(), recipient, None, rng, &mut out)?;
        encryptor.update(plaintext, &mut out)?;
        encryptor.finish(&mut out)?;
        Ok(out)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", hex::encode(self.0))
    }
}

impl FromStr for Fingerprint {
    type Err = FingerprintError;
    fn from_str(text: &str) -> Result<Self, FingerprintError> {
        let read = || hex::decode(text.strip_prefix("sha256:")?).ok()?.try_into().ok();
        read()
            .map(Fingerprint)
            .filter(|fingerprint| fingerprint.to_string() == text)
            .ok_or_else(|| FingerprintError(text.into()))
    }
}
