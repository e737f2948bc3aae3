//! Format of encrypted data, version 1.
//!
//! | bytes | field |
//! |---|---|
//! | 8 | `STEADENC` |
//! | 1 | format version: 1 |
//! | 1 | kind: 1 state, 2 plan, 3 rescue, 4 value |
//! | 1 | 1 if the install signed the header, else 0 |
//! | 4 | generation of the recipient's keys, big endian |
//! | 8 | first bytes of the SHA-256 of the recipient's public key |
//! | 32 | SHA-256 of the encoded associated data |
//! | 32 | encapsulated key (DHKEM X25519, HKDF-SHA256) |
//! | 48 | data key, encrypted with ChaCha20-Poly1305 |
//! | 64 | Ed25519 signature, only if signed |
//! | rest | chunks |
//!
//! HPKE (base mode) gets a fixed `info`. Its associated data are the fields before the encapsulated
//! key, and the encoded associated data. The signature covers all fields before it and the encoded
//! associated data.
//!
//! The plaintext is divided into chunks of 64 KiB, encrypted with ChaCha20-Poly1305 under the data
//! key in the STREAM construction: the nonce contains the number of the chunk and a mark of the last
//! one. The associated data of each chunk are the encoded ones, without generation and recipient.
//! A rotation therefore writes another header and keeps the chunks.
//!
//! The signature covers no chunk. A chunk that decrypts was written by a party that has the data
//! key. A signed header fixes the data key, and only its writer and the recipient can read it.
use ed25519_dalek::{Signature, Signer as _, SigningKey};
use sha2::{Digest as _, Sha256};

use crate::{
    context::{Context, Encoder, Kind},
    error::Error,
};

/// Plaintext bytes of each chunk but the last.
pub const CHUNK: usize = 64 * 1024;
/// Bytes that encryption adds to each chunk.
pub const TAG: usize = 16;
/// Bytes of a header with a signature. A header without one has 64 bytes less.
pub const HEADER_MAX: usize = UNSIGNED + SIGNATURE;

/// Returns the length of the ciphertext of a signed plaintext.
pub const fn signed_len(plaintext: usize) -> usize {
    let chunks = if plaintext == 0 { 1 } else { plaintext.div_ceil(CHUNK) };
    HEADER_MAX + plaintext + chunks * TAG
}

pub(crate) const INFO: &[u8] = b"stead/install-keys/v1/data-key";

const MAGIC: &[u8; 8] = b"STEADENC";
const VERSION: u8 = 1;
/// Fields before the encapsulated key.
const PREFIX: usize = 8 + 1 + 1 + 1 + 4 + 8 + 32;
/// All fields before the signature.
const UNSIGNED: usize = PREFIX + 32 + 48;
const SIGNATURE: usize = 64;

/// Fields that are known before the data key is wrapped.
pub(crate) struct Prefix([u8; PREFIX]);

impl Prefix {
    pub(crate) fn new(context: &Context, generation: u32, recipient: &[u8; 32]) -> Self {
        let mut bytes = [0; PREFIX];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8] = VERSION;
        bytes[9] = context.kind as u8;
        bytes[10] = u8::from(context.is_signed);
        bytes[11..15].copy_from_slice(&generation.to_be_bytes());
        bytes[15..23].copy_from_slice(&recipient_hint(recipient));
        bytes[23..].copy_from_slice(&context.digest());
        Prefix(bytes)
    }

    /// Returns the associated data of HPKE.
    pub(crate) fn wrapping_data(&self, context: &Context) -> Vec<u8> {
        let mut encoder = Encoder::new("wrap");
        encoder.bytes(&self.0).bytes(&context.encoded);
        encoder.finish()
    }
}

/// Header with the wrapped data key.
pub(crate) struct Header {
    pub(crate) prefix: Prefix,
    pub(crate) encapsulated: [u8; 32],
    pub(crate) wrapped: [u8; 48],
    signature: Option<[u8; 64]>,
}

