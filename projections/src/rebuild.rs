//! Rebuilds projections from the first event into shadow tables, while the server runs. Each
//! shadow table then replaces the live table, which remains as the previous table.
//!
//! ```text
//! log ─▶ scan ─┬─▶ worker 1 (its share of the streams) ─▶ shadow tables ─┐
//!              └─▶ worker 2 …                                            ├─▶ indexes ─▶ one swap per projection
//! ```
//! After a crash, the next rebuild continues with the same shadow tables.
use std::collections::BTreeMap;

use event_log::{LogError, Source};
use futures::future::BoxFuture;
use sqlx::{PgConnection, PgPool, Row};

use crate::{
    Class,
    catalogue::{LIVE, view},
    fold::{DynProjection, RowWriter},
    swap::swap,
};

mod indexes;
mod scan;
mod shadow;
#[cfg(test)]
mod tests;

pub(crate) use shadow::{AppliedPage, ShadowBuild};

/// Maximum number of events in a page.
pub(crate) const PAGE: u64 = 5_000;
/// Maximum number of workers of a rebuild.
pub const WORKERS: u32 = 16;

/// Reasons why a rebuild, a rollback or an as-of query failed.
#[derive(Debug, thiserror::Error)]
pub enum RebuildError {
    /// No projection has this name.
    #[error("unknown projection {0}; `stead projections list` lists the projections")]
    Unknown(String),
    /// A read of the log or a database operation failed.
    #[error(transparent)]
    Log(LogError),
    /// The database role does not own the tables, and only their owner may replace them.
    #[error(
        "cannot rebuild a projection: the database role does not own its tables: {0}; set DATABASE_OWNER_URL"
    )]
    NotOwner(sqlx::Error),
    /// Readers held the table for too long, or another rebuild or rollback of the projection is
    /// active.
    #[error(
        "cannot replace the rows of {0}: readers hold the table, or another rebuild or rollback is active; try again in half a minute"
    )]
    Busy(&'static str),
    #[error("cannot create {table}: it exists already; drop it first, or read it")]
    TableExists { table: String },
    /// There are no previous rows to restore.
    #[error("cannot roll back {0}: it has no previous rows; only a rebuild leaves previous rows")]
    NoPreviousRows(&'static str),
    /// Another version of the program wrote the previous rows, and only that version can update
    /// them.
    #[error(
        "cannot roll back {name}: its previous rows have version {kept}, but this program writes version {known}; use a program of the other version"
    )]
    OtherVersion {
        name: &'static str,
        /// Version of the previous rows.
        kept: i32,
        /// Version that this program writes.
        known: i32,
    },
}

impl From<sqlx::Error> for RebuildError {
    fn from(error: sqlx::Error) -> RebuildError {
        let code = error.as_database_error().and_then(|error| error.code());
        if code.as_deref() == Some("42501") {
            return RebuildError::NotOwner(error);
        }
        RebuildError::Log(LogError::Database(error))
    }
}

impl From<LogError> for RebuildError {
    fn from(error: LogError) -> RebuildError {
        match error {
            LogError::Database(error) => error.into(),
            error @ (LogError::NoLog
            | LogError::Encoding(_)
            | LogError::Format(_)
            | LogError::Damaged { .. }
            | LogError::Archived { .. }
            | LogError::WrappingKey(_)
            | LogError::Proof(_)) => RebuildError::Log(error),
        }
    }
}

/// Progress of a rebuild or a verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The rebuild or verification applies events.
    Replaying {
        /// Number of events processed, including those of other aggregates.
        events: u64,
        /// Number of events to process.
        total: u64,
    },
    /// The shadow table replaces the live table.
    Swapping,
    /// The verification compares rows.
    Comparing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rebuilt {
    pub name: &'static str,
    pub rows: u64,
    /// Last position that the rows include.
    pub position: u64,
}

/// Rebuilds a projection with one worker. Concurrent rebuilds of the same projection share the
/// work. The rebuild that finishes last finds that the tables are already swapped.
///
/// # Errors
/// [`RebuildError`].
pub fn rebuild<'a>(
    source: impl Into<Source>,
    name: &'a str,
    progress: impl FnMut(Progress) + Send + 'a,
) -> BoxFuture<'a, Result<Rebuilt, RebuildError>> {
    let source = source.into();
    Box::pin(async move {
        let rebuilt = rebuild_all(&source, &[name], 1, progress).await?.pop();
        rebuilt.ok_or_else(|| RebuildError::Unknown(name.into()))
    })
}

