//! Who moves a consumer's position. A projection moves it in its own transaction. What a policy causes is guarded by
//! it ([`crate::ConsumerGuard`]), and the policies' loop moves it when everything up to there was reacted to.
use std::time::Duration;

use sqlx::{PgExecutor, PgPool, Row};

use crate::{
    Clock,
    stored::{bigint, number},
};

/// A consumer that is ours until the lease ends or somebody takes it over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Which consumer.
    pub name: String,
    /// Of which version.
    pub version: i32,
    /// Which of its parts.
    pub shard: i32,
    /// Everything up to here has been consumed.
    pub position: u64,
    /// Which ownership this is; it grows with every change of owner.
    pub owner_epoch: u64,
}

/// Take a consumer that nobody owns, that is ours already or whose owner fell silent, and make it if there is
/// none. `None`: somebody else owns it.
///
/// # Errors
/// If the database does not answer.
pub async fn acquire(
    pool: &PgPool,
    clock: &Clock,
    (name, version, shard): (&str, i32, i32),
    owner: &str,
    lease: Duration,
) -> Result<Option<Held>, sqlx::Error> {
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
    // All rows: the lease is ours when the database has ended its answer, not when it has begun it.
    .fetch_all(pool)
    .await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let (position, owner_epoch) = (number(row.try_get(0)?), number(row.try_get(1)?));
    Ok(Some(Held { name: name.into(), version, shard, position, owner_epoch }))
}

/// Where a consumer is; `None`: there is none.
///
/// # Errors
/// If the database does not answer.
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

/// Move a consumer, where it is a projection's inside the transaction that also writes what it made of the events. False:
/// it is no longer where or whose it was; roll back.
///
/// # Errors
/// If the database does not answer.
pub async fn advance(
    executor: impl PgExecutor<'_>,
    held: &Held,
    to: u64,
) -> Result<bool, sqlx::Error> {
    let done = sqlx::query(
        "update log_consumer set position = $1 where name = $2 and version = $3 and shard = $4 \
         and position = $5 and owner_epoch = $6",
    )
    .bind(bigint(to))
    .bind(&held.name)
    .bind(held.version)
    .bind(held.shard)
    .bind(bigint(held.position))
    .bind(bigint(held.owner_epoch))
    .execute(executor)
    .await?;
    Ok(done.rows_affected() == 1)
}