impl Header {
    /// Signs the header if a key is given.
    pub(crate) fn new(
        prefix: Prefix,
        encapsulated: [u8; 32],
        wrapped: [u8; 48],
        signer: Option<(&SigningKey, &Context)>,
    ) -> Self {
        let mut header = Header { prefix, encapsulated, wrapped, signature: None };
        header.signature =
            signer.map(|(key, context)| key.sign(&header.signed_bytes(context)).to_bytes());
        header
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.prefix.0);
        out.extend(self.encapsulated);
        out.extend(self.wrapped);
        out.extend(self.signature.iter().flatten());
    }

    /// Returns the header at the start of `bytes` and its length. Returns `None` if more bytes are
    /// needed.
    pub(crate) fn read(bytes: &[u8]) -> Result<Option<(Self, usize)>, Error> {
        let start = bytes.len().min(MAGIC.len());
        let is_known = bytes[..start] == MAGIC[..start]
            && bytes.get(8).is_none_or(|version| *version == VERSION)
            && bytes.get(9).is_none_or(|kind| (1..=Kind::Value as u8).contains(kind))
            && bytes.get(10).is_none_or(|signed| *signed < 2);
        if !is_known {
            return Err(Error::UnsupportedFormat);
        }
        let Some((prefix, rest)) = bytes.split_first_chunk() else { return Ok(None) };
        let Some((encapsulated, rest)) = rest.split_first_chunk() else { return Ok(None) };
        let Some((wrapped, rest)) = rest.split_first_chunk() else { return Ok(None) };
        let (signature, length) = match (prefix[10], rest.first_chunk()) {
            (0, _) => (None, UNSIGNED),
            (_, Some(signature)) => (Some(*signature), HEADER_MAX),
            (_, None) => return Ok(None),
        };
        let header = Header {
            prefix: Prefix(*prefix),
            encapsulated: *encapsulated,
            wrapped: *wrapped,
            signature,
        };
        Ok(Some((header, length)))
    }

    pub(crate) fn generation(&self) -> u32 {
        let bytes = &self.prefix.0;
        u32::from_be_bytes([bytes[11], bytes[12], bytes[13], bytes[14]])
    }

    /// Checks that the header belongs to this recipient and context, without its signature.
    pub(crate) fn check(&self, context: &Context, recipient: &[u8; 32]) -> Result<(), Error> {
        let expected = Prefix::new(context, self.generation(), recipient).0;
        let (is, own) = (&self.prefix.0, &expected);
        if is[15..23] != own[15..23] {
            return Err(Error::WrongKey);
        }
        // A context determines its kind, and whether it is signed.
        if is != own { Err(Error::Moved) } else { Ok(()) }
    }

    /// Verifies the signature of the install. A header without a signature is valid, because
    /// [`Header::check`] rejects it where a signature is expected.
    pub(crate) fn verify(&self, context: &Context, signer: &SigningKey) -> Result<(), Error> {
        let Some(signature) = &self.signature else { return Ok(()) };
        let signature = Signature::from_bytes(signature);
        signer
            .verifying_key()
            .verify_strict(&self.signed_bytes(context), &signature)
            .map_err(|_| Error::BadSignature)
    }

    fn signed_bytes(&self, context: &Context) -> Vec<u8> {
        let mut encoder = Encoder::new("header");
        encoder.bytes(&self.prefix.0).bytes(&self.encapsulated).bytes(&self.wrapped);
        encoder.bytes(&context.encoded);
        encoder.finish()
    }
}

fn recipient_hint(public: &[u8; 32]) -> [u8; 8] {
    let mut encoder = Encoder::new("recipient");
    encoder.bytes(public);
    let digest: [u8; 32] = Sha256::digest(encoder.finish()).into();
    let mut hint = [0; 8];
    hint.copy_from_slice(&digest[..8]);
    hint
}
