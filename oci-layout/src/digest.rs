//! SHA-256 digests, written as `sha256:` and 64 hexadecimal digits.

use std::{fs::File, io, io::Read, path::Path};

use domain::digest::Digest;
use sha2::{Digest as _, Sha256};

/// Size of the buffer for reading files, in bytes.
const BUFFER: usize = 64 * 1024;

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
        <[u8; 32]>::from(self.state.finalize()).into()
    }
}

pub fn sha256(bytes: &[u8]) -> Digest {
    <[u8; 32]>::from(Sha256::digest(bytes)).into()
}

pub fn sha256_file(path: &Path) -> io::Result<Digest> {
    sha256_reader(&mut File::open(path)?)
}

pub(crate) fn sha256_reader(reader: &mut impl Read) -> io::Result<Digest> {
    let mut hasher = Hasher::default();
    let mut buffer = vec![0; BUFFER];
    loop {
        match reader.read(&mut buffer)? {
            0 => return Ok(hasher.finish()),
            read => hasher.update(&buffer[..read]),
        }
    }
}

/// Returns the digest without its prefix `sha256:`, as in the file names of blobs.
pub(crate) fn hex_of(digest: &Digest) -> String {
    digest.to_string().split_off("sha256:".len())
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
