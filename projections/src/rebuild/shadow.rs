//! A shadow table in the database, with the position of each worker.
use event_log::{LogError, Source};
use futures::future::BoxFuture;
use sqlx::{PgConnection, PgPool, Row};

use super::{PAGE, RebuildError, head, live_position, scan::worker_of};
use crate::{
    catalogue::{LIVE, PREVIOUS, SHADOW},
    event,
    fold::{DynProjection, RowWriter},
    swap::is_locked,
};

/// A rebuild of one projection: its shadow table and the state in memory.
pub(crate) struct ShadowBuild {
    pub view: Box<dyn DynProjection>,
    pub live: String,
    /// Shadow table, which replaces the live one.
    pub shadow: String,
    /// Number of workers that share the streams.
    pub workers: u32,
    /// Purpose of the shadow table. A rebuild does not continue the shadow table of a rollback, or
    /// the reverse.
    pub(crate) aim: Option<&'static str>,
    /// Epoch of the live rows when the rebuild began. Every swap increments it.
    was: Option<i64>,
    writer: Box<dyn RowWriter>,
    /// Position that this process last wrote. A concurrent rebuild of the same projection may have
    /// advanced it.
    left_at: Option<u64>,
    /// Maximum number of events in a page.
    pub by: u64,
    /// Log to read from, with its keys.
    pub source: Source,
}

/// Purpose of a shadow table with the previous rows. Only another rollback continues an unfinished
/// rollback.
const ROLLBACK: Option<&str> = Some("rollback");
/// Time after the last page during which another process is assumed to work on a shadow table.
pub(super) const LEASE: &str = "30 s";

/// Positions before and after a page that was applied.
pub(crate) struct AppliedPage {
    pub before: u64,
    pub at: u64,
}

impl ShadowBuild {
    pub(crate) fn of(view: Box<dyn DynProjection>, source: &Source) -> ShadowBuild {
        let (live, writer) = (view.table(), view.writer());
        let shadow = format!("{live}_shadow");
        ShadowBuild {
            view,
            live,
            shadow,
            workers: 1,
            aim: None,
            was: None,
            writer,
            left_at: None,
            by: PAGE,
            source: source.clone(),
        }
    }

    /// Creates the shadow table if it does not exist. It is like the live table, including the
    /// storage options, but has no indexes yet ([`ShadowBuild::index`]).
    ///
    /// Fails if a rollback is active. That rollback has the only copy of the previous rows.
    pub(crate) async fn begin(&mut self, pool: &PgPool, workers: u32) -> Result<(), RebuildError> {
        let mut tx = pool.begin().await?;
        if self.is_rolled_back(&mut tx).await? {
            return Err(RebuildError::Busy(self.view.name()));
        }
        let (name, version) = (self.view.name(), self.view.version());
        sqlx::query("delete from log_consumer where name = $1 and shard >= $2 and owner = $3")
            .bind(name)
            .bind(SHADOW)
            .bind(ROLLBACK)
            .execute(&mut *tx)
            .await?;
        // The process that inserts the first worker's row creates the table.
        if self.add_workers(&mut tx, 1..=1, 0).await? == 1 {
            // Workers of another version of the program would write to the same table.
            sqlx::query(
                "delete from log_consumer where name = $1 and shard >= $2 and version <> $3",
            )
            .bind(name)
            .bind(SHADOW)
            .bind(version)
            .execute(&mut *tx)
            .await?;
            self.add_workers(&mut tx, 2..=workers, 0).await?;
            self.make_table(&mut tx).await?;
        }
        self.workers = self.positions(&mut tx).await?.len().try_into().unwrap_or(1).max(1);
        self.was = self.in_use(&mut tx).await?;
        Ok(tx.commit().await?)
    }

    /// Replaces the shadow table with an empty one.
    async fn make_table(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        let (shadow, live) = (&self.shadow, &self.live);
        let sql = format!(
            "drop table if exists {shadow}; \
             create table {shadow} (like {live} including all excluding indexes, primary key (key))"
        );
        sqlx::Executor::execute(&mut *connection, &*sql).await?;
        // `like` does not copy storage options. Without its fill factor, a table with status
        // columns would update every index on each write.
        let stored = sqlx::query(
            "select array_to_string(reloptions, ', ') from pg_class where oid = $1::regclass",
        );
        let stored = stored.bind(live).fetch_one(&mut *connection).await?;
        if let Some(stored) = stored.try_get::<Option<String>, _>(0)? {
            let sql = format!("alter table {shadow} set ({stored})");
            sqlx::Executor::execute(connection, &*sql).await?;
        }
        Ok(())
    }

