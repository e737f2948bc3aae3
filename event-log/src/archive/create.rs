//! Making an archive, beside servers that go on working. Killed at any moment it leaves the rows as they are, and
//! whoever begins again goes on or starts anew.
use std::{
    fs,
    io::Write as _,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use proof::{Hash, range::Range};
use sqlx::PgPool;

use super::{
    ArchiveError, Archives, EVENTS, FORMAT, INDEX, MANIFEST, Manifest, at, check,
    index::{Entries, Frames},
    line,
    manifest::{Frame, Measured, directory},
    needs::{Reader, Sealed, sealed},
    spoiled,
    store::measure,
};
use crate::{Clock, Stored, partitions::Partition, read::read_range, stored::bigint};

/// How many events a frame has: small enough to be read for one event, large enough to be packed well.
pub const FRAME: u32 = 1_024;
/// How well it is packed.
const LEVEL: i32 = 6;

/// How far the making is. A test stops it here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Rows up to here were proven and written.
    Written(u64),
    /// The files up to here were read back and proven.
    Checked(u64),
    /// It is whole on the disk, and the database does not know it yet.
    Whole,
}

/// Write a closed partition into an archive, or take one that was written and not named in the database. Gives its
/// manifest.
///
/// # Errors
/// [`ArchiveError`]; the rows are as they were.
pub async fn create(
    pool: &PgPool,
    archives: &Archives,
    of: &Partition,
    (readers, frame): (&[Reader], u32),
    progress: &mut (dyn FnMut(Step) + Send),
) -> Result<Manifest, ArchiveError> {
    let sealed = sealed(pool, archives, of, readers).await?;
    let above = archives.directory().unwrap_or(Path::new("archives"));
    let whole = directory(above, of.first, of.last);
    if !whole.exists() {
        let mut draft = Draft::begin(above, &whole)?;
        draft.write(pool, of, &sealed, frame, progress).await?;
        checked(draft.path.clone(), &sealed, progress).await?;
        draft.finish(&whole)?;
        progress(Step::Whole);
    }
    // Also one that was there: who was killed before the next line left it.
    let manifest = checked(whole.clone(), &sealed, progress).await?;
    prove_rows(pool, of, &sealed, |_| Ok(())).await?;
    let (_, sha256) = Manifest::read(&whole, None)?;
    name(pool, of, &sha256).await?;
    Ok(manifest)
}

/// Name it in the database; anew, where the files of one whose rows are still there were lost.
async fn name(pool: &PgPool, of: &Partition, sha256: &Hash) -> Result<(), ArchiveError> {
    sqlx::query(
        "insert into log_archive (last_position, first_position, manifest_sha256, made_at) \
         values ($1, $2, $3, $4) on conflict (last_position) do update \
         set manifest_sha256 = excluded.manifest_sha256, made_at = excluded.made_at \
         where log_archive.dropped_at is null",
    )
    .bind(bigint(of.last))
    .bind(bigint(of.first))
    .bind(&sha256[..])
    .bind(Clock::system().now())
    .execute(pool)
    .await?;
    Ok(())
}

/// Read the rows of a range, and prove that they lead to the published checkpoint.
pub(super) async fn prove_rows(
    pool: &PgPool,
    of: &Partition,
    sealed: &Sealed,
    mut each: impl FnMut(&Stored) -> Result<(), ArchiveError>,
) -> Result<(), ArchiveError> {
    let wrong = |why: String| ArchiveError::Rows { first: of.first, last: of.last, why };
    let mut range = Range::begin(sealed.proof.clone(), &sealed.keys, None)
        .map_err(|why| wrong(why.to_string()))?;
    while range.next() <= of.last {
        let to = of.last.min(range.next() - 1 + u64::from(FRAME));
        let page = read_range(pool, (range.next() - 1, to)).await?;
        if page.is_empty() {
            return Err(wrong(format!("position {}: the event is missing", range.next())));
        }
        for event in &page {
            let leaf = event.computed_leaf();
            let leaf =
                leaf.ok_or_else(|| wrong(format!("position {}: its version", event.position)))?;
            range.take(&leaf, &event.leaf, &event.chain).map_err(|why| wrong(why.to_string()))?;
            each(event)?;
        }
    }
    range.end().map(drop).map_err(|why| wrong(why.to_string()))
}

