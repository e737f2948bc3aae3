//! Decryption in chunks.
use hpke::{
    Deserializable as _, OpModeR, aead::ChaCha20Poly1305 as HpkeAead, kdf::HkdfSha256,
    single_shot_open,
};
use zeroize::Zeroizing;

use crate::{
    context::Context,
    derive::{Kem, KeySet, Secret},
    encrypt::Chunks,
    error::Error,
    format::{CHUNK, HEADER_MAX, Header, INFO, TAG},
};

/// Decryption of a ciphertext that arrives in parts. It keeps at most one chunk in memory.
///
/// Plaintext is released chunk by chunk. It is complete and unchanged only after [`finish`]
/// succeeded; before that, the ciphertext may be truncated. After an error, discard the plaintext.
///
/// [`finish`]: Decryptor::finish
pub struct Decryptor {
    secret: Secret,
    own_generation: u32,
    context: Context,
    stage: Stage,
    /// Ciphertext that is not decrypted yet.
    rest: Zeroizing<Vec<u8>>,
}

enum Stage {
    Header,
    Chunks { chunks: Chunks, position: u32 },
    Failed(Error),
}

impl Decryptor {
    pub(crate) fn new(secret: &Secret, own_generation: u32, context: Context) -> Self {
        let (secret, rest) = (secret.clone(), Zeroizing::new(Vec::with_capacity(CHUNK + TAG)));
        Decryptor { secret, own_generation, context, stage: Stage::Header, rest }
    }

    /// Decrypts a complete ciphertext.
    pub(crate) fn decrypt_all(mut self, ciphertext: &[u8]) -> Result<Zeroizing<Vec<u8>>, Error> {
        // Without a reallocation, no copy of the plaintext stays in memory.
        let mut plaintext = Zeroizing::new(Vec::with_capacity(ciphertext.len()));
        self.update(ciphertext, &mut plaintext)?;
        self.finish(&mut plaintext)?;
        Ok(plaintext)
    }

    /// Decrypts more of the ciphertext, and appends the plaintext of each complete chunk to `out`.
    pub fn update(&mut self, mut ciphertext: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        while !ciphertext.is_empty() {
            if let Err(error) = self.step(out) {
                self.stage = Stage::Failed(error.clone());
                return Err(error);
            }
            let capacity = match self.stage {
                Stage::Header | Stage::Failed(_) => HEADER_MAX,
                Stage::Chunks { .. } => CHUNK + TAG,
            };
            let room = capacity.saturating_sub(self.rest.len());
            let (now, later) = ciphertext.split_at(ciphertext.len().min(room));
            self.rest.extend_from_slice(now);
            ciphertext = later;
        }
        Ok(())
    }

    /// Decrypts the last chunk and checks that the ciphertext is complete.
    pub fn finish(mut self, out: &mut Vec<u8>) -> Result<(), Error> {
        if matches!(self.stage, Stage::Header) {
            self.step(out)?;
        }
        match self.stage {
            Stage::Header => Err(Error::Truncated),
            Stage::Failed(error) => Err(error),
            Stage::Chunks { chunks, position } => {
                if chunks.decrypt(position, true, &mut self.rest) {
                    // Only an empty plaintext has an empty chunk.
                    if self.rest.is_empty() && position > 0 {
                        return Err(Error::Changed);
                    }
                    out.append(&mut self.rest);
                    return Ok(());
                }
                // A chunk that is not the last one proves that later chunks are missing.
                let is_cut =
                    self.rest.len() < TAG || chunks.decrypt(position, false, &mut self.rest);
                Err(if is_cut { Error::Truncated } else { Error::Changed })
            }
        }
    }

    /// Decrypts what is complete in `rest`: the header, or a chunk that is not the last one.
    fn step(&mut self, out: &mut Vec<u8>) -> Result<(), Error> {
        match &mut self.stage {
            Stage::Failed(error) => Err(error.clone()),
            Stage::Header => {
                let Some((header, length)) = Header::read(&self.rest)? else { return Ok(()) };
                let chunks = self.unwrap(&header)?;
                self.stage = Stage::Chunks { chunks, position: 0 };
                self.rest.drain(..length);
                Ok(())
            }
            Stage::Chunks { chunks, position } => {
                if self.rest.len() < CHUNK + TAG {
                    return Ok(());
                }
                if !chunks.decrypt(*position, false, &mut self.rest) {
                    return Err(Error::Changed);
                }
                *position = position.checked_add(1).ok_or(Error::Changed)?;
                out.append(&mut self.rest);
                Ok(())
            }
        }
    }

    /// Verifies the header and decrypts the data key.
    fn unwrap(&self, header: &Header) -> Result<Chunks, Error> {
        let generation = header.generation();
        if generation > self.own_generation {
            return Err(Error::WrongGeneration { found: generation, own: self.own_generation });
        }
        let keys = KeySet::derive(&self.secret, generation);
        header.check(&self.context, &keys.public_encryption())?;
        header.verify(&self.context, &keys.signing)?;
        let encapsulated = <Kem as hpke::Kem>::EncappedKey::from_bytes(&header.encapsulated);
        let encapsulated = encapsulated.map_err(|_| Error::Changed)?;
        let data_key = single_shot_open::<HpkeAead, HkdfSha256, Kem>(
            &OpModeR::Base,
            &keys.receiving,
            &encapsulated,
            INFO,
            &header.wrapped,
            &header.prefix.wrapping_data(&self.context),
        );
        let data_key = Zeroizing::new(data_key.map_err(|_| Error::Changed)?);
        let mut secret: Secret = Zeroizing::new([0; 32]);
        secret.copy_from_slice(data_key.get(..32).ok_or(Error::Changed)?);
        Ok(Chunks::new(&secret, &self.context))
    }
}
