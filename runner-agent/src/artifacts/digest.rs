//! SHA-256 in the one spelling of digests.

use std::{fs::File, io, io::Read, path::Path};

use domain::digest::Digest;
use sha2::{Digest as _, Sha256};

/// Hashes what passes through it.
#[derive(Default)]
pub struct Hasher {
    state: Sha256,
    length: u64,
}

impl Hasher {
    /// More bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.state.update(bytes);
        self.length += bytes.len() as u64;
    }

    /// How many bytes there were.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The digest of all of them.
    pub fn finish(self) -> Digest {
        spelled(&self.state.finalize())
    }
}

/// The digest of some bytes.
pub fn sha256(bytes: &[u8]) -> Digest {
    spelled(&Sha256::digest(bytes))
}

/// The digest of a file.
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

/// The 64 digits alone, as file names have them.
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
