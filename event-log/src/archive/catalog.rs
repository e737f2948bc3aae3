//! Reads events that only archives have.
use std::{
    collections::{HashMap, VecDeque},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use domain::decider::Timestamp;
use proof::Hash;
use sqlx::{PgConnection, Row, postgres::PgRow};

use super::{manifest::directory, store::Store};
use crate::{
    LogError, StoredEvent,
    stored::{fixed, number},
};

/// Maximum number of cached frames: enough for a page, and for a stream that is read page by page.
const FRAMES: usize = 8;
/// Maximum age of a cache entry, so that a verification reads the current files.
const MAX_AGE: Duration = Duration::from_secs(5);

/// SQL column for statements that read rows: the last position that only archives have. The caller
/// reads the events up to this position from archives.
pub const FLOOR: &str =
    "(select coalesce(max(last_position), 0) from log_archive where dropped_at is not null)";

/// An archive as the database lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveRecord {
    pub first: u64,
    pub last: u64,
    /// SHA-256 of the manifest.
    pub manifest_sha256: Hash,
    /// Time at which the archive was created.
    pub made_at: Timestamp,
    /// Time at which the rows were dropped, if they were.
    pub dropped_at: Option<Timestamp>,
}

impl ArchiveRecord {
    pub fn directory(&self, archives: &Path) -> PathBuf {
        directory(archives, self.first, self.last)
    }
}

/// Returns the archives in the order of their ranges.
///
/// # Errors
/// [`LogError`].
pub async fn list(connection: &mut PgConnection) -> Result<Vec<ArchiveRecord>, LogError> {
    let sql = "select first_position, last_position, manifest_sha256, created_at, dropped_at \
               from log_archive order by last_position";
    let rows = sqlx::query(sql).fetch_all(connection).await?;
    let listed = |row: &PgRow| {
        let last = number(row.try_get(1)?);
        Ok(ArchiveRecord {
            first: number(row.try_get(0)?),
            last,
            manifest_sha256: fixed(row.try_get(2)?, last, "an archive's digest")?,
            made_at: row.try_get(3)?,
            dropped_at: row.try_get(4)?,
        })
    };
    rows.iter().map(listed).collect()
}

/// Returns the last position that only archives have, or 0 if there is none. The value stays
/// valid until the end of the transaction, because dropping rows waits for transactions that
/// have read it. A transaction with a snapshot must take the lock before its snapshot
/// ([`block_discard`]).
///
/// # Errors
/// If a database operation fails.
pub async fn floor(connection: &mut PgConnection) -> Result<u64, sqlx::Error> {
    let floor: i64 = sqlx::query_scalar(&format!("select {FLOOR}")).fetch_one(connection).await?;
    Ok(number(floor))
}

/// Prevents dropping rows until the transaction ends. Must be called before the transaction
/// takes its snapshot.
///
/// # Errors
/// If a database operation fails.
pub async fn block_discard(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::Executor::execute(connection, "lock table log_archive in access share mode").await?;
    Ok(())
}

/// Events of a frame.
type Events = Arc<[Arc<StoredEvent>]>;

/// A cached frame: last position of its archive, number of the frame, time of the read, and events.
type CachedFrame = ((u64, usize), Instant, Events);

/// The archives of a directory. Clones share the open files and the cache.
#[derive(Debug, Clone, Default)]
pub struct Archives(Arc<ArchiveCatalog>);

#[derive(Debug, Default)]
struct ArchiveCatalog {
    directory: Option<PathBuf>,
    /// Open archives by last position, with the time at which they were opened.
    open: Mutex<HashMap<u64, (Instant, Arc<Store>)>>,
    frames: Mutex<VecDeque<CachedFrame>>,
}

impl Archives {
    /// Creates a catalog of the archives in a directory.
    pub fn at(directory: impl Into<PathBuf>) -> Archives {
        Archives(Arc::new(ArchiveCatalog {
            directory: Some(directory.into()),
            ..ArchiveCatalog::default()
        }))
    }

    /// Directory of the archives, if one is set.
    pub fn directory(&self) -> Option<&Path> {
        self.0.directory.as_deref()
    }

