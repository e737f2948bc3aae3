//! How a chunk is packed: on the wire as its sender chose, at rest with zstd when that is smaller.
use std::io::{self, Read};

use bytes::Bytes;

use super::CHUNK_MAX_BYTES;

/// The `Content-Encoding` of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// As it is.
    Identity,
    /// Zstandard.
    Zstd,
}

impl Coding {
    /// The coding that a `Content-Encoding` header names. `None`: one we cannot read.
    pub fn of(header: Option<&str>) -> Option<Coding> {
        match header.map(str::trim) {
            None | Some("" | "identity") => Some(Coding::Identity),
            Some("zstd") => Some(Coding::Zstd),
            Some(_) => None,
        }
    }

    /// What `job_log.codec` says.
    pub(super) fn number(self) -> i16 {
        match self {
            Coding::Identity => 0,
            Coding::Zstd => 1,
        }
    }

    pub(super) fn numbered(number: i16) -> io::Result<Coding> {
        match number {
            0 => Ok(Coding::Identity),
            1 => Ok(Coding::Zstd),
            other => Err(io::Error::other(format!("unknown codec {other} of a log chunk"))),
        }
    }
}

/// The bytes of a chunk, or `None` when they are more than a chunk may have. Never unpacks more.
pub fn decode(coding: Coding, body: Bytes) -> io::Result<Option<Bytes>> {
    let bytes = match coding {
        Coding::Identity => body,
        Coding::Zstd => {
            let limit = CHUNK_MAX_BYTES as u64 + 1;
            let mut bytes = Vec::new();
            zstd::Decoder::new(body.as_ref())?.take(limit).read_to_end(&mut bytes)?;
            bytes.into()
        }
    };
    Ok((bytes.len() <= CHUNK_MAX_BYTES).then_some(bytes))
}

/// Pack a chunk for the disk.
pub(super) fn pack(bytes: &[u8]) -> (Coding, Vec<u8>) {
    match zstd::bulk::compress(bytes, 3) {
        Ok(packed) if packed.len() < bytes.len() => (Coding::Zstd, packed),
        Ok(_) | Err(_) => (Coding::Identity, bytes.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_packed_is_unpacked() {
        for bytes in [vec![], b"x".to_vec(), vec![7; CHUNK_MAX_BYTES]] {
            let (coding, packed) = pack(&bytes);
            assert!(packed.len() <= bytes.len());
            let again = decode(Coding::numbered(coding.number()).unwrap(), packed.into()).unwrap();
            assert_eq!(again, Some(bytes.into()));
        }
    }

    #[test]
    fn a_small_body_that_unpacks_to_too_much_is_refused() {
        let bomb = zstd::bulk::compress(&vec![0; 64 * CHUNK_MAX_BYTES], 3).unwrap();
        assert_eq!(decode(Coding::Zstd, bomb.into()).unwrap(), None);
        assert!(decode(Coding::Zstd, Bytes::from_static(b"no zstd")).is_err());
    }

    #[test]
    fn only_codings_that_we_read_are_taken() {
        assert_eq!(Coding::of(None), Some(Coding::Identity));
        assert_eq!(Coding::of(Some("zstd")), Some(Coding::Zstd));
        assert_eq!(Coding::of(Some("br")), None);
    }
}
