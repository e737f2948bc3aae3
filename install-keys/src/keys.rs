//! Keys of an install, and the narrower keys of one component.
use std::fmt;

use ed25519_dalek::Signer as _;
use rand_core::CryptoRng;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::{
    context::{ComponentData, Context, Value},
    decrypt::Decryptor,
    derive::{KeySet, Secret, expand},
    digest::{DigestUse, KeyedDigest},
    encrypt::Encryptor,
    error::Error,
    format,
    public::PublicKeys,
    seed::Seed,
};

/// Keys of an install, up to its current generation.
#[derive(Clone)]
pub struct InstallKeys {
    seed: Seed,
    secret: Secret,
    generation: u32,
}

impl InstallKeys {
    /// Derives the keys of the install. The first generation is 1.
    pub fn new(seed: &Seed, generation: u32) -> Self {
        let secret = expand(seed.expose(), "install", &[]);
        InstallKeys { seed: seed.clone(), secret, generation }
    }

    /// Returns the generation that these keys encrypt for.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Returns the public keys of the current generation.
    pub fn public(&self) -> PublicKeys {
        let keys = KeySet::derive(&self.secret, self.generation);
        let signing = keys.signing.verifying_key();
        PublicKeys::of(self.generation, keys.public_encryption(), signing)
    }

    /// Returns the keys of the next generation, which a recovery begins.
    pub fn successor(&self) -> Self {
        InstallKeys { generation: self.generation + 1, ..self.clone() }
    }

    /// Signs the keys that succeed these ones. `pre_authentication` is DSSE, which no other signature
    /// of these keys covers.
    pub fn sign_succession(&self, pre_authentication: &[u8]) -> [u8; 64] {
        self.key_set().signing.sign(pre_authentication).to_bytes()
    }

    /// Returns the seed, to store it.
    pub fn seed(&self) -> &Seed {
        &self.seed
    }

    pub(crate) fn key_set(&self) -> KeySet {
        KeySet::derive(&self.secret, self.generation)
    }

    /// Derives the keys of one component.
    pub fn component(&self, component: &str) -> ComponentKeys {
        ComponentKeys {
            component: component.into(),
            generation: self.generation,
            secret: expand(self.seed.expose(), "component", &[component.as_bytes()]),
        }
    }

    /// Encrypts a value and signs it if its writer is the install.
    pub fn encrypt(
        &self,
        value: &Value<'_>,
        plaintext: &[u8],
        rng: &mut impl CryptoRng,
    ) -> Result<Vec<u8>, Error> {
        let mut out = Vec::with_capacity(format::signed_len(plaintext.len()));
        let mut encryptor =
            encryptor(&self.secret, self.generation, &value.encode(), rng, &mut out)?;
        encryptor.update(plaintext, &mut out)?;
        encryptor.finish(&mut out)?;
        Ok(out)
    }

    /// Decrypts the value that the reader expects.
    pub fn decrypt(
        &self,
        value: &Value<'_>,
        ciphertext: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, Error> {
        Decryptor::new(&self.secret, self.generation, value.encode()).decrypt_all(ciphertext)
    }

    /// Returns a digest that reveals nothing about `bytes` to a party without the keys.
    pub fn digest(&self, usage: DigestUse, bytes: &[u8]) -> KeyedDigest {
        KeyedDigest::compute(&self.secret, self.generation, usage, bytes)
    }

    /// Returns true if `bytes` have this digest. Its generation may be an earlier one.
    pub fn matches(&self, digest: &KeyedDigest, usage: DigestUse, bytes: &[u8]) -> bool {
        digest.matches(&KeyedDigest::compute(&self.secret, digest.generation, usage, bytes))
    }
}

impl fmt::Debug for InstallKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("InstallKeys");
        out.field("generation", &self.generation).finish_non_exhaustive()
    }
}

