//! Creates an archive while servers run. After a crash, the rows are unchanged, and the next call
//! continues or starts over.
use std::path::{Path, PathBuf};

use proof::{Hash, range::Range};
use sqlx::PgPool;

use super::{
    ArchiveError, Archives, Manifest, check,
    closed_range::{RangeProof, Reader, range_proof},
    corrupt,
    draft::{Draft, sync},
    io_error,
    manifest::directory,
};
use crate::{Clock, StoredEvent, partitions::Partition, read::read_range, stored::bigint};

/// Number of events in a frame: few enough to read a single event quickly, and enough to compress
/// well.
pub const FRAME: u32 = 1_024;

/// Progress of the creation. Tests interrupt the creation at these points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The rows up to this position were verified and written.
    Written(u64),
    /// The files up to this position were read back and verified.
    Checked(u64),
    /// The archive is complete on disk, but not recorded in the database yet.
    Whole,
}

/// Writes a closed partition to an archive, or continues with a complete one that the
/// database does not list. Returns its manifest.
///
/// # Errors
/// [`ArchiveError`]; the rows are unchanged.
pub async fn create(
    pool: &PgPool,
    archives: &Archives,
    of: &Partition,
    (readers, frame): (&[Reader], u32),
    progress: &mut (dyn FnMut(Step) + Send),
) -> Result<Manifest, ArchiveError> {
    let proof = range_proof(pool, archives, of, readers).await?;
    let above = archives.directory().unwrap_or(Path::new("archives"));
    let final_path = directory(above, of.first, of.last);
    if !final_path.exists() {
        let mut draft = Draft::begin(above, &final_path)?;
        draft.write(pool, of, &proof, frame, progress).await?;
        verify_files(draft.path.clone(), &proof, progress).await?;
        draft.finish(&final_path)?;
        progress(Step::Whole);
    }
    // This also verifies an archive that existed: a crash may have prevented its entry in the
    // database.
    let manifest = verify_files(final_path.clone(), &proof, progress).await?;
    prove_rows(pool, of, &proof, |_| Ok(())).await?;
    let (_, sha256) = Manifest::read(&final_path, None)?;
    // A crash may also have prevented the sync of its name. The rows can be dropped only if the archive
    // remains after a power failure.
    let directories = [Some(final_path.as_path()), Some(above), above.parent()];
    directories.into_iter().flatten().filter(|path| path.is_dir()).try_for_each(sync)?;
    record_archive(pool, of, &sha256).await?;
    Ok(manifest)
}

/// Records the archive in the database. Replaces the entry of an archive that was lost while its
/// rows still exist.
async fn record_archive(pool: &PgPool, of: &Partition, sha256: &Hash) -> Result<(), ArchiveError> {
    sqlx::query(
        "insert into log_archive (last_position, first_position, manifest_sha256, created_at) \
         values ($1, $2, $3, $4) on conflict (last_position) do update \
         set manifest_sha256 = excluded.manifest_sha256, created_at = excluded.created_at \
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

/// Reads the rows of a range and verifies them against the published checkpoint.
pub(super) async fn prove_rows(
    pool: &PgPool,
    of: &Partition,
    expected: &RangeProof,
    mut each: impl FnMut(&StoredEvent) -> Result<(), ArchiveError>,
) -> Result<(), ArchiveError> {
    let wrong = |why: String| ArchiveError::Rows { first: of.first, last: of.last, why };
    let mut range = Range::begin(expected.proof.clone(), &expected.keys, None)
        .map_err(|why| wrong(why.to_string()))?;
    while range.next() <= of.last {
        let to = of.last.min(range.next() - 1 + u64::from(FRAME));
        let page = read_range(pool, (range.next() - 1, to)).await?;
        if page.is_empty() {
            return Err(wrong(format!("position {}: the event is missing", range.next())));
        }
        for event in &page {
            let leaf = event.computed_leaf();
            let leaf = leaf.ok_or_else(|| {
                wrong(format!("position {}: the event's version is not a number", event.position))
            })?;
            range.take(&leaf, &event.leaf, &event.chain).map_err(|why| wrong(why.to_string()))?;
            each(event)?;
        }
    }
    range.end().map(drop).map_err(|why| wrong(why.to_string()))
}

/// Verifies the files on a blocking thread, so that other tasks can run.
async fn verify_files(
    path: PathBuf,
    proof: &RangeProof,
    progress: &mut (dyn FnMut(Step) + Send),
) -> Result<Manifest, ArchiveError> {
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let (keys, log_id, directory) = (proof.keys.clone(), proof.log_id.clone(), path.clone());
    let checking = tokio::task::spawn_blocking(move || {
        check(&path, &keys, &mut |position| {
            let _ = sender.send(position);
        })
    });
    while let Some(position) = receiver.recv().await {
        progress(Step::Checked(position));
    }
    let done = checking.await.map_err(|error| io_error(&directory)(error.into()))?;
    let (manifest, proven) = done?;
    if proven.checkpoint.log_id != log_id {
        return Err(corrupt(&directory, "it is an archive of another log"));
    }
    Ok(manifest)
}
