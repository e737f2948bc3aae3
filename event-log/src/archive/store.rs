//! Reads the files of one archive.
use std::{
    fs::File,
    io::Read as _,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use proof::Hash;
use sha2::{Digest as _, Sha256};

use super::{
    ArchiveError, EVENTS, INDEX, Manifest, corrupt, index, io_error, line,
    manifest::{ArchiveFile, Frame},
};
use crate::{StoredEvent, StreamId};

/// Maximum size of a frame in bytes, many times the size of 1,024 events of the largest size.
const MAX_BYTES: u64 = 1 << 30;

/// An open archive.
#[derive(Debug)]
pub(super) struct Store {
    pub directory: PathBuf,
    pub manifest: Manifest,
    /// SHA-256 of the manifest.
    pub sha256: Hash,
    events: File,
    index: File,
}

impl Store {
    pub(super) fn open(directory: &Path, known: Option<&Hash>) -> Result<Store, ArchiveError> {
        let (manifest, sha256) = Manifest::read(directory, known)?;
        let open = |name: &str| {
            let path = directory.join(name);
            File::open(&path).map_err(io_error(&path))
        };
        let (events, index) = (open(EVENTS)?, open(INDEX)?);
        Ok(Store { directory: directory.into(), manifest, sha256, events, index })
    }

    /// Reads the events of a frame and verifies its digest.
    pub(super) fn frame(&self, number: usize) -> Result<Vec<Arc<StoredEvent>>, ArchiveError> {
        let path = self.directory.join(EVENTS);
        let Some(frame) = self.manifest.frames.get(number) else {
            return Err(corrupt(&path, format!("it has no frame {number}")));
        };
        let Frame { first, last, offset, bytes, raw_bytes, .. } = frame;
        let wrong = |why: String| corrupt(&path, format!("positions {first} to {last}: {why}"));
        if *bytes > MAX_BYTES || *raw_bytes > MAX_BYTES {
            return Err(wrong("the frame exceeds the maximum size".into()));
        }
        let mut packed = vec![0; usize::try_from(*bytes).unwrap_or(0)];
        self.events.read_exact_at(&mut packed, *offset).map_err(io_error(&path))?;
        if hex::encode(proof::sha256(&packed)) != frame.sha256 {
            return Err(wrong("its digest does not match the manifest".into()));
        }
        let capacity = usize::try_from(*raw_bytes).unwrap_or(0);
        let lines =
            zstd::bulk::decompress(&packed, capacity).map_err(|why| wrong(why.to_string()))?;
        let mut events = Vec::with_capacity(usize::try_from(last - first + 1).unwrap_or(0));
        for (position, text) in (*first..).zip(lines.split_inclusive(|byte| *byte == b'\n')) {
            let event = line::read(text).map_err(|why| wrong(format!("line {position}: {why}")))?;
            if event.position != position {
                return Err(wrong(format!("event {position} is missing")));
            }
            events.push(Arc::new(event));
        }
        if events.last().map(|event| event.position) != Some(*last) {
            return Err(wrong("events are missing at its end".into()));
        }
        Ok(events)
    }

    /// Returns the frames that the index lists for a stream from a sequence on.
    pub(super) fn frames_of(
        &self,
        stream: &StreamId,
        from_sequence: u64,
    ) -> Result<Vec<u32>, ArchiveError> {
        let bytes = self.manifest.files.iter().find(|file| file.name == INDEX);
        let entries = index::entries(bytes.map_or(0, |file| file.bytes));
        index::find(&self.index, entries, stream, from_sequence)
            .map_err(io_error(&self.directory.join(INDEX)))
    }
}

/// Size and SHA-256 of a file.
pub(super) fn measure(directory: &Path, name: &str) -> Result<ArchiveFile, ArchiveError> {
    let path = directory.join(name);
    let mut file = File::open(&path).map_err(io_error(&path))?;
    let (mut hasher, mut bytes, mut buffer) = (Sha256::new(), 0_u64, vec![0; 1 << 18]);
    loop {
        let read = file.read(&mut buffer).map_err(io_error(&path))?;
        if read == 0 {
            break;
        }
        hasher.update(&buffer[..read]);
        bytes += read as u64;
    }
    Ok(ArchiveFile { name: name.into(), bytes, sha256: hex::encode(hasher.finalize()) })
}
