use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
};

use domain::decider::Timestamp;
use proof::{Hash, bundle::Base64, range::Head};
use serde::{Deserialize, Serialize};

use super::{ArchiveError, corrupt, io_error};

/// Format of the archive.
pub const FORMAT: &str = "stead/archive/v2";
/// File with the events.
pub const EVENTS: &str = "events.ndjson.zst";
/// File with the index from streams to frames.
pub const INDEX: &str = "streams.index";
/// File with the manifest.
pub const MANIFEST: &str = "manifest.json";
/// Maximum size of a manifest in bytes. The manifest of ten million events is about a hundredth of
/// this size.
const MAX_BYTES: u64 = 256 << 20;

/// Manifest of an archive: its range, digests, frames and proof.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    pub format: String,
    /// Id of the log that the archive belongs to.
    pub log_id: String,
    pub first_position: u64,
    pub last_position: u64,
    /// Number of events.
    pub events: u64,
    /// Time of the first event.
    pub first_recorded_at: Timestamp,
    /// Time of the last event.
    pub last_recorded_at: Timestamp,
    /// Link of the chain before the first event.
    pub chain_before: Base64<Hash>,
    /// Link of the chain at the last event.
    pub chain: Base64<Hash>,
    /// Proof of the range: the tree before the events, and the signed checkpoint after them. The
    /// first line of an export has the same format.
    pub proof: Head,
    /// The files other than the manifest.
    pub files: Vec<ArchiveFile>,
    /// Frames of the events file.
    pub frames: Vec<Frame>,
}

/// Name, size and digest of a file of the archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArchiveFile {
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 in hexadecimal digits.
    pub sha256: String,
}

/// A part of the events file that can be read separately.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Frame {
    pub first: u64,
    pub last: u64,
    /// Offset of the frame in the events file, in bytes.
    pub offset: u64,
    /// Compressed size in bytes.
    pub bytes: u64,
    /// Uncompressed size in bytes.
    pub raw_bytes: u64,
    /// SHA-256 of the compressed bytes, in hexadecimal digits.
    pub sha256: String,
}

impl Manifest {
    /// Reads the manifest of an archive and checks its hash, if the hash is known. Returns the
    /// manifest and its hash.
    pub(super) fn read(
        directory: &Path,
        known: Option<&Hash>,
    ) -> Result<(Manifest, Hash), ArchiveError> {
        let path = directory.join(MANIFEST);
        let mut bytes = vec![];
        let file = File::open(&path).map_err(io_error(&path))?;
        file.take(MAX_BYTES).read_to_end(&mut bytes).map_err(io_error(&path))?;
        let hash = proof::sha256(&bytes);
        if known.is_some_and(|known| *known != hash) {
            return Err(corrupt(
                &path,
                "its digest differs from the one that the database records",
            ));
        }
        let read: Manifest =
            serde_json::from_slice(&bytes).map_err(|why| corrupt(&path, why.to_string()))?;
        if read.format != FORMAT {
            return Err(ArchiveError::Format {
                path: path.display().to_string(),
                found: read.format,
            });
        }
        read.check().map_err(|why| corrupt(&path, why))?;
        Ok((read, hash))
    }

    /// Checks that the frames, the proof and the files match the range.
    fn check(&self) -> Result<(), &'static str> {
        let (mut next, mut offset) = (self.first_position, 0_u64);
        for frame in &self.frames {
            if frame.first != next || frame.last < frame.first || frame.offset != offset {
                return Err("its frames have gaps");
            }
            next = frame.last.saturating_add(1);
            offset = offset.saturating_add(frame.bytes);
        }
        let count = self.last_position.saturating_sub(self.first_position).saturating_add(1);
        let same_range =
            (self.proof.from, self.proof.to) == (self.first_position, self.last_position);
        if self.first_position == 0 || next != self.last_position.saturating_add(1) {
            return Err("its frames do not cover its range");
        }
        if !same_range || self.events != count || self.chain_before != self.proof.chain {
            return Err("its proof covers another range");
        }
        let names: Vec<&str> = self.files.iter().map(|file| &*file.name).collect();
        if names != [EVENTS, INDEX] || self.files.first().is_none_or(|file| file.bytes != offset) {
            return Err("its list of files does not match the archive format");
        }
        Ok(())
    }

    /// Index of the frame with a position.
    pub(super) fn frame_of(&self, position: u64) -> Option<usize> {
        let after = self.frames.partition_point(|frame| frame.last < position);
        self.frames.get(after).filter(|frame| frame.first <= position).map(|_| after)
    }

    /// Size of the archive on disk in bytes, without the manifest.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}

/// Directory of the archive of a range.
pub fn directory(archives: &Path, first: u64, last: u64) -> PathBuf {
    archives.join(format!("{first}-{last}"))
}
