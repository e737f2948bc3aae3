//! Operator commands for archives of the log.
use std::{os::unix::fs::MetadataExt as _, path::Path};

use domain::decider::Timestamp;
use event_log::{
    Archives,
    archive::{self, ArchiveError, EVENTS, FRAME, INDEX, MANIFEST, Manifest, Reader, Step},
    partitions::{self, Partition},
};
use projections::Class;
use serde::Serialize;
use sqlx::PgPool;

use crate::reactions::dead_letters;

/// Archived partition of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ArchiveInfo {
    pub first: u64,
    pub last: u64,
    #[serde(with = "schemas::moment")]
    pub made_at: Timestamp,
    /// True if the database still has the rows.
    pub has_rows: bool,
    /// Size of the archive's files in bytes. `None` if its manifest is missing or its files cannot
    /// be read.
    pub bytes: Option<u64>,
}

#[derive(Debug, Clone, Serialize)]
pub struct CreatedArchives {
    pub archives: Vec<Range>,
    /// Reason why the next partition is not closed. `None` if every selected partition is archived.
    pub next: Option<String>,
}

/// Range of positions with the size of its archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Range {
    pub first: u64,
    pub last: u64,
    /// Size of the files in bytes.
    pub bytes: u64,
}

/// Asynchronous projections and the policies, with their positions in the log.
async fn readers(pool: &PgPool) -> Result<Vec<Reader>, ArchiveError> {
    let mut connection = pool.acquire().await?;
    let views = projections::list(&mut connection).await?;
    // Inline projections are written with the events.
    let following = views.into_iter().filter(|view| view.class == Class::Asynchronous);
    let mut readers: Vec<Reader> = following
        .map(|view| Reader { name: format!("projection {}", view.name), position: view.position })
        .collect();
    let position = dead_letters::progress(pool).await?.position;
    readers.push(Reader { name: "policies".into(), position });
    Ok(readers)
}

/// Archives every closed partition whose archive does not exist or lacks its manifest, up to an
/// optional position. Stops at the first partition that is not closed.
///
/// # Errors
///
/// [`ArchiveError`]; archives that were created before the error remain.
pub async fn create(
    owner: &PgPool,
    archives: &Archives,
    through: Option<u64>,
    progress: &(dyn Fn(String) + Send + Sync),
) -> Result<CreatedArchives, ArchiveError> {
    let mut connection = owner.acquire().await?;
    let known = archive::list(&mut connection).await?;
    let ranges = partitions::list(&mut connection).await?;
    drop(connection);
    let lost = |last: u64| files(archives, last, &known).is_none();
    let missing = ranges.into_iter().filter(|of| {
        let is_selected = through.is_none_or(|through| of.last <= through);
        is_selected && (known.iter().all(|known| known.last != of.last) || lost(of.last))
    });
    let mut created = CreatedArchives { archives: vec![], next: None };
    for of in missing {
        let (first, last) = (of.first, of.last);
        let mut report_step = |step: Step| {
            progress(match step {
                Step::Written(at) => format!("positions {first} to {last}: written up to {at}"),
                Step::Checked(at) => format!("positions {first} to {last}: verified up to {at}"),
                Step::Whole => format!("positions {first} to {last}: complete"),
            });
        };
        let readers = readers(owner).await?;
        match archive::create(owner, archives, &of, (&readers, FRAME), &mut report_step).await {
            Ok(manifest) => {
                set_owner(archives, &of)?;
                created.archives.push(Range { first, last, bytes: manifest.bytes() });
            }
            Err(error @ ArchiveError::NotClosed { .. }) => {
                created.next = Some(error.to_string());
                break;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(created)
}

/// Changes the owner of an archive that root created, so that the server can read the archive. The
/// new owner is the owner of the directory above the archives.
fn set_owner(archives: &Archives, of: &Partition) -> Result<(), ArchiveError> {
    let Some(directory) = archives.directory().filter(|_| nix::unistd::geteuid().is_root()) else {
        return Ok(());
    };
    let io = |path: &Path| {
        let path = path.display().to_string();
        move |reason| ArchiveError::Io { path, reason }
    };
    let above = directory.parent().unwrap_or(directory);
    let owner = std::fs::metadata(above).map_err(io(above))?;
    let archive = archive::directory(directory, of.first, of.last);
    let files = [EVENTS, INDEX, MANIFEST].map(|name| archive.join(name));
    for path in files.iter().chain([&archive, &directory.to_path_buf()]) {
        let (uid, gid) = (Some(owner.uid()), Some(owner.gid()));
        std::os::unix::fs::lchown(path, uid, gid).map_err(io(path))?;
    }
    Ok(())
}

/// Drops the rows of every archive that ends at or before a position, in the order of the log.
///
/// # Errors
/// [`ArchiveError`]; rows that were dropped before the error stay deleted. Their archives remain.
pub async fn discard(
    owner: &PgPool,
    archives: &Archives,
    through: u64,
    progress: &(dyn Fn(String) + Send + Sync),
) -> Result<Vec<(u64, u64)>, ArchiveError> {
    let known = archive::list(&mut *owner.acquire().await?).await?;
    let mut dropped = vec![];
    for one in known.iter().filter(|one| one.dropped_at.is_none() && one.last <= through) {
        progress(format!("positions {} to {}: verifying files and rows", one.first, one.last));
        let of = archive::discard(owner, archives, one.last, &readers(owner).await?).await?;
        dropped.push((of.first, of.last));
    }
    Ok(dropped)
}

pub async fn list(pool: &PgPool, archives: &Archives) -> Result<Vec<ArchiveInfo>, ArchiveError> {
    let known = archive::list(&mut *pool.acquire().await?).await?;
    let archives_info = known.iter().map(|one| ArchiveInfo {
        first: one.first,
        last: one.last,
        made_at: one.made_at,
        has_rows: one.dropped_at.is_none(),
        bytes: files(archives, one.last, &known),
    });
    Ok(archives_info.collect())
}

/// Verifies every archive that the database lists. Returns the verified ranges.
///
/// # Errors
/// [`ArchiveError`] of the first archive that cannot be verified.
pub async fn verify(
    pool: &PgPool,
    archives: &Archives,
    progress: &(dyn Fn(String) + Send + Sync),
) -> Result<Vec<Range>, ArchiveError> {
    let known = archive::list(&mut *pool.acquire().await?).await?;
    let mut read = vec![];
    for one in &known {
        progress(format!("positions {} to {}: verifying the archive", one.first, one.last));
        let manifest: Manifest = archive::verify(pool, archives, one).await?;
        read.push(Range { first: one.first, last: one.last, bytes: manifest.bytes() });
    }
    Ok(read)
}

/// Size of an archive's files in bytes. `None` if the database does not list the archive, its
/// manifest is missing, or its files cannot be read.
fn files(archives: &Archives, last: u64, known: &[archive::ArchiveRecord]) -> Option<u64> {
    let one = known.iter().find(|one| one.last == last)?;
    let directory = one.directory(archives.directory().unwrap_or(Path::new("archives")));
    directory.join(MANIFEST).is_file().then_some(())?;
    let mut bytes = 0;
    for entry in std::fs::read_dir(&directory).ok()? {
        bytes += entry.ok()?.metadata().ok()?.len();
    }
    Some(bytes)
}
