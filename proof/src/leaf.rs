//! Leaf of an event, the data that the log hashes.
//!
//! Payload and metadata are included as salted hashes. After a payload is archived or shredded, its
//! hash still verifies. A proof without the salt does not reveal the payload or the metadata.
use crate::{Hash, sha256_of};

const TAG: &[u8] = b"stead/leaf/v1\n";

/// Random bytes that prevent a guess of a payload from its hash. The caller supplies them.
pub type Salt = [u8; 16];

/// Fields of an event that its leaf commits to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaf<'a> {
    /// Position in the log, from 1.
    pub position: u64,
    /// ULID of the event, 16 bytes.
    pub event_id: [u8; 16],
    /// Aggregate type of the stream.
    pub aggregate_type: &'a str,
    /// Aggregate id of the stream.
    pub aggregate_id: &'a str,
    /// Sequence number in the stream, from 1.
    pub sequence: u64,
    /// Event type, `<aggregate>.<past-tense verb>`.
    pub event_type: &'a str,
    /// Version of the payload format, from 1.
    pub event_version: u16,
    /// Recording time in microseconds since 1970, UTC.
    pub recorded_at_us: i64,
    /// [`payload_hash`] of the stored payload.
    pub payload_hash: Hash,
    /// [`metadata_hash`] of the stored metadata.
    pub metadata_hash: Hash,
}

impl Leaf<'_> {
    /// Returns the RFC 6962 entry: big-endian integers, and each string after its length in four
    /// bytes.
    pub fn canonical(&self) -> Vec<u8> {
        let texts = self.aggregate_type.len() + self.aggregate_id.len() + self.event_type.len();
        let mut bytes = Vec::with_capacity(TAG.len() + texts + 12 + 8 + 16 + 8 + 2 + 8 + 64);
        bytes.extend_from_slice(TAG);
        bytes.extend_from_slice(&self.position.to_be_bytes());
        bytes.extend_from_slice(&self.event_id);
        text(&mut bytes, self.aggregate_type);
        text(&mut bytes, self.aggregate_id);
        bytes.extend_from_slice(&self.sequence.to_be_bytes());
        text(&mut bytes, self.event_type);
        bytes.extend_from_slice(&self.event_version.to_be_bytes());
        bytes.extend_from_slice(&self.recorded_at_us.to_be_bytes());
        bytes.extend_from_slice(&self.payload_hash);
        bytes.extend_from_slice(&self.metadata_hash);
        bytes
    }

    /// Returns the leaf's hash for the chain and the tree.
    pub fn hash(&self) -> Hash {
        crate::tree::leaf_hash(&self.canonical())
    }
}

impl<'a> Leaf<'a> {
    /// Parses the leaf of an RFC 6962 entry. Returns `None` if the entry is not exactly one leaf.
    pub fn read(entry: &'a [u8]) -> Option<Leaf<'a>> {
        let rest = entry.strip_prefix(TAG)?;
        let (position, rest) = rest.split_first_chunk::<8>()?;
        let (event_id, rest) = rest.split_first_chunk::<16>()?;
        let (aggregate_type, rest) = read_text(rest)?;
        let (aggregate_id, rest) = read_text(rest)?;
        let (sequence, rest) = rest.split_first_chunk::<8>()?;
        let (event_type, rest) = read_text(rest)?;
        let (event_version, rest) = rest.split_first_chunk::<2>()?;
        let (recorded_at, rest) = rest.split_first_chunk::<8>()?;
        let (payload_hash, rest) = rest.split_first_chunk::<32>()?;
        Some(Leaf {
            position: u64::from_be_bytes(*position),
            event_id: *event_id,
            aggregate_type,
            aggregate_id,
            sequence: u64::from_be_bytes(*sequence),
            event_type,
            event_version: u16::from_be_bytes(*event_version),
            recorded_at_us: i64::from_be_bytes(*recorded_at),
            payload_hash: *payload_hash,
            metadata_hash: rest.try_into().ok()?,
        })
    }
}

/// Parses the version of a stored event. Accepts only the decimal form without leading zeros, so
/// that every change of the text is detected.
pub fn version(text: &str) -> Option<u16> {
    let is_canonical =
        text == "0" || (!text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit()));
    text.parse().ok().filter(|_: &u16| is_canonical)
}

/// Returns the hash of a payload, byte for byte as stored.
pub fn payload_hash(salt: &Salt, payload: &[u8]) -> Hash {
    sha256_of(&[&[0x10], salt, payload])
}

/// Returns the hash of an event's metadata, byte for byte as stored.
pub fn metadata_hash(salt: &Salt, metadata: &[u8]) -> Hash {
    sha256_of(&[&[0x11], salt, metadata])
}

fn read_text(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (text, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    Some((std::str::from_utf8(text).ok()?, rest))
}

fn text(bytes: &mut Vec<u8>, text: &str) {
    // Strings in a leaf are far below 4 GiB: an event has at most 64 KiB.
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(text.as_bytes());
}
