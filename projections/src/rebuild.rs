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

#[cfg(test)]
mod tests;

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
    Log(LogError),
    /// A new table is made in place of the old one, and only the tables' owner may do that.
    #[error(
        "only the role that owns the tables can make a view again: give its URL as DATABASE_OWNER_URL ({0})"
    )]
    NotOwner(sqlx::Error),
    /// Readers did not let go of the view in time; the shadow is there, so the next try is short.
    #[error("the view is busy; try again")]
    Busy,
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
    /// Rows that there are now.
    pub rows: u64,
    /// The last position that they include.
    pub position: u64,
}

/// Make a view again. Several may do so at once: they share the work, and whoever is last finds it done.
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
        let mut making = Making::of(view);
        making.begin(pool).await?;
        loop {
            let mut tx = pool.begin().await?;
            let total = head(&mut tx).await?;
            let Some(Taken { before, at }) = making.page(&mut tx).await? else { break };
            tx.commit().await?;
            progress(Progress::Replaying { events: at, total: total.max(at) });
            if at == before || at >= total {
                break;
            }
        }
        progress(Progress::Swapping);
        let position = swap(pool, &mut making).await?;
        // Counted when nobody waits any more.
        let count = format!("select count(*) from {}", making.live);
        let rows = sqlx::query(&count).fetch_one(pool).await?.try_get::<i64, _>(0)?;
        Ok(Rebuilt { rows: u64::try_from(rows).unwrap_or(0), position })
    })
}

/// A view being made again: its shadow in the database, and what we have in memory of it.
pub(crate) struct Making {
    pub view: Box<dyn View>,
    /// The table that is read.
    pub live: String,
    /// The table that becomes it.
    pub shadow: String,
    folding: Box<dyn Folding>,
    /// Where we left the shadow, which another rebuild of the same view may move on.
    left_at: Option<u64>,
    /// How many events are taken at once.
    pub by: u64,
}

/// A page that went into the shadow: where that was, and where it is.
pub(crate) struct Taken {
    pub before: u64,
    pub at: u64,
}

impl Making {
    pub(crate) fn of(view: Box<dyn View>) -> Making {
        let (live, folding) = (view.table(), view.folding());
        let shadow = format!("{live}_shadow");
        Making { view, live, shadow, folding, left_at: None, by: PAGE }
    }

    /// Make the shadow, unless it is there: like the table that is read, also in how it is stored.
    pub(crate) async fn begin(&self, pool: &PgPool) -> Result<(), sqlx::Error> {
        let mut tx = pool.begin().await?;
        let (shadow, live) = (&self.shadow, &self.live);
        let new = sqlx::query(
            "insert into log_consumer (name, version, shard, position, owner_epoch) \
             values ($1, $2, $3, 0, 0) on conflict do nothing",
        )
        .bind(self.view.name())
        .bind(self.view.version())
        .bind(SHADOW)
        .execute(&mut *tx)
        .await?;
        if new.rows_affected() == 1 {
            // Rows of another version of the program would go into the same table.
            sqlx::query(
                "delete from log_consumer where name = $1 and shard = $2 and version <> $3",
            )
            .bind(self.view.name())
            .bind(SHADOW)
            .bind(self.view.version())
            .execute(&mut *tx)
            .await?;
            let sql = format!(
                "drop table if exists {shadow}; create table {shadow} (like {live} including all)"
            );
            sqlx::Executor::execute(&mut *tx, &*sql).await?;
            // `like` copies all but these, and a table of statuses without its fill factor writes every index anew.
            let stored = sqlx::query(
                "select array_to_string(reloptions, ', ') from pg_class where oid = $1::regclass",
            );
            let stored = stored.bind(live).fetch_one(&mut *tx).await?;
            if let Some(stored) = stored.try_get::<Option<String>, _>(0)? {
                let sql = format!("alter table {shadow} set ({stored})");
                sqlx::Executor::execute(&mut *tx, &*sql).await?;
            }
        }
        tx.commit().await
    }

    /// Take the next page into the shadow. `None`: there is none any more, because another rebuild of the same
    /// view has put it into use.
    pub(crate) fn page<'a>(
        &'a mut self,
        connection: &'a mut PgConnection,
    ) -> BoxFuture<'a, Result<Option<Taken>, LogError>> {
        Box::pin(self.take(connection))
    }

    async fn take(&mut self, connection: &mut PgConnection) -> Result<Option<Taken>, LogError> {
        let (name, version) = (self.view.name(), self.view.version());
        let row = sqlx::query(
            "select position from log_consumer where name = $1 and version = $2 and shard = $3 \
             for update",
        )
        .bind(name)
        .bind(version)
        .bind(SHADOW)
        .fetch_optional(&mut *connection)
        .await?;
        let Some(row) = row else { return Ok(None) };
        let before = u64::try_from(row.try_get::<i64, _>(0)?).unwrap_or(0);
        if self.left_at != Some(before) {
            // Another rebuild wrote meanwhile: its rows count, not those that we remember.
            self.folding.forget();
        }
        let upto = before.saturating_add(self.by);
        let at =
            page(connection, (before, upto), &*self.view, &mut *self.folding, &self.shadow).await?;
        sqlx::query(
            "update log_consumer set position = $4 where name = $1 and version = $2 and shard = $3",
        )
        .bind(name)
        .bind(version)
        .bind(SHADOW)
        .bind(i64::try_from(at).unwrap_or(i64::MAX))
        .execute(connection)
        .await?;
        self.left_at = Some(at);
        Ok(Some(Taken { before, at }))
    }

    /// What was taken last was rolled back.
    pub(crate) fn forget(&mut self) {
        self.folding.forget();
        self.left_at = None;
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
