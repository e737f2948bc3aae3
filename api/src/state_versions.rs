//! Encrypted versions of the Terraform state of components. The server stores them in order and
//! cannot read them.
//!
//! ```text
//! order: fence, then serial within a lineage
//! same serial and digest     repeated, nothing is stored
//! same serial, other digest  conflict
//! other lineage              after an empty state or a decision, else a conflict
//! ```
mod order;
mod uploads;

use domain::{decider::Timestamp, ids::InstallId, state_version::StateVersion};
use schemas::{manifest::Fence, runner::StateHead};
use sqlx::{PgConnection, PgPool, Row as _, postgres::PgRow};

pub(crate) use self::{
    order::{Conflict, Place, Replaces},
    uploads::Uploads,
};

/// Number of newest versions of a component that are kept. Versions that the log names are kept as
/// well.
const KEPT: i64 = 10;

/// Component whose state is stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Of<'a> {
    pub install: InstallId,
    pub component: &'a str,
}

/// Version to store.
pub(crate) struct NewVersion<'a> {
    pub head: &'a StateHead,
    pub ciphertext: &'a [u8],
    pub replaces: Replaces,
    /// Versions that the log names, which are kept.
    pub named: &'a [StateVersion],
}

/// Reasons why a version was not stored.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotStored {
    Conflict(Conflict),
    /// The data of the install was erased.
    Erased,
    /// Another version of the component is being stored.
    Busy,
}

/// Stores a version. Returns the newest version of the component afterwards, which is the stored
/// one, or an earlier upload of the same state.
pub(crate) async fn put(
    pool: &PgPool,
    now: Timestamp,
    of: Of<'_>,
    new: NewVersion<'_>,
) -> Result<Result<StateHead, NotStored>, sqlx::Error> {
    let mut tx = pool.begin().await?;
    let stored = put_in(&mut tx, now, of, new).await?;
    // An explicit rollback releases the lock of the component immediately.
    match stored {
        Ok(_) => tx.commit().await?,
        Err(_) => tx.rollback().await?,
    }
    Ok(stored)
}

async fn put_in(
    tx: &mut PgConnection,
    now: Timestamp,
    of: Of<'_>,
    new: NewVersion<'_>,
) -> Result<Result<StateHead, NotStored>, sqlx::Error> {
    let install = of.install.to_string();
    // Does not wait: waiting uploads would hold all connections of the pool.
    let lock = "select pg_try_advisory_xact_lock(hashtextextended('state_version ' || $1 || ' ' || $2, 0))";
    let is_locked: bool =
        sqlx::query_scalar(lock).bind(&install).bind(of.component).fetch_one(&mut *tx).await?;
    if !is_locked {
        return Ok(Err(NotStored::Busy));
    }
    let newest = newest_in(&mut *tx, of).await?;
    match order::place(newest.as_ref(), new.head, new.replaces) {
        Err(conflict) => return Ok(Err(NotStored::Conflict(conflict))),
        Ok(Place::Repeated) => return Ok(Ok(newest.unwrap_or_else(|| new.head.clone()))),
        Ok(Place::New) => {}
    }
    // A single statement: either an erasure of the install waits for this statement, or the
    // statement sees that the key of the install was deleted.
    let sql = "insert into state_version (install, component, number, lineage, serial, fence_epoch, \
               fence_position, digest, is_empty, size, ciphertext, created_at) \
             select $1::text, $2::text, coalesce((select max(number) from state_version \
               where install = $1 and component = $2), 0) + 1, $3::text, $4::int8, $5::int8, $6::int8, \
               $7::text, $8::bool, $9::int8, $10::bytea, $11::timestamptz \
             where not exists (select from subject_key where subject = $1 and shredded_at is not null)";
    let head = new.head;
    let stored = sqlx::query(sql)
        .bind(&install)
        .bind(of.component)
        .bind(&head.lineage)
        .bind(head.serial.cast_signed())
        .bind(head.fence.epoch.cast_signed())
        .bind(head.fence.position.cast_signed())
        .bind(&head.digest)
        .bind(head.is_empty)
        .bind((new.ciphertext.len() as u64).cast_signed())
        .bind(new.ciphertext)
        .bind(now)
        .execute(&mut *tx)
        .await?;
    if stored.rows_affected() == 0 {
        return Ok(Err(NotStored::Erased));
    }
    remove_old(tx, of, new.named).await?;
    Ok(Ok(head.clone()))
}

