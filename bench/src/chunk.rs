//! Log data of one call.
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use sha2::{Digest as _, Sha256};

/// A part of a log as a runner sends it: compressed, with its digest.
#[derive(Clone)]
pub struct Chunk {
    /// Length before compression.
    pub length: u64,
    /// Value of the header with the digest of the uncompressed bytes.
    pub digest: String,
    pub packed: Bytes,
}

impl Chunk {
    pub fn of(bytes: &[u8]) -> Chunk {
        Chunk {
            length: bytes.len() as u64,
            digest: format!("sha-256=:{}:", STANDARD.encode(Sha256::digest(bytes))),
            packed: zstd::bulk::compress(bytes, 3).unwrap().into(),
        }
    }
}
