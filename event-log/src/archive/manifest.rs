//! What an archive says it is.
use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
};

use domain::decider::Timestamp;
use proof::{Hash, bundle::Base64, range::Head};
use serde::{Deserialize, Serialize};

use super::{ArchiveError, at, spoiled};

/// What the manifest says that the directory is.
pub const FORMAT: &str = "stead/archive/v2";
/// The events.
pub const EVENTS: &str = "events.ndjson.zst";
/// Which frames have events of a stream.
pub const INDEX: &str = "streams.index";
/// What says what the others are.
pub const MANIFEST: &str = "manifest.json";
/// So much of it is read: ten million events are a hundredth of it.
const LONGEST: u64 = 256 << 20;

/// What is in an archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// [`FORMAT`].
    pub format: String,
    /// The log.
    pub log_id: String,
    /// The first position.
    pub first_position: u64,
    /// The last one.
    pub last_position: u64,
    /// How many events there are.
    pub events: u64,
    /// When the first one was recorded.
    pub first_recorded_at: Timestamp,
    /// When the last one was.
    pub last_recorded_at: Timestamp,
    /// The chain's link before the first event.
    pub chain_before: Base64<Hash>,
    /// The chain's link at the last event.
    pub chain: Base64<Hash>,
    /// What the events lead to: the tree before them, and the signed checkpoint after them. The first line of an export
    /// says the same in the same words.
    pub proof: Head,
    /// The other files.
    pub files: Vec<Measured>,
    /// The parts of the events' file.
    pub frames: Vec<Frame>,
}

/// A file, and what is in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// What it is called.
    pub name: String,
    /// How long it is.
    pub bytes: u64,
    /// Its SHA-256, in hexadecimal digits.
    pub sha256: String,
}

/// A part of the events' file that is read by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Frame {
    /// The first position in it.
    pub first: u64,
    /// The last one.
    pub last: u64,
    /// Where it begins.
    pub offset: u64,
    /// How long it is.
    pub bytes: u64,
    /// How long its lines are.
    pub raw_bytes: u64,
    /// The SHA-256 of its bytes, in hexadecimal digits.
    pub sha256: String,
}

impl Manifest {
    /// Read the manifest of an archive, which is to hash to this, where that is known; and what it hashes to.
    pub(super) fn read(
        directory: &Path,
        known: Option<&Hash>,
    ) -> Result<(Manifest, Hash), ArchiveError> {
        let path = directory.join(MANIFEST);
        let mut bytes = vec![];
        let file = File::open(&path).map_err(at(&path))?;
        file.take(LONGEST).read_to_end(&mut bytes).map_err(at(&path))?;
        let hash = proof::sha256(&bytes);
        if known.is_some_and(|known| *known != hash) {
            return Err(spoiled(&path, "its manifest is not the one that was made"));
        }
        let read: Manifest =
            serde_json::from_slice(&bytes).map_err(|why| spoiled(&path, why.to_string()))?;
        if read.format != FORMAT {
            return Err(ArchiveError::Format {
                path: path.display().to_string(),
                found: read.format,
            });
        }
        read.fits().map_err(|why| spoiled(&path, why))?;
        Ok((read, hash))
    }

    /// Frames follow each other without a gap, from the first position to the last.
    fn fits(&self) -> Result<(), &'static str> {
        let (mut next, mut offset) = (self.first_position, 0_u64);
        for frame in &self.frames {
            if frame.first != next || frame.last < frame.first || frame.offset != offset {
                return Err("its frames do not follow each other");
            }
            next = frame.last.saturating_add(1);
            offset = offset.saturating_add(frame.bytes);
        }
        let count = self.last_position.saturating_sub(self.first_position).saturating_add(1);
        let said = (self.proof.from, self.proof.to) == (self.first_position, self.last_position);
        if self.first_position == 0 || next != self.last_position.saturating_add(1) {
            return Err("its frames are not its range");
        }
        if !said || self.events != count || self.chain_before != self.proof.chain {
            return Err("its proof is of another range");
        }
        let names: Vec<&str> = self.files.iter().map(|file| &*file.name).collect();
        if names != [EVENTS, INDEX] || self.files.first().is_none_or(|file| file.bytes != offset) {
            return Err("its files are not those of an archive");
        }
        Ok(())
    }

    /// Which frame a position is in.
    pub(super) fn frame_of(&self, position: u64) -> Option<usize> {
        let after = self.frames.partition_point(|frame| frame.last < position);
        self.frames.get(after).filter(|frame| frame.first <= position).map(|_| after)
    }

    /// How many bytes it has on the disk, itself not counted.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}

/// What the archive of a range is called.
pub fn directory(archives: &Path, first: u64, last: u64) -> PathBuf {
    archives.join(format!("{first}-{last}"))
}
