//! Encrypted versions of the Terraform state of components. The server stores them in order and
//! cannot read them.
//!
//! ```text
//! order: fence, then serial within a lineage
//! same serial and digest     repeated, nothing is stored
//! same serial, other digest  conflict
//! other lineage              after an empty state or a decision, else a conflict
//! ```
mod keep;
mod order;
mod read;
mod uploads;

use domain::{decider::Timestamp, ids::InstallId, state_version::StateVersion};
use schemas::{manifest::Fence, runner::StateHead};
use sqlx::{PgConnection, PgPool, Row as _, postgres::PgRow};

pub(crate) use self::{
    keep::mark_named,
    order::{Conflict, Place, Replaces},
    read::{find, has},
    uploads::{Transfer, Uploads},
};

/// Default of the maximum size of all versions of an install in bytes.
pub const DEFAULT_QUOTA: u64 = 4 << 30;

/// Component whose state is stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Of<'a> {
    pub install: InstallId,
    pub component: &'a str,
}

/// Version to store.
pub(crate) struct NewVersion<'a> {
    pub head: &'a StateHead,
    pub ciphertext: Vec<u8>,
    pub replaces: Replaces,
    /// Current versions of the component in the log.
    pub named: &'a [StateVersion],
    /// Maximum size of all versions of the install in bytes.
    pub quota: u64,
}

/// Reasons why a version was not stored.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotStored {
    Conflict(Conflict),
    /// The data of the install was erased.
    Erased,
    /// Another version of the component is being stored.
    Busy,
    /// The versions of the install would be larger than its quota.
    OverQuota,
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
               fence_position, digest, is_empty, size, ciphertext, created_at, is_named) \
             select $1::text, $2::text, coalesce((select max(number) from state_version \
               where install = $1 and component = $2), 0) + 1, $3::text, $4::int8, $5::int8, $6::int8, \
               $7::text, $8::bool, $9::int8, $10::bytea, $11::timestamptz, $12::bool \
             where not exists (select from subject_key where subject = $1 and shredded_at is not null)";
    let (head, size) = (new.head, new.ciphertext.len() as u64);
    let is_named = new.named.iter().any(|named| named.is_same(&head.version()));
    let stored = sqlx::query(sql)
        .bind(&install)
        .bind(of.component)
        .bind(&head.lineage)
        .bind(head.serial.cast_signed())
        .bind(head.fence.epoch.cast_signed())
        .bind(head.fence.position.cast_signed())
        .bind(&head.digest)
        .bind(head.is_empty)
        .bind(size.cast_signed())
        // Moved: the statement has its own copy.
        .bind(new.ciphertext)
        .bind(now)
        .bind(is_named)
        .execute(&mut *tx)
        .await?;
    if stored.rows_affected() == 0 {
        return Ok(Err(NotStored::Erased));
    }
    keep::mark_named_in(tx, of, new.named).await?;
    keep::remove_old(tx, of).await?;
    match keep::fit(tx, of, new.named, new.quota).await? {
        true => Ok(Ok(head.clone())),
        false => Ok(Err(NotStored::OverQuota)),
    }
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