/// Keys of one component, for its jobs. They decrypt, encrypt and sign only data of that component.
///
/// The serialized form contains the secret, for the order of a shim. It is never printed.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComponentKeys {
    component: String,
    generation: u32,
    #[serde(with = "secret_hex")]
    secret: Secret,
}

impl ComponentKeys {
    /// Returns the component that the keys belong to.
    pub fn component(&self) -> &str {
        &self.component
    }

    /// Returns the generation that these keys encrypt for.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Encrypts and signs data. For large data, use [`ComponentKeys::encryptor`].
    pub fn encrypt(
        &self,
        data: &ComponentData<'_>,
        plaintext: &[u8],
        rng: &mut impl CryptoRng,
    ) -> Result<Vec<u8>, Error> {
        let mut out = Vec::with_capacity(format::signed_len(plaintext.len()));
        let mut encryptor = self.encryptor(data, rng, &mut out)?;
        encryptor.update(plaintext, &mut out)?;
        encryptor.finish(&mut out)?;
        Ok(out)
    }

    /// Starts the encryption of data in parts, and appends the signed header to `out`.
    pub fn encryptor(
        &self,
        data: &ComponentData<'_>,
        rng: &mut impl CryptoRng,
        out: &mut Vec<u8>,
    ) -> Result<Encryptor, Error> {
        encryptor(&self.secret, self.generation, &self.context(data)?, rng, out)
    }

    /// Decrypts the data that the reader expects. For large data, use [`ComponentKeys::decryptor`].
    pub fn decrypt(
        &self,
        data: &ComponentData<'_>,
        ciphertext: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, Error> {
        self.decryptor(data)?.decrypt_all(ciphertext)
    }

    /// Starts the decryption of data in parts.
    pub fn decryptor(&self, data: &ComponentData<'_>) -> Result<Decryptor, Error> {
        Ok(Decryptor::new(&self.secret, self.generation, self.context(data)?))
    }

    /// Returns a digest that reveals nothing about `bytes` to a party without the keys.
    pub fn digest(&self, usage: DigestUse, bytes: &[u8]) -> KeyedDigest {
        KeyedDigest::compute(&self.secret, self.generation, usage, bytes)
    }

    /// Returns true if `bytes` have this digest. Its generation may be an earlier one.
    pub fn matches(&self, digest: &KeyedDigest, usage: DigestUse, bytes: &[u8]) -> bool {
        digest.matches(&KeyedDigest::compute(&self.secret, digest.generation, usage, bytes))
    }

    fn context(&self, data: &ComponentData<'_>) -> Result<Context, Error> {
        if data.component() == self.component {
            return Ok(data.encode());
        }
        let (own, other) = (self.component.clone(), data.component().into());
        Err(Error::OtherComponent { own, other })
    }
}

impl fmt::Debug for ComponentKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("ComponentKeys");
        out.field("component", &self.component).field("generation", &self.generation);
        out.finish_non_exhaustive()
    }
}

fn encryptor(
    secret: &Secret,
    generation: u32,
    context: &Context,
    rng: &mut impl CryptoRng,
    out: &mut Vec<u8>,
) -> Result<Encryptor, Error> {
    let keys = KeySet::derive(secret, generation);
    let recipient = (&keys.public_encryption(), generation);
    Encryptor::start(context, recipient, context.is_signed.then_some(&keys.signing), rng, out)
}

/// Secret as 64 hexadecimal digits.
mod secret_hex {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};
    use zeroize::Zeroizing;

    use super::Secret;

    pub(super) fn serialize<S: Serializer>(secret: &Secret, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&Zeroizing::new(hex::encode(**secret)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Secret, D::Error> {
        let text = Zeroizing::new(String::deserialize(from)?);
        let mut secret = Zeroizing::new([0; 32]);
        // The error must not contain the text.
        hex::decode_to_slice(text.as_bytes(), secret.as_mut())
            .map_err(|_| D::Error::custom("the secret is not 64 hexadecimal digits"))?;
        Ok(secret)
    }
}