/// Read the files back, where that keeps nobody waiting.
async fn checked(
    path: PathBuf,
    sealed: &Sealed,
    progress: &mut (dyn FnMut(Step) + Send),
) -> Result<Manifest, ArchiveError> {
    let (said, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let (keys, log_id, place) = (sealed.keys.clone(), sealed.log_id.clone(), path.clone());
    let checking = tokio::task::spawn_blocking(move || {
        check(&path, &keys, &mut |position| {
            let _ = said.send(position);
        })
    });
    while let Some(position) = heard.recv().await {
        progress(Step::Checked(position));
    }
    let done = checking.await.map_err(|error| at(&place)(error.into()))?;
    let (manifest, proven) = done?;
    if proven.checkpoint.log_id != log_id {
        return Err(spoiled(&place, "it is of another log"));
    }
    Ok(manifest)
}

/// An archive that is not one yet.
struct Draft {
    path: PathBuf,
    above: PathBuf,
    /// Nobody else makes the same one. Given back by the kernel, however we end.
    _held: fs::File,
}

impl Draft {
    fn begin(above: &Path, whole: &Path) -> Result<Draft, ArchiveError> {
        let mut directories = fs::DirBuilder::new();
        directories.recursive(true).mode(0o700);
        directories.create(above).map_err(at(above))?;
        let path = whole.with_extension("partial");
        directories.create(&path).map_err(at(&path))?;
        let held = fs::File::open(&path).map_err(at(&path))?;
        held.try_lock().map_err(|_| {
            at(&path)(std::io::Error::other("the same archive is being made by somebody else"))
        })?;
        // What one that was killed left behind.
        for name in [EVENTS, INDEX, MANIFEST] {
            match fs::remove_file(path.join(name)) {
                Err(why) if why.kind() != std::io::ErrorKind::NotFound => {
                    return Err(at(&path.join(name))(why));
                }
                Ok(()) | Err(_) => {}
            }
        }
        Ok(Draft { path, above: above.into(), _held: held })
    }

    async fn write(
        &mut self,
        pool: &PgPool,
        of: &Partition,
        sealed: &Sealed,
        frame: u32,
        progress: &mut (dyn FnMut(Step) + Send),
    ) -> Result<(), ArchiveError> {
        let mut writing = Writing {
            file: self.new(EVENTS)?,
            path: self.path.join(EVENTS),
            lines: vec![],
            frames: vec![],
            offset: 0,
            entries: Entries::default(),
            seen: Frames::new(),
            first: None,
            last: None,
        };
        prove_rows(pool, of, sealed, |event| {
            writing.take(event)?;
            let count = event.position - writing.begun() + 1;
            if count == u64::from(frame.max(1)) || event.position == of.last {
                writing.end_frame(event.position)?;
                progress(Step::Written(event.position));
            }
            Ok(())
        })
        .await?;
        let Writing { file, path, frames, entries, first, last, .. } = writing;
        file.sync_all().map_err(at(&path))?;
        self.put(INDEX, &entries.bytes())?;
        let (Some(first), Some(last)) = (first, last) else {
            return Err(spoiled(&path, "there are no events"));
        };
        let files: Vec<Measured> = [EVENTS, INDEX]
            .iter()
            .map(|name| measure(&self.path, name))
            .collect::<Result<_, _>>()?;
        let manifest = Manifest {
            format: FORMAT.into(),
            log_id: sealed.log_id.clone(),
            first_position: of.first,
            last_position: of.last,
            events: of.last - of.first + 1,
            first_recorded_at: first.recorded_at,
            last_recorded_at: last.recorded_at,
            chain_before: sealed.proof.chain,
            chain: proof::bundle::Base64(last.chain),
            proof: sealed.proof.clone(),
            files,
            frames,
        };
        let text = serde_json::to_vec_pretty(&manifest)
            .map_err(|why| at(&self.path.join(MANIFEST))(why.into()))?;
        self.put(MANIFEST, &text)?;
        sync(&self.path)
    }

    fn new(&self, name: &str) -> Result<fs::File, ArchiveError> {
        let path = self.path.join(name);
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true).mode(0o600).open(&path).map_err(at(&path))
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), ArchiveError> {
        let mut file = self.new(name)?;
        let done = file.write_all(bytes).and_then(|()| file.sync_all());
        done.map_err(at(&self.path.join(name)))
    }

    /// Give it its name.
    fn finish(self, whole: &Path) -> Result<(), ArchiveError> {
        fs::rename(&self.path, whole).map_err(at(whole))?;
        sync(&self.above)
    }
}

/// Bring a directory's names to the disk.
fn sync(directory: &Path) -> Result<(), ArchiveError> {
    fs::File::open(directory).and_then(|open| open.sync_all()).map_err(at(directory))
}

/// The events' file as it grows.
struct Writing {
    file: fs::File,
    path: PathBuf,
    /// Of the frame that was begun.
    lines: Vec<u8>,
    frames: Vec<Frame>,
    offset: u64,
    entries: Entries,
    seen: Frames,
    first: Option<Stored>,
    last: Option<Stored>,
}

impl Writing {
    fn take(&mut self, event: &Stored) -> Result<(), ArchiveError> {
        line::write(event, &mut self.lines)
            .map_err(|why| spoiled(&self.path, format!("position {}: {why}", event.position)))?;
        let frame = u32::try_from(self.frames.len()).unwrap_or(u32::MAX);
        self.entries.seen(&mut self.seen, &event.stream, frame, event.sequence);
        self.first.get_or_insert_with(|| event.clone());
        self.last = Some(event.clone());
        Ok(())
    }

    /// The first position of the frame that was begun.
    fn begun(&self) -> u64 {
        let first = self.first.as_ref().map_or(1, |event| event.position);
        self.frames.last().map_or(first, |frame| frame.last + 1)
    }

    fn end_frame(&mut self, last: u64) -> Result<(), ArchiveError> {
        let packed = zstd::bulk::compress(&self.lines, LEVEL).map_err(at(&self.path))?;
        self.file.write_all(&packed).map_err(at(&self.path))?;
        let bytes = packed.len() as u64;
        let sha256 = hex::encode(proof::sha256(&packed));
        let (first, offset) = (self.begun(), self.offset);
        let raw_bytes = self.lines.len() as u64;
        self.frames.push(Frame { first, last, offset, bytes, raw_bytes, sha256 });
        self.offset += bytes;
        self.lines.clear();
        self.seen.clear();
        Ok(())
    }
}
