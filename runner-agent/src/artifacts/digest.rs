//! SHA-256 digests, written as `sha256:` and 64 hexadecimal digits.

use std::{fs::File, io, io::Read, path::Path};

use domain::digest::Digest;
use sha2::{Digest as _, Sha256};

/// Incremental SHA-256 that counts its bytes.
#[derive(Default)]
pub struct Hasher {
    state: Sha256,
    length: u64,
}

impl Hasher {
    pub fn update(&mut self, bytes: &[u8]) {
        self.state.update(bytes);
        self.length += bytes.len() as u64;
    }

    pub fn length(&self) -> u64 {
        self.length
    }

    pub fn finish(self) -> Digest {
        spelled(&self.state.finalize())
    }
}

pub fn sha256(bytes: &[u8]) -> Digest {
    spelled(&Sha256::digest(bytes))
}

pub fn sha256_file(path: &Path) -> io::Result<Digest> {
    let mut file = File::open(path)?;
    let mut hasher = Hasher::default();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.finish()),
            read => hasher.update(&buffer[..read]),
        }
    }
}

/// Returns the digest without its prefix `sha256:`, as in the file names of blobs.
pub(crate) fn hex_of(digest: &Digest) -> String {
    digest.to_string().split_off("sha256:".len())
}

#[allow(clippy::expect_used, reason = "32 bytes in hexadecimal are a digest by construction")]
fn spelled(hash: &[u8]) -> Digest {
    format!("sha256:{}", hex::encode(hash)).parse().expect("a SHA-256 is a digest")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_and_its_bytes_have_one_digest() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, b"abc").unwrap();
        let known = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(b"abc").to_string(), known);
        assert_eq!(sha256_file(&path).unwrap().to_string(), known);
        assert_eq!(hex_of(&sha256(b"abc")), known[7..]);
    }
}
