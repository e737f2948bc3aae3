//! Index from streams to frames: sorted entries of 28 bytes. A search reads single entries and does
//! not load the file.
//!
//! The index is only a hint. The events that it leads to are checked against the stream's
//! sequences, so a corrupt entry causes an error and never a shorter history.
use std::{fs::File, io, os::unix::fs::FileExt as _};

use crate::StreamId;

/// Size in bytes of an entry: stream, frame and first sequence.
const ENTRY: usize = 16 + 4 + 8;

/// Truncated hash of a stream.
type Key = [u8; 16];

/// Collects the entries of an index.
#[derive(Default)]
pub(super) struct Entries(Vec<(Key, u32, u64)>);

impl Entries {
    /// Adds an event of a frame. Events must be added in order.
    pub(super) fn add(
        &mut self,
        frames: &mut Frames,
        stream: &StreamId,
        frame: u32,
        sequence: u64,
    ) {
        let key = key(stream);
        if frames.insert(key) {
            self.0.push((key, frame, sequence));
        }
    }

    /// Returns the content of the index file.
    pub(super) fn bytes(mut self) -> Vec<u8> {
        self.0.sort_unstable();
        let mut bytes = Vec::with_capacity(self.0.len() * ENTRY);
        for (key, frame, sequence) in &self.0 {
            bytes.extend_from_slice(key);
            bytes.extend_from_slice(&frame.to_be_bytes());
            bytes.extend_from_slice(&sequence.to_be_bytes());
        }
        bytes
    }
}

/// Keys of the streams that have events in the current frame.
pub(super) type Frames = std::collections::HashSet<Key>;

/// Returns the frames with events of a stream from a sequence on, in order.
pub(super) fn find(
    file: &File,
    entries: u64,
    stream: &StreamId,
    from_sequence: u64,
) -> io::Result<Vec<u32>> {
    let key = key(stream);
    let (mut low, mut high) = (0, entries);
    while low < high {
        let middle = low + (high - low) / 2;
        if entry(file, middle)?.0 < key {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    let mut frames = vec![];
    while low < entries {
        let (found, frame, first) = entry(file, low)?;
        if found != key {
            break;
        }
        if first <= from_sequence {
            // The earlier frames end before the requested sequence.
            frames.clear();
        }
        frames.push(frame);
        low += 1;
    }
    Ok(frames)
}

/// Number of entries in a file of this size.
pub(super) fn entries(bytes: u64) -> u64 {
    bytes / ENTRY as u64
}

fn entry(file: &File, at: u64) -> io::Result<(Key, u32, u64)> {
    let mut bytes = [0; ENTRY];
    file.read_exact_at(&mut bytes, at * ENTRY as u64)?;
    let (mut key, mut frame, mut sequence) = ([0; 16], [0; 4], [0; 8]);
    key.copy_from_slice(&bytes[..16]);
    frame.copy_from_slice(&bytes[16..20]);
    sequence.copy_from_slice(&bytes[20..]);
    Ok((key, u32::from_be_bytes(frame), u64::from_be_bytes(sequence)))
}

fn key(stream: &StreamId) -> Key {
    // The length of the type keeps two streams distinct if a type or an id contains a slash.
    let (kind, id) = (&stream.aggregate_type, &stream.aggregate_id);
    let hash = proof::sha256(format!("{}/{kind}/{id}", kind.len()).as_bytes());
    let mut key = [0; 16];
    key.copy_from_slice(&hash[..16]);
    key
}