    /// Returns the events after one position and up to another that only archives have, in order,
    /// at most `limit`.
    ///
    /// # Errors
    /// [`LogError::Archived`] if an archive cannot be read.
    pub async fn events(
        &self,
        connection: &mut PgConnection,
        (after, to): (u64, u64),
        limit: u32,
    ) -> Result<Vec<Arc<StoredEvent>>, LogError> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut found: Vec<Arc<StoredEvent>> = vec![];
        let dropped = list(connection).await?.into_iter().filter(|one| one.dropped_at.is_some());
        for listed in dropped.filter(|one| one.last > after && one.first <= to) {
            let store = self.open(&listed).await?;
            let mut position = after.saturating_add(1).max(listed.first);
            while position <= to.min(listed.last) && found.len() < limit {
                let number = store.manifest.frame_of(position);
                let number = number.ok_or_else(|| missing_frame(&store, &listed, position))?;
                let frame = self.frame(&store, &listed, number).await?;
                let selected =
                    frame.iter().filter(|event| (position..=to).contains(&event.position));
                found.extend(selected.take(limit - found.len()).cloned());
                position = frame.last().map_or(to, |event| event.position).saturating_add(1);
            }
        }
        Ok(found)
    }

    /// Returns the event at a position, if only an archive has it.
    ///
    /// # Errors
    /// [`LogError::Archived`].
    pub async fn event(
        &self,
        connection: &mut PgConnection,
        position: u64,
    ) -> Result<Option<Arc<StoredEvent>>, LogError> {
        let range = (position.saturating_sub(1), position);
        Ok(self.events(connection, range, 1).await?.pop())
    }

    /// Opens an archive and checks that its manifest is the one that the database lists.
    pub(super) async fn open(&self, listed: &ArchiveRecord) -> Result<Arc<Store>, LogError> {
        let known = lock(&self.0.open).get(&listed.last).cloned();
        if let Some((opened, known)) = known
            && opened.elapsed() < MAX_AGE
            && known.sha256 == listed.manifest_sha256
        {
            return Ok(known);
        }
        let Some(archives) = self.directory() else {
            let (first, last) = (listed.first, listed.last);
            let why = "no archive directory is set".into();
            return Err(LogError::Archived { first, last, path: format!("{first}-{last}"), why });
        };
        let path = directory(archives, listed.first, listed.last);
        let (opening, hash) = (path.clone(), listed.manifest_sha256);
        let opened = run_blocking(move || Store::open(&opening, Some(&hash))).await?;
        let store = Arc::new(opened.map_err(|why| unreadable(&path, listed, &why))?);
        lock(&self.0.open).insert(listed.last, (Instant::now(), store.clone()));
        Ok(store)
    }

    pub(super) async fn frame(
        &self,
        store: &Arc<Store>,
        listed: &ArchiveRecord,
        frame: usize,
    ) -> Result<Events, LogError> {
        let key = (listed.last, frame);
        if let Some(events) = self.cached_frame(key) {
            return Ok(events);
        }
        let reading = store.clone();
        let read = run_blocking(move || reading.frame(frame)).await?;
        let read: Events = read.map_err(|why| unreadable(&store.directory, listed, &why))?.into();
        let mut frames = lock(&self.0.frames);
        frames.truncate(FRAMES - 1);
        frames.push_front((key, Instant::now(), read.clone()));
        Ok(read)
    }
}

impl Archives {
    /// Returns a frame from the cache, after the removal of expired entries.
    fn cached_frame(&self, key: (u64, usize)) -> Option<Events> {
        let mut frames = lock(&self.0.frames);
        frames.retain(|(_, read, _)| read.elapsed() < MAX_AGE);
        frames.iter().find(|(at, ..)| *at == key).map(|(.., events)| events.clone())
    }
}

async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, LogError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| LogError::Database(sqlx::Error::Io(error.into())))
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn unreadable(
    path: &Path,
    listed: &ArchiveRecord,
    why: &dyn std::fmt::Display,
) -> LogError {
    let (first, last) = (listed.first, listed.last);
    LogError::Archived { first, last, path: path.display().to_string(), why: why.to_string() }
}

fn missing_frame(store: &Store, listed: &ArchiveRecord, position: u64) -> LogError {
    let why = format!("it has no frame with position {position}");
    unreadable(&store.directory, listed, &why)
}
