//! Positions of consumers. A projection advances its position in its own transaction. The commits
//! of a policy are guarded by the position ([`crate::ConsumerGuard`]). The policy loop advances the
//! position after it has processed every event up to the new position.
use std::time::Duration;

use sqlx::{PgExecutor, PgPool, Row};

use crate::{
    Clock,
    stored::{bigint, number},
};

/// Lease on a consumer. Another owner can acquire it after the lease has expired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerLease {
    pub name: String,
    /// Version of the consumer. Each version has its own position.
    pub version: i32,
    /// Shard of the consumer; 0 if it has no shards.
    pub shard: i32,
    /// Position up to which every event was processed.
    pub position: u64,
    /// Epoch of the ownership. Every change of owner increments it.
    pub owner_epoch: u64,
}

/// Acquires the lease on a consumer if it has no owner, if `owner` has the lease already, or if the
/// lease has expired. Creates a missing consumer. Returns `None` if another owner has the lease.
///
/// # Errors
/// If a database operation fails.
pub async fn acquire(
    pool: &PgPool,
    clock: &Clock,
    (name, version, shard): (&str, i32, i32),
    owner: &str,
    lease: Duration,
) -> Result<Option<ConsumerLease>, sqlx::Error> {
    let now = clock.now();
    let rows = sqlx::query(
        "insert into log_consumer as c (name, version, shard, position, owner, owner_epoch, lease_until) \
         values ($1, $2, $3, 0, $4, 1, $5) \
         on conflict (name, version, shard) do update set owner = excluded.owner, \
           owner_epoch = c.owner_epoch + (c.owner is distinct from excluded.owner)::int, \
           lease_until = excluded.lease_until \
         where c.owner is null or c.owner = excluded.owner or c.lease_until <= $6 \
         returning position, owner_epoch",
    )
    .bind(name)
    .bind(version)
    .bind(shard)
    .bind(owner)
    .bind(now + lease)
    .bind(now)
    // `fetch_all` reads the response to its end, because only then has the database committed the
    // lease.
    .fetch_all(pool)
    .await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let (position, owner_epoch) = (number(row.try_get(0)?), number(row.try_get(1)?));
    Ok(Some(ConsumerLease { name: name.into(), version, shard, position, owner_epoch }))
}

/// Returns the position of a consumer, or `None` if it does not exist.
///
/// # Errors
/// If a database operation fails.
pub async fn position(
    executor: impl PgExecutor<'_>,
    (name, version, shard): (&str, i32, i32),
) -> Result<Option<u64>, sqlx::Error> {
    let row = sqlx::query(
        "select position from log_consumer where name = $1 and version = $2 and shard = $3",
    )
    .bind(name)
    .bind(version)
    .bind(shard)
    .fetch_optional(executor)
    .await?;
    row.map(|row| row.try_get(0).map(number)).transpose()
}

/// Advances a consumer to position `to`. A projection calls this in the transaction that writes its
/// rows. Returns false if the position or the owner has changed; the caller must roll back.
///
/// # Errors
/// If a database operation fails.
pub async fn advance(
    executor: impl PgExecutor<'_>,
    lease: &ConsumerLease,
    to: u64,
) -> Result<bool, sqlx::Error> {
    let done = sqlx::query(
        "update log_consumer set position = $1 where name = $2 and version = $3 and shard = $4 \
         and position = $5 and owner_epoch = $6",
    )
    .bind(bigint(to))
    .bind(&lease.name)
    .bind(lease.version)
    .bind(lease.shard)
    .bind(bigint(lease.position))
    .bind(bigint(lease.owner_epoch))
    .execute(executor)
    .await?;
    Ok(done.rows_affected() == 1)
}
