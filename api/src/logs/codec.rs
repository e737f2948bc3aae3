//! Compression of log chunks: chosen by the sender in transit, and zstd in the database if that is
//! smaller.
use std::io::{self, Read};

use bytes::Bytes;

use super::CHUNK_MAX_BYTES;

/// `Content-Encoding` of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    /// Uncompressed.
    Identity,
    Zstd,
    /// Gzip (RFC 1952).
    Gzip,
}

impl Coding {
    /// Parses a `Content-Encoding` header. Returns `None` for an unsupported one.
    pub(crate) fn of(header: Option<&str>) -> Option<Coding> {
        match header.map(str::trim) {
            None | Some("" | "identity") => Some(Coding::Identity),
            Some("zstd") => Some(Coding::Zstd),
            Some("gzip" | "x-gzip") => Some(Coding::Gzip),
            Some(_) => None,
        }
    }
}

/// Decompresses a chunk. Returns `None` if the result exceeds [`CHUNK_MAX_BYTES`]. Stops at the
/// first byte beyond the limit.
pub(crate) fn decode(coding: Coding, body: Bytes) -> io::Result<Option<Bytes>> {
    let bytes = match coding {
        Coding::Identity => body,
        Coding::Zstd => bounded(zstd::Decoder::new(body.as_ref())?)?,
        Coding::Gzip => bounded(flate2::read::MultiGzDecoder::new(body.as_ref()))?,
    };
    Ok((bytes.len() <= CHUNK_MAX_BYTES).then_some(bytes))
}

/// Reads one byte more than the limit, to detect an oversized chunk.
fn bounded(unpacked: impl Read) -> io::Result<Bytes> {
    let mut bytes = Vec::new();
    unpacked.take(CHUNK_MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes.into())
}

/// Chunk as stored in `job_log.codec` and `job_log.bytes`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Packed {
    pub codec: i16,
    pub bytes: Vec<u8>,
}

const IDENTITY: i16 = 0;
const ZSTD: i16 = 1;

impl Packed {
    /// Compresses a chunk for storage.
    pub(super) fn of(bytes: &[u8]) -> Packed {
        match zstd::bulk::compress(bytes, 3) {
            Ok(packed) if packed.len() < bytes.len() => Packed { codec: ZSTD, bytes: packed },
            Ok(_) | Err(_) => Packed { codec: IDENTITY, bytes: bytes.to_vec() },
        }
    }

    /// Decompresses the chunk. Returns `None` if it exceeds the size limit.
    pub(super) fn unpack(self) -> io::Result<Option<Bytes>> {
        let coding = match self.codec {
            IDENTITY => Coding::Identity,
            ZSTD => Coding::Zstd,
            other => {
                return Err(io::Error::other(format!(
                    "cannot decompress a log chunk: unknown codec {other}"
                )));
            }
        };
        decode(coding, self.bytes.into())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn compressed_bytes_are_decompressed() {
        for bytes in [vec![], b"x".to_vec(), vec![7; CHUNK_MAX_BYTES]] {
            let packed = Packed::of(&bytes);
            assert!(packed.bytes.len() <= bytes.len());
            assert_eq!(packed.unpack().unwrap(), Some(bytes.clone().into()));
            assert_eq!(decode(Coding::Gzip, gzip(&bytes).into()).unwrap(), Some(bytes.into()));
        }
        assert!(Packed { codec: 2, bytes: vec![] }.unpack().is_err());
    }

    #[test]
    fn all_members_of_a_gzip_file_are_read() {
        let two = [gzip(b"hello "), gzip(b"world")].concat();
        let all = decode(Coding::Gzip, two.into()).unwrap();
        assert_eq!(all, Some(Bytes::from_static(b"hello world")));
    }

    #[test]
    fn decompression_bomb_is_rejected() {
        let long = vec![0; 64 * CHUNK_MAX_BYTES];
        let bomb = zstd::bulk::compress(&long, 3).unwrap();
        assert_eq!(decode(Coding::Zstd, bomb.into()).unwrap(), None);
        assert_eq!(decode(Coding::Gzip, gzip(&long).into()).unwrap(), None);
        let many = gzip(&vec![0; CHUNK_MAX_BYTES / 4]).repeat(5);
        assert_eq!(decode(Coding::Gzip, many.into()).unwrap(), None);
    }

    #[test]
    fn invalid_or_truncated_body_is_rejected() {
        assert!(decode(Coding::Zstd, Bytes::from_static(b"no zstd")).is_err());
        assert!(decode(Coding::Gzip, Bytes::from_static(b"no gzip")).is_err());
        let mut cut = gzip(b"hello");
        cut.truncate(cut.len() - 4);
        assert!(decode(Coding::Gzip, cut.into()).is_err());
    }

    #[test]
    fn only_supported_codings_are_accepted() {
        assert_eq!(Coding::of(None), Some(Coding::Identity));
        assert_eq!(Coding::of(Some("zstd")), Some(Coding::Zstd));
        assert_eq!(Coding::of(Some("gzip")), Some(Coding::Gzip));
        assert_eq!(Coding::of(Some("br")), None);
        assert_eq!(Coding::of(Some("gzip, zstd")), None);
    }
}
