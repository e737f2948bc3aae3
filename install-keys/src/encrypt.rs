//! Encryption in chunks.
use aead_stream::{NewStream as _, StreamBE32, StreamPrimitive as _};
use chacha20poly1305::{ChaCha20Poly1305, KeyInit as _};
use ed25519_dalek::SigningKey;
use hpke::{
    Deserializable as _, OpModeS, Serializable as _, aead::ChaCha20Poly1305 as HpkeAead,
    kdf::HkdfSha256, single_shot_seal_with_rng,
};
use rand_core::CryptoRng;
use zeroize::Zeroizing;

use crate::{
    context::Context,
    derive::{Kem, Secret},
    error::Error,
    format::{CHUNK, Header, INFO, Prefix, TAG},
};

/// Encryption of a plaintext of any length. It keeps at most one chunk in memory.
pub struct Encryptor {
    chunks: Chunks,
    /// Plaintext that is not encrypted yet, at most [`CHUNK`] bytes.
    rest: Zeroizing<Vec<u8>>,
    position: u32,
}

impl Encryptor {
    /// Creates a data key for the recipient and appends the header to `out`.
    pub(crate) fn start(
        context: &Context,
        (recipient, generation): (&[u8; 32], u32),
        signer: Option<&SigningKey>,
        rng: &mut impl CryptoRng,
        out: &mut Vec<u8>,
    ) -> Result<Self, Error> {
        let mut data_key: Secret = Zeroizing::new([0; 32]);
        rng.fill_bytes(data_key.as_mut());
        let public = <Kem as hpke::Kem>::PublicKey::from_bytes(recipient);
        let public = public.map_err(|_| Error::InvalidKey)?;
        let prefix = Prefix::new(context, generation, recipient);
        let (encapsulated_key, ciphertext) =
            single_shot_seal_with_rng::<HpkeAead, HkdfSha256, Kem>(
                &OpModeS::Base,
                &public,
                INFO,
                data_key.as_ref(),
                &prefix.wrapping_data(context),
                rng,
            )
            .map_err(|_| Error::InvalidKey)?;
        let mut encapsulated = [0; 32];
        encapsulated_key.write_exact(&mut encapsulated);
        let wrapped = ciphertext.try_into().map_err(|_| Error::InvalidKey)?;
        let signer = signer.map(|key| (key, context));
        Header::new(prefix, encapsulated, wrapped, signer).write(out);
        Ok(Encryptor {
            chunks: Chunks::new(&data_key, context),
            rest: Zeroizing::new(Vec::with_capacity(CHUNK + TAG)),
            position: 0,
        })
    }

    /// Encrypts more of the plaintext, and appends each finished chunk to `out`.
    pub fn update(&mut self, mut plaintext: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        while !plaintext.is_empty() {
            // A full chunk is encrypted only when it is known not to be the last one.
            if self.rest.len() == CHUNK {
                self.chunks.encrypt(self.position, false, &mut self.rest, out)?;
                self.position = self.position.checked_add(1).ok_or(Error::TooLarge)?;
            }
            let (now, later) = plaintext.split_at(plaintext.len().min(CHUNK - self.rest.len()));
            self.rest.extend_from_slice(now);
            plaintext = later;
        }
        Ok(())
    }

    /// Encrypts the rest and marks the end.
    pub fn finish(mut self, out: &mut Vec<u8>) -> Result<(), Error> {
        self.chunks.encrypt(self.position, true, &mut self.rest, out)
    }
}

/// Chunks under one data key.
pub(crate) struct Chunks {
    stream: StreamBE32<ChaCha20Poly1305>,
    associated_data: Vec<u8>,
}

impl Chunks {
    pub(crate) fn new(data_key: &Secret, context: &Context) -> Self {
        let cipher = ChaCha20Poly1305::new((&**data_key).into());
        // The data key is random, so the rest of the nonce can be constant.
        let stream = StreamBE32::from_aead(cipher, &[0; 7].into());
        Chunks { stream, associated_data: context.encoded.clone() }
    }

    /// Encrypts a chunk, appends it to `out`, and clears `chunk`.
    fn encrypt(
        &self,
        position: u32,
        is_last: bool,
        chunk: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        self.stream
            .encrypt_in_place(position, is_last, &self.associated_data, chunk)
            .map_err(|_| Error::TooLarge)?;
        out.append(chunk);
        Ok(())
    }

    /// Decrypts a chunk in place. Returns false and leaves the chunk unchanged if it was not
    /// encrypted at this position.
    pub(crate) fn decrypt(&self, position: u32, is_last: bool, chunk: &mut Vec<u8>) -> bool {
        self.stream.decrypt_in_place(position, is_last, &self.associated_data, chunk).is_ok()
    }
}
