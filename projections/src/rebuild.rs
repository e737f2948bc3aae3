//! Everything again from the first event, into shadows, while the server runs; then each shadow becomes its view,
//! and what was the view is kept beside it.
//!
//! ```text
//! log ─▶ scan ─┬─▶ worker 1 (streams that fall to it) ─▶ shadows of all views ─┐
//!              └─▶ worker 2 …                                                  ├─▶ indexes ─▶ swap, view by view
//! ```
//! It may be killed at any time: it goes on where its shadows are.
use std::collections::BTreeMap;

use event_log::{LogError, Source};
use futures::future::BoxFuture;
use sqlx::{PgConnection, PgPool, Row};

use crate::{
    Class,
    catalogue::{LIVE, view},
    fold::{Folding, View},
    swap::swap,
};

mod indexes;
mod making;
mod scan;
#[cfg(test)]
mod tests;

pub(crate) use making::{Making, Taken};

/// How many events are taken at once.
pub(crate) const PAGE: u64 = 5_000;
/// The most workers.
pub const WORKERS: u32 = 16;

/// Why a view was not made again. What was there is as it was.
#[derive(Debug, thiserror::Error)]
pub enum RebuildError {
    /// There is no such view.
    #[error("there is no projection {0}; `stead projections list` shows all")]
    Unknown(String),
    /// The log cannot be read, or the database does not answer.
    #[error(transparent)]
    Log(LogError),
    /// A new table is made in place of the old one, and only the tables' owner may do that.
    #[error(
        "only the role that owns the tables can make a view again: give its URL as DATABASE_OWNER_URL ({0})"
    )]
    NotOwner(sqlx::Error),
    /// Readers did not let go of the view in time, and the shadow is there, so that the next try is short; or it is
    /// rolled back while it was to be rebuilt, or the other way round.
    #[error(
        "{0} is busy: it is read without a pause, or rebuilt or rolled back by somebody else; try again in \
         half a minute"
    )]
    Busy(&'static str),
    /// There is such a table already.
    #[error("{table} is there already: drop it first, or read it as it is")]
    AlreadyKept {
        /// What it is called.
        table: String,
    },
    /// There is nothing to go back to.
    #[error(
        "no earlier rows of {0} are kept: it was not made again yet, or was rolled back already"
    )]
    NothingKept(&'static str),
    /// What is kept was folded by another version of the program, which has to go on from it itself.
    #[error(
        "the rows of {name} that are kept are of its version {kept}, and this program has version {known}: start \
         the program that made them"
    )]
    OtherVersion {
        /// Which view.
        name: &'static str,
        /// Of what is kept.
        kept: i32,
        /// Of this program.
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
            error => RebuildError::Log(error),
        }
    }
}

/// How far a rebuild or a verification is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Events are taken in.
    Replaying {
        /// So many, those of other aggregates too.
        events: u64,
        /// Of so many.
        total: u64,
    },
    /// The shadow becomes the view.
    Swapping,
    /// Rows are compared.
    Comparing,
}

/// What a rebuild came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rebuilt {
    /// Which view.
    pub name: &'static str,
    /// Rows that there are now.
    pub rows: u64,
    /// The last position that they include.
    pub position: u64,
}

/// Make a view again, with one worker. Several may do so at once: they share the work, and whoever is last finds it
/// done.
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