/// Deletes versions that are neither among the newest nor named by the log.
async fn remove_old(
    tx: &mut PgConnection,
    of: Of<'_>,
    named: &[StateVersion],
) -> Result<(), sqlx::Error> {
    let sql = "delete from state_version v where install = $1 and component = $2 \
             and number <= (select max(number) from state_version where install = $1 and component = $2) - $3 \
             and not exists (select from unnest($4::text[], $5::int8[]) as named (lineage, serial) \
               where named.lineage = v.lineage and named.serial = v.serial)";
    let lineages: Vec<&str> = named.iter().map(|version| version.lineage.as_str()).collect();
    let serials: Vec<i64> = named.iter().map(|version| version.serial.cast_signed()).collect();
    sqlx::query(sql)
        .bind(of.install.to_string())
        .bind(of.component)
        .bind(KEPT)
        .bind(lineages)
        .bind(serials)
        .execute(tx)
        .await?;
    Ok(())
}

const COLUMNS: &str = "lineage, serial, fence_epoch, fence_position, digest, is_empty";

async fn newest_in(
    connection: &mut PgConnection,
    of: Of<'_>,
) -> Result<Option<StateHead>, sqlx::Error> {
    let sql = format!(
        "select {COLUMNS} from state_version where install = $1 and component = $2 order by number desc limit 1"
    );
    let row = sqlx::query(&sql).bind(of.install.to_string()).bind(of.component);
    row.fetch_optional(connection).await?.map(|row| head(&row)).transpose()
}

/// Returns the newest version of a component, without its ciphertext.
pub(crate) async fn newest(pool: &PgPool, of: Of<'_>) -> Result<Option<StateHead>, sqlx::Error> {
    newest_in(&mut *pool.acquire().await?, of).await
}

/// Returns a version with its ciphertext: the newest one, or the last one with this lineage and
/// serial.
pub(crate) async fn read(
    pool: &PgPool,
    of: Of<'_>,
    version: Option<(&str, u64)>,
) -> Result<Option<(StateHead, Vec<u8>)>, sqlx::Error> {
    let sql = format!(
        "select {COLUMNS}, ciphertext from state_version where install = $1 and component = $2 \
         and ($3::text is null or (lineage = $3 and serial = $4)) order by number desc limit 1"
    );
    let row = sqlx::query(&sql)
        .bind(of.install.to_string())
        .bind(of.component)
        .bind(version.map(|(lineage, _)| lineage))
        .bind(version.map_or(0, |(_, serial)| serial.cast_signed()))
        .fetch_optional(pool)
        .await?;
    row.map(|row| Ok((head(&row)?, row.try_get("ciphertext")?))).transpose()
}

fn head(row: &PgRow) -> Result<StateHead, sqlx::Error> {
    let number = |name: &str| row.try_get::<i64, _>(name).map(i64::cast_unsigned);
    let fence = Fence { epoch: number("fence_epoch")?, position: number("fence_position")? };
    let (lineage, serial) = (row.try_get("lineage")?, number("serial")?);
    let (digest, is_empty) = (row.try_get("digest")?, row.try_get("is_empty")?);
    Ok(StateHead { lineage, serial, fence, digest, is_empty })
}

/// Deletes all versions of these installs.
pub(crate) async fn erase(pool: &PgPool, installs: &[String]) -> Result<(), sqlx::Error> {
    let delete = "delete from state_version where install = any($1)";
    sqlx::query(delete).bind(installs).execute(pool).await?;
    Ok(())
}

/// Returns the number of versions that [`erase`] would delete.
pub(crate) async fn not_erased(pool: &PgPool, installs: &[String]) -> Result<i64, sqlx::Error> {
    let count = "select count(*) from state_version where install = any($1)";
    sqlx::query_scalar(count).bind(installs).fetch_one(pool).await
}
