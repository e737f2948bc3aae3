//! An archive that is being written.
use std::{
    fs,
    io::Write as _,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use sqlx::PgPool;

use super::{
    ArchiveError, EVENTS, FORMAT, INDEX, MANIFEST, Manifest, Step,
    closed_range::RangeProof,
    corrupt,
    create::prove_rows,
    index::{Entries, Frames},
    io_error, line,
    manifest::{ArchiveFile, Frame},
    store::measure,
};
use crate::{StoredEvent, partitions::Partition};

/// Zstandard compression level.
const LEVEL: i32 = 6;

pub(super) struct Draft {
    pub path: PathBuf,
    above: PathBuf,
    /// Lock against another process that creates the same archive. The kernel releases it when the
    /// process ends.
    _held: fs::File,
}

impl Draft {
    pub(super) fn begin(above: &Path, final_path: &Path) -> Result<Draft, ArchiveError> {
        let mut directories = fs::DirBuilder::new();
        directories.recursive(true).mode(0o700);
        directories.create(above).map_err(io_error(above))?;
        let path = final_path.with_extension("partial");
        directories.create(&path).map_err(io_error(&path))?;
        let lock_file = fs::File::open(&path).map_err(io_error(&path))?;
        lock_file.try_lock().map_err(|_| {
            io_error(&path)(std::io::Error::other("another process is creating the same archive"))
        })?;
        // An interrupted attempt may have left these files.
        for name in [EVENTS, INDEX, MANIFEST] {
            match fs::remove_file(path.join(name)) {
                Err(why) if why.kind() != std::io::ErrorKind::NotFound => {
                    return Err(io_error(&path.join(name))(why));
                }
                Ok(()) | Err(_) => {}
            }
        }
        Ok(Draft { path, above: above.into(), _held: lock_file })
    }

    pub(super) async fn write(
        &mut self,
        pool: &PgPool,
        of: &Partition,
        expected: &RangeProof,
        frame: u32,
        progress: &mut (dyn FnMut(Step) + Send),
    ) -> Result<(), ArchiveError> {
        let mut writer = EventsWriter {
            file: self.file(EVENTS)?,
            path: self.path.join(EVENTS),
            lines: vec![],
            frames: vec![],
            offset: 0,
            entries: Entries::default(),
            frame_streams: Frames::new(),
            first: None,
            last: None,
        };
        prove_rows(pool, of, expected, |event| {
            writer.add(event)?;
            let count = event.position - writer.frame_start() + 1;
            if count == u64::from(frame.max(1)) || event.position == of.last {
                writer.end_frame(event.position)?;
                progress(Step::Written(event.position));
            }
            Ok(())
        })
        .await?;
        let EventsWriter { file, path, frames, entries, first, last, .. } = writer;
        file.sync_all().map_err(io_error(&path))?;
        self.put(INDEX, &entries.bytes())?;
        let (Some(first), Some(last)) = (first, last) else {
            return Err(corrupt(&path, "it has no events"));
        };
        let files: Vec<ArchiveFile> = [EVENTS, INDEX]
            .iter()
            .map(|name| measure(&self.path, name))
            .collect::<Result<_, _>>()?;
        let manifest = Manifest {
            format: FORMAT.into(),
            log_id: expected.log_id.clone(),
            first_position: of.first,
            last_position: of.last,
            events: of.last - of.first + 1,
            first_recorded_at: first.recorded_at,
            last_recorded_at: last.recorded_at,
            chain_before: expected.proof.chain,
            chain: proof::bundle::Base64(last.chain),
            proof: expected.proof.clone(),
            files,
            frames,
        };
        let text = serde_json::to_vec_pretty(&manifest)
            .map_err(|why| io_error(&self.path.join(MANIFEST))(why.into()))?;
        self.put(MANIFEST, &text)?;
        sync(&self.path)
    }

    fn file(&self, name: &str) -> Result<fs::File, ArchiveError> {
        let path = self.path.join(name);
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true).mode(0o600).open(&path).map_err(io_error(&path))
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), ArchiveError> {
        let mut file = self.file(name)?;
        let done = file.write_all(bytes).and_then(|()| file.sync_all());
        done.map_err(io_error(&self.path.join(name)))
    }

    /// Renames the directory to its final name.
    pub(super) fn finish(self, final_path: &Path) -> Result<(), ArchiveError> {
        fs::rename(&self.path, final_path).map_err(io_error(final_path))?;
        sync(&self.above)
    }
}

/// Flushes the entries of a directory to disk.
pub(super) fn sync(directory: &Path) -> Result<(), ArchiveError> {
    fs::File::open(directory).and_then(|open| open.sync_all()).map_err(io_error(directory))
}

/// Writer of the events file.
struct EventsWriter {
    file: fs::File,
    path: PathBuf,
    /// Lines of the current frame.
    lines: Vec<u8>,
    frames: Vec<Frame>,
    offset: u64,
    entries: Entries,
    frame_streams: Frames,
    first: Option<StoredEvent>,
    last: Option<StoredEvent>,
}

impl EventsWriter {
    fn add(&mut self, event: &StoredEvent) -> Result<(), ArchiveError> {
        line::write(event, &mut self.lines)
            .map_err(|why| corrupt(&self.path, format!("position {}: {why}", event.position)))?;
        let frame = u32::try_from(self.frames.len()).unwrap_or(u32::MAX);
        self.entries.add(&mut self.frame_streams, &event.stream, frame, event.sequence);
        self.first.get_or_insert_with(|| event.clone());
        self.last = Some(event.clone());
        Ok(())
    }

    /// First position of the current frame.
    fn frame_start(&self) -> u64 {
        let first = self.first.as_ref().map_or(1, |event| event.position);
        self.frames.last().map_or(first, |frame| frame.last + 1)
    }

    fn end_frame(&mut self, last: u64) -> Result<(), ArchiveError> {
        let packed = zstd::bulk::compress(&self.lines, LEVEL).map_err(io_error(&self.path))?;
        self.file.write_all(&packed).map_err(io_error(&self.path))?;
        let bytes = packed.len() as u64;
        let sha256 = hex::encode(proof::sha256(&packed));
        let (first, offset) = (self.frame_start(), self.offset);
        let raw_bytes = self.lines.len() as u64;
        self.frames.push(Frame { first, last, offset, bytes, raw_bytes, sha256 });
        self.offset += bytes;
        self.lines.clear();
        self.frame_streams.clear();
        Ok(())
    }
}