    /// Copies the live rows to the shadow table, and rebuilds the rows of these streams (aggregate
    /// type and id). Does not read the rest of the log.
    pub(crate) async fn take_up_live(
        &mut self,
        pool: &PgPool,
        streams: &[(String, String)],
    ) -> Result<(), RebuildError> {
        let mut tx = pool.begin().await?;
        // The rows and their position must come from the same snapshot.
        let snapshot = "set transaction isolation level repeatable read";
        sqlx::Executor::execute(&mut *tx, snapshot).await?;
        if self.is_rolled_back(&mut tx).await? {
            return Err(RebuildError::Busy(self.view.name()));
        }
        let position = live_position(&mut tx, &*self.view).await?;
        sqlx::query("delete from log_consumer where name = $1 and shard >= $2")
            .bind(self.view.name())
            .bind(SHADOW)
            .execute(&mut *tx)
            .await?;
        self.add_workers(&mut tx, 1..=1, position.cast_signed()).await?;
        self.make_table(&mut tx).await?;
        let ids: Vec<&str> = streams.iter().map(|(_, id)| id.as_str()).collect();
        let others = format!(
            "insert into {} select * from {} where split_part(key, '/', 1) <> all($1)",
            self.shadow, self.live
        );
        sqlx::query(&others).bind(ids).execute(&mut *tx).await?;
        for (kind, id) in streams {
            if !self.view.aggregates().iter().any(|known| known == kind) {
                continue;
            }
            let (stream, range) = ((kind.as_str(), id.as_str()), (0, position));
            let found =
                event::streams::page(&mut tx, &self.source, stream, range, u32::MAX).await?;
            if !found.events.is_empty() {
                let events: Vec<_> = found.events.iter().collect();
                self.writer.project(&mut tx, &self.shadow, &events).await?;
            }
        }
        self.writer.forget();
        self.was = self.in_use(&mut tx).await?;
        Ok(tx.commit().await?)
    }