/// Rebuilds projections with `parallel` workers, which read the log once for all of them. An
/// unfinished rebuild continues with the number of workers that it began with.
///
/// # Errors
/// [`RebuildError`]. Projections before the failed one are rebuilt; the shadow tables of the
/// others remain.
pub fn rebuild_all<'a>(
    source: impl Into<Source>,
    names: &'a [&'a str],
    parallel: u32,
    mut progress: impl FnMut(Progress) + Send + 'a,
) -> BoxFuture<'a, Result<Vec<Rebuilt>, RebuildError>> {
    let source = source.into();
    Box::pin(async move {
        let pool = &source.pool;
        let mut by_workers: BTreeMap<u32, Vec<ShadowBuild>> = BTreeMap::new();
        for name in names {
            let view = view(name).ok_or_else(|| RebuildError::Unknown((*name).into()))?;
            let mut build = ShadowBuild::of(view, &source);
            build.begin(pool, parallel.clamp(1, WORKERS)).await?;
            by_workers.entry(build.workers).or_default().push(build);
        }
        let mut rebuilt = vec![];
        for (workers, builds) in by_workers {
            scan::scan(pool, &builds, workers, &mut progress).await?;
            for mut build in builds {
                rebuilt.push(finish(pool, &mut build, &mut progress).await?);
            }
        }
        Ok(rebuilt)
    })
}

/// Restores the rows that were live before the last rebuild and applies the later events to them.
/// The rows that are live now become the previous ones. An active rebuild of the same projection
/// loses its shadow table and fails.
///
/// # Errors
/// [`RebuildError`].
pub fn rollback<'a>(
    source: impl Into<Source>,
    name: &'a str,
    mut progress: impl FnMut(Progress) + Send + 'a,
) -> BoxFuture<'a, Result<Rebuilt, RebuildError>> {
    let source = source.into();
    Box::pin(async move {
        let pool = &source.pool;
        let view = view(name).ok_or_else(|| RebuildError::Unknown(name.into()))?;
        let mut build = ShadowBuild::of(view, &source);
        build.take_up_previous(pool).await?;
        scan::scan(pool, std::slice::from_ref(&build), build.workers, &mut progress).await?;
        finish(pool, &mut build, &mut progress).await
    })
}

/// Rebuilds the rows of some streams (aggregate type and id), without the rest of the log.
pub(crate) fn rebuild_streams<'a>(
    source: &'a Source,
    view: Box<dyn DynProjection>,
    streams: &'a [(String, String)],
) -> BoxFuture<'a, Result<(), RebuildError>> {
    Box::pin(async move {
        let pool = &source.pool;
        let mut build = ShadowBuild::of(view, source);
        build.take_up_live(pool, streams).await?;
        let workers = build.workers;
        scan::scan(pool, std::slice::from_ref(&build), workers, &mut |_: Progress| {}).await?;
        finish(pool, &mut build, &mut |_: Progress| {}).await.map(drop)
    })
}

async fn finish(
    pool: &PgPool,
    build: &mut ShadowBuild,
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<Rebuilt, RebuildError> {
    progress(Progress::Swapping);
    build.index(pool).await?;
    let position = swap(pool, build).await?;
    // The rows are counted after the swap, when no append waits.
    let count = format!("select count(*) from {}", build.live);
    let rows = sqlx::query(&count).fetch_one(pool).await?.try_get::<i64, _>(0)?;
    Ok(Rebuilt { name: build.view.name(), rows: u64::try_from(rows).unwrap_or(0), position })
}

/// Applies the next page of events after `before` and up to `last` to a table. Returns the position
/// reached.
pub(crate) async fn page(
    connection: &mut PgConnection,
    source: &Source,
    (before, last): (u64, u64),
    view: &dyn DynProjection,
    (writer, table): (&mut dyn RowWriter, &str),
) -> Result<u64, LogError> {
    let at = head(&mut *connection).await?.min(last).min(before.saturating_add(PAGE));
    let events =
        crate::event::page(&mut *connection, source, (before, at), view.aggregates()).await?;
    if !events.is_empty() {
        let events: Vec<_> = events.iter().collect();
        writer.project(connection, table, &events).await?;
    }
    Ok(at.max(before))
}

/// Position of the last event.
pub(crate) async fn head(connection: &mut PgConnection) -> Result<u64, sqlx::Error> {
    let row = sqlx::query("select position from log_head").fetch_one(connection).await?;
    Ok(u64::try_from(row.try_get::<i64, _>(0)?).unwrap_or(0))
}

/// Last position that the live rows of a projection include.
pub(crate) async fn live_position(
    connection: &mut PgConnection,
    view: &dyn DynProjection,
) -> Result<u64, sqlx::Error> {
    match view.class() {
        Class::Synchronous => head(connection).await,
        Class::Asynchronous => {
            let of = (view.name(), view.version(), LIVE);
            Ok(event_log::consumer::position(connection, of).await?.unwrap_or(0))
        }
    }
}

/// Creates the consumer row of a projection that has no rows yet and starts from the first event.
pub(crate) async fn register(pool: &PgPool, name: &str, version: i32) -> Result<(), sqlx::Error> {
    sqlx::query(
        "insert into log_consumer (name, version, shard, position, owner_epoch) \
         values ($1, $2, $3, 0, 0) on conflict do nothing",
    )
    .bind(name)
    .bind(version)
    .bind(LIVE)
    .execute(pool)
    .await?;
    Ok(())
}
