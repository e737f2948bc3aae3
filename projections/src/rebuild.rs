//! Everything again from the first event, into a shadow, while the server runs; then the shadow becomes the
//! view, and what was the view is kept beside it.
//!
//! It may be killed at any time: it goes on where its shadow is.
use event_log::LogError;
use futures::future::BoxFuture;
use sqlx::{PgConnection, PgPool, Row};

use crate::{
    Class, Recorded,
    catalogue::{LIVE, SHADOW, view},
    fact,
    fold::{Folding, View},
    swap::swap,
};

/// How many events are taken at once.
const PAGE: u64 = 5_000;

/// Why a view was not made again. What was there is as it was.
#[derive(Debug, thiserror::Error)]
pub enum RebuildError {
    /// There is no such view.
    #[error("there is no projection {0}; `stead projections list` shows all")]
    Unknown(String),
    /// The log cannot be read, or the database does not answer.
    #[error(transparent)]
    Log(#[from] LogError),
    /// Readers did not let go of the view in time; the shadow is there, so the next try is short.
    #[error("the view is busy; try again")]
    Busy,
}

impl From<sqlx::Error> for RebuildError {
    fn from(error: sqlx::Error) -> RebuildError {
        RebuildError::Log(error.into())
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
    /// Rows that there are now.
    pub rows: u64,
    /// The last position that they include.
    pub position: u64,
}

/// Make a view again.
///
/// # Errors
/// [`RebuildError`].
pub fn rebuild<'a>(
    pool: &'a PgPool,
    name: &'a str,
    mut progress: impl FnMut(Progress) + Send + 'a,
) -> BoxFuture<'a, Result<Rebuilt, RebuildError>> {
    Box::pin(async move {
        let view = view(name).ok_or_else(|| RebuildError::Unknown(name.into()))?;
        let shadow = Shadow::of(&*view);
        shadow.make(pool).await?;
        let mut folding = view.folding();
        loop {
            let mut tx = pool.begin().await?;
            let total = head(&mut tx).await?;
            let (before, at) = shadow.page(&mut tx, &*view, &mut *folding).await?;
            tx.commit().await?;
            progress(Progress::Replaying { events: at, total: total.max(at) });
            if at == before || at >= total {
                break;
            }
        }
        progress(Progress::Swapping);
        swap(pool, &*view, &shadow, &mut *folding).await
    })
}

/// Where rows are made again.
pub(crate) struct Shadow {
    pub name: &'static str,
    pub version: i32,
    pub live: String,
    pub table: String,
}

impl Shadow {
    pub(crate) fn of(view: &dyn View) -> Shadow {
        let live = view.table();
        let table = format!("{live}_shadow");
        Shadow { name: view.name(), version: view.version(), live, table }
    }

    async fn make(&self, pool: &PgPool) -> Result<(), sqlx::Error> {
        let mut tx = pool.begin().await?;
        let (table, live) = (&self.table, &self.live);
        let new = sqlx::query(
            "insert into log_consumer (name, version, shard, position, owner_epoch) \
             values ($1, $2, $3, 0, 0) on conflict do nothing",
        )
        .bind(self.name)
        .bind(self.version)
        .bind(SHADOW)
        .execute(&mut *tx)
        .await?;
        if new.rows_affected() == 1 {
            let sql = format!(
                "drop table if exists {table}; create table {table} (like {live} including all)"
            );
            sqlx::Executor::execute(&mut *tx, &*sql).await?;
        }
        tx.commit().await
    }

    /// Take the next page into the shadow: where it was, and where it is.
    pub(crate) fn page<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        view: &'a dyn View,
        folding: &'a mut dyn Folding,
    ) -> BoxFuture<'a, Result<(u64, u64), LogError>> {
        Box::pin(self.take(connection, view, folding))
    }

    async fn take(
        &self,
        connection: &mut PgConnection,
        view: &dyn View,
        folding: &mut dyn Folding,
    ) -> Result<(u64, u64), LogError> {
        let row = sqlx::query(
            "select position from log_consumer where name = $1 and version = $2 and shard = $3 \
             for update",
        )
        .bind(self.name)
        .bind(self.version)
        .bind(SHADOW)
        .fetch_one(&mut *connection)
        .await?;
        let before = u64::try_from(row.try_get::<i64, _>(0)?).unwrap_or(0);
        let at = page(connection, (before, u64::MAX), view, folding, &self.table).await?;
        sqlx::query(
            "update log_consumer set position = $4 where name = $1 and version = $2 and shard = $3",
        )
        .bind(self.name)
        .bind(self.version)
        .bind(SHADOW)
        .bind(i64::try_from(at).unwrap_or(i64::MAX))
        .execute(connection)
        .await?;
        Ok((before, at))
    }
}

/// Take the events after a position, and not after another, into a table: where it is then.
pub(crate) async fn page(
    connection: &mut PgConnection,
    (before, last): (u64, u64),
    view: &dyn View,
    folding: &mut dyn Folding,
    table: &str,
) -> Result<u64, LogError> {
    let at = head(&mut *connection).await?.min(last).min(before.saturating_add(PAGE));
    let events = fact::page(&mut *connection, (before, at), view.aggregates()).await?;
    if !events.is_empty() {
        let events: Vec<&Recorded> = events.iter().collect();
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
