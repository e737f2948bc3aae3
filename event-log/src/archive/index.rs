//! Which frames have events of a stream: entries of 28 bytes, sorted, so that a look is a few reads of the file and
//! no memory.
//!
//! The index is only a hint: what it says to be a stream's events is counted against the stream's own sequences, so a
//! spoiled entry is an error and never a shorter history.
use std::{fs::File, io, os::unix::fs::FileExt as _};

use crate::StreamId;

/// Stream, frame, first sequence.
const ENTRY: usize = 16 + 4 + 8;

/// What stands for a stream.
type Key = [u8; 16];

/// Gathers which frames have which streams.
#[derive(Default)]
pub(super) struct Entries(Vec<(Key, u32, u64)>);

impl Entries {
    /// An event of a stream is in a frame. Events come in order.
    pub(super) fn seen(
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

    /// The file.
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

/// The streams that one frame has been seen to have.
pub(super) type Frames = std::collections::HashSet<Key>;

/// The frames with events of a stream from a sequence on, in order.
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
            // All that came before this one is before what is asked for.
            frames.clear();
        }
        frames.push(frame);
        low += 1;
    }
    Ok(frames)
}

/// How many entries a file of so many bytes has.
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
    // The type's length keeps a slash in either from making two streams one.
    let (kind, id) = (&stream.aggregate_type, &stream.aggregate_id);
    let hash = proof::sha256(format!("{}/{kind}/{id}", kind.len()).as_bytes());
    let mut key = [0; 16];
    key.copy_from_slice(&hash[..16]);
    key
}
