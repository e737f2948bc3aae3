//! Making an archive, beside servers that go on working. Killed at any moment it leaves the rows as they are, and
//! whoever begins again goes on or starts anew.
use std::path::{Path, PathBuf};

use proof::{Hash, range::Range};
use sqlx::PgPool;

use super::{
    ArchiveError, Archives, Manifest, at, check,
    draft::Draft,
    manifest::directory,
    needs::{Reader, Sealed, sealed},
    spoiled,
};
use crate::{Clock, Stored, partitions::Partition, read::read_range, stored::bigint};

/// How many events a frame has: small enough to be read for one event, large enough to be packed well.
pub const FRAME: u32 = 1_024;

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