    /// Returns true if a rollback is active: its row is locked, or its lease has not expired.
    async fn is_rolled_back(&self, connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
        let works = "select lease_until > now() from log_consumer \
             where name = $1 and shard >= $2 and owner = $3 for update nowait";
        let works = sqlx::query_scalar::<_, Option<bool>>(works)
            .bind(self.view.name())
            .bind(SHADOW)
            .bind(ROLLBACK)
            .fetch_all(connection)
            .await;
        match works {
            Ok(rows) => Ok(rows.contains(&Some(true))),
            Err(error) if is_locked(&error) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Makes the previous rows the shadow table, in place of any other shadow table. If a rollback
    /// was interrupted, continues it.
    pub(crate) async fn take_up_previous(&mut self, pool: &PgPool) -> Result<(), RebuildError> {
        let mut tx = pool.begin().await?;
        let (name, known) = (self.view.name(), self.view.version());
        self.aim = ROLLBACK;
        let begun = !self.positions(&mut tx).await?.is_empty();
        self.was = self.in_use(&mut tx).await?;
        if begun {
            return Ok(());
        }
        let row = sqlx::query(
            "delete from log_consumer where name = $1 and shard = $2 returning version, position",
        )
        .bind(name)
        .bind(PREVIOUS)
        .fetch_optional(&mut *tx)
        .await?;
        let row = row.ok_or(RebuildError::NoPreviousRows(name))?;
        let (version, position): (i32, i64) = (row.try_get(0)?, row.try_get(1)?);
        if version != known {
            return Err(RebuildError::OtherVersion { name, kept: version, known });
        }
        sqlx::query("delete from log_consumer where name = $1 and shard >= $2")
            .bind(name)
            .bind(SHADOW)
            .execute(&mut *tx)
            .await?;
        self.add_workers(&mut tx, 1..=1, position).await?;
        let (shadow, live) = (&self.shadow, &self.live);
        let sql = format!(
            "drop table if exists {shadow}; alter table {live}_previous rename to {shadow}"
        );
        sqlx::Executor::execute(&mut *tx, &*sql).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Epoch of the live rows, or `None` if no live rows exist.
    async fn in_use(&self, connection: &mut PgConnection) -> Result<Option<i64>, sqlx::Error> {
        let epoch = "select max(owner_epoch) from log_consumer where name = $1 and shard = $2";
        let epoch = sqlx::query_scalar(epoch).bind(self.view.name()).bind(LIVE);
        epoch.fetch_one(connection).await
    }

    /// Returns true if another process with the same purpose has swapped its shadow table since
    /// this rebuild began.
    pub(crate) async fn is_done(&self, connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
        let same = "select 1 from log_consumer \
             where name = $1 and shard = $2 and owner is not distinct from $3";
        let same = sqlx::query(same).bind(self.view.name()).bind(PREVIOUS).bind(self.aim);
        let same = same.fetch_optional(&mut *connection).await?.is_some();
        Ok(same && self.in_use(connection).await? != self.was)
    }

    async fn add_workers(
        &self,
        connection: &mut PgConnection,
        numbers: std::ops::RangeInclusive<u32>,
        position: i64,
    ) -> Result<u64, sqlx::Error> {
        let shards: Vec<i32> = numbers.map(shard).collect();
        let new = sqlx::query(
            "insert into log_consumer \
               (name, version, shard, position, owner, owner_epoch, lease_until) \
             select $1, $2, shard, $4, $5, 0, now() + $6::interval \
               from unnest($3::integer[]) as u(shard) on conflict do nothing",
        )
        .bind(self.view.name())
        .bind(self.view.version())
        .bind(shards)
        .bind(position)
        .bind(self.aim)
        .bind(LEASE)
        .execute(connection)
        .await?;
        Ok(new.rows_affected())
    }

    /// Reads the positions of the workers and locks them until the end of the transaction. Empty if
    /// there is no shadow table.
    pub(super) async fn positions(
        &self,
        connection: &mut PgConnection,
    ) -> Result<Vec<u64>, sqlx::Error> {
        let rows = sqlx::query(
            "select position from log_consumer where name = $1 and version = $2 and shard >= $3 \
             and owner is not distinct from $4 order by shard for update",
        )
        .bind(self.view.name())
        .bind(self.view.version())
        .bind(SHADOW)
        .bind(self.aim)
        .fetch_all(connection)
        .await?;
        rows.iter().map(|row| Ok(u64::try_from(row.try_get::<i64, _>(0)?).unwrap_or(0))).collect()
    }

    /// Applies the next page for all workers, after they have finished. Returns `None` if the
    /// shadow table no longer exists. If the live rows changed, a concurrent rebuild of the same
    /// projection has swapped the shadow table.
    pub(crate) fn page<'a>(
        &'a mut self,
        connection: &'a mut PgConnection,
    ) -> BoxFuture<'a, Result<Option<AppliedPage>, LogError>> {
        Box::pin(self.take(connection))
    }

    async fn take(
        &mut self,
        connection: &mut PgConnection,
    ) -> Result<Option<AppliedPage>, LogError> {
        let positions = self.positions(connection).await?;
        let Some(before) = positions.iter().copied().min() else { return Ok(None) };
        if self.left_at != Some(before) || positions.iter().any(|at| *at != before) {
            // A concurrent rebuild has written rows, so the cached rows are outdated.
            self.writer.forget();
        }
        let at = head(connection).await?.min(before.saturating_add(self.by)).max(before);
        let rows =
            event::rows(&mut *connection, &self.source, (before, at), self.view.aggregates())
                .await?;
        let keys = event::keys(&mut *connection, &self.source, &rows).await?;
        let workers = u32::try_from(positions.len()).unwrap_or(1);
        let missing = |stream: &str, position: u64| {
            let of = usize::try_from(worker_of(stream, workers)).unwrap_or(0);
            positions.get(of).is_some_and(|at| *at < position)
        };
        let events = event::read(&rows, &keys, missing)?;
        if !events.is_empty() {
            let events: Vec<_> = events.iter().collect();
            self.writer.project(connection, &self.shadow, &events).await?;
        }
        sqlx::query(
            "update log_consumer set position = $4, lease_until = now() + $5::interval \
             where name = $1 and version = $2 and shard >= $3 and position < $4",
        )
        .bind(self.view.name())
        .bind(self.view.version())
        .bind(SHADOW)
        .bind(i64::try_from(at).unwrap_or(i64::MAX))
        .bind(LEASE)
        .execute(connection)
        .await?;
        self.left_at = Some(at);
        Ok(Some(AppliedPage { before, at }))
    }

    /// Clears the cache after a page was rolled back.
    pub(crate) fn forget(&mut self) {
        self.writer.forget();
        self.left_at = None;
    }
}

/// Consumer shard of a worker, counted from 1.
pub(super) fn shard(worker: u32) -> i32 {
    i32::try_from(worker).map_or(SHADOW, |worker| SHADOW - 1 + worker)
}