/// Make views again: the log is read once for all of them, by so many workers. A shadow that was begun by another
/// number of them goes on with as many.
///
/// # Errors
/// [`RebuildError`]. Views before the one that failed are made; the shadows of the others are kept.
pub fn rebuild_all<'a>(
    source: impl Into<Source>,
    names: &'a [&'a str],
    parallel: u32,
    mut progress: impl FnMut(Progress) + Send + 'a,
) -> BoxFuture<'a, Result<Vec<Rebuilt>, RebuildError>> {
    let source = source.into();
    Box::pin(async move {
        let pool = &source.pool;
        let mut by_workers: BTreeMap<u32, Vec<Making>> = BTreeMap::new();
        for name in names {
            let view = view(name).ok_or_else(|| RebuildError::Unknown((*name).into()))?;
            let mut making = Making::of(view, &source);
            making.begin(pool, parallel.clamp(1, WORKERS)).await?;
            by_workers.entry(making.workers).or_default().push(making);
        }
        let mut rebuilt = vec![];
        for (workers, makings) in by_workers {
            scan::scan(pool, &makings, workers, &mut progress).await?;
            for mut making in makings {
                rebuilt.push(finish(pool, &mut making, &mut progress).await?);
            }
        }
        Ok(rebuilt)
    })
}

/// Go back to the rows that were in use before the last rebuild, brought up to date; what is in use now is kept in
/// their place. A rebuild of it that is on its way loses its shadow, and says so.
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
        let mut making = Making::of(view, &source);
        making.take_up_previous(pool).await?;
        scan::scan(pool, std::slice::from_ref(&making), making.workers, &mut progress).await?;
        finish(pool, &mut making, &mut progress).await
    })
}

/// Make the rows of some streams (kind and id) again, without the rest of the log.
pub(crate) fn remake<'a>(
    source: &'a Source,
    view: Box<dyn View>,
    streams: &'a [(String, String)],
) -> BoxFuture<'a, Result<(), RebuildError>> {
    Box::pin(async move {
        let pool = &source.pool;
        let mut making = Making::of(view, source);
        making.take_up_live(pool, streams).await?;
        let workers = making.workers;
        scan::scan(pool, std::slice::from_ref(&making), workers, &mut |_: Progress| {}).await?;
        finish(pool, &mut making, &mut |_: Progress| {}).await.map(drop)
    })
}

async fn finish(
    pool: &PgPool,
    making: &mut Making,
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<Rebuilt, RebuildError> {
    progress(Progress::Swapping);
    making.index(pool).await?;
    let position = swap(pool, making).await?;
    // Counted when nobody waits any more.
    let count = format!("select count(*) from {}", making.live);
    let rows = sqlx::query(&count).fetch_one(pool).await?.try_get::<i64, _>(0)?;
    Ok(Rebuilt { name: making.view.name(), rows: u64::try_from(rows).unwrap_or(0), position })
}

/// Take the events after a position, and not after another, into a table: where it is then.
pub(crate) async fn page(
    connection: &mut PgConnection,
    source: &Source,
    (before, last): (u64, u64),
    view: &dyn View,
    (folding, table): (&mut dyn Folding, &str),
) -> Result<u64, LogError> {
    let at = head(&mut *connection).await?.min(last).min(before.saturating_add(PAGE));
    let events =
        crate::fact::page(&mut *connection, source, (before, at), view.aggregates()).await?;
    if !events.is_empty() {
        let events: Vec<_> = events.iter().collect();
        folding.project(connection, table, &events).await?;
    }
    Ok(at.max(before))
}

/// The position of the last event.
pub(crate) async fn head(connection: &mut PgConnection) -> Result<u64, sqlx::Error> {
    let row = sqlx::query("select position from log_head").fetch_one(connection).await?;
    Ok(u64::try_from(row.try_get::<i64, _>(0)?).unwrap_or(0))
}

/// The last position that the rows of a view include.
pub(crate) async fn live_position(
    connection: &mut PgConnection,
    view: &dyn View,
) -> Result<u64, sqlx::Error> {
    match view.class() {
        Class::Synchronous => head(connection).await,
        Class::Asynchronous => {
            let of = (view.name(), view.version(), LIVE);
            Ok(event_log::consumer::position(connection, of).await?.unwrap_or(0))
        }
    }
}

/// A view that has no rows because nothing has happened yet, or that starts from the first event.
pub(crate) async fn found(pool: &PgPool, name: &str, version: i32) -> Result<(), sqlx::Error> {
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
