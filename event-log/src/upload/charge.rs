//! Quotas of uploads. Counters in the database hold the charged bytes of each execution and each
//! runner.
//!
//! A change to the counters of a runner and its executions requires the runner's lock.
use domain::digest::Digest;
use sqlx::{PgConnection, PgPool, Row as _};

use super::Uploader;
use crate::blob::BlobError;

/// Minimum charge of an upload in bytes, because a row costs more than its bytes.
const MIN_CHARGE: u64 = 4096;

/// SQL expression: key of the advisory lock on a runner's counters.
const LOCK: &str = "hashtextextended('blob_upload ' || $1, 0)";

/// Maximum number of bytes that may be uploaded. Each upload counts at least 4 KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// Quota of one execution, in bytes.
    pub execution: u64,
    /// Quota of one runner within a day, in bytes.
    pub runner: u64,
}

impl Default for Quota {
    fn default() -> Quota {
        Quota { execution: 32 << 20, runner: 256 << 20 }
    }
}

/// Quota that an upload would exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    Execution,
    Runner,
}

/// Remaining quota for an upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemainingQuota {
    /// The execution has uploaded these bytes already.
    Stored,
    /// The execution has uploaded these bytes, but they are missing.
    Missing,
    /// The execution has not uploaded these bytes yet.
    Left {
        /// Remaining bytes.
        bytes: u64,
        /// Quota with the fewest remaining bytes.
        limit: Limit,
    },
}

/// Returns the number of bytes that an upload of this size adds to the counters.
pub fn charge(size: u64) -> u64 {
    size.max(MIN_CHARGE)
}

/// Returns the remaining quota for the bytes of a digest.
///
/// # Errors
/// [`BlobError`].
pub async fn remaining_quota(
    pool: &PgPool,
    by: Uploader<'_>,
    named: &Digest,
    quota: Quota,
) -> Result<RemainingQuota, BlobError> {
    remaining_quota_in(&mut *pool.acquire().await?, by, named, quota).await
}

pub(super) async fn remaining_quota_in(
    connection: &mut PgConnection,
    by: Uploader<'_>,
    named: &Digest,
    quota: Quota,
) -> Result<RemainingQuota, BlobError> {
    let sql = "select \
           coalesce((select bytes from upload_charge where holder = $1), 0) as by_runner, \
           coalesce((select bytes from upload_charge where holder = $2), 0) as by_execution, \
           (select u.bytes is not null or exists (select from blob where digest = $3) \
              from blob_upload u where u.execution = $2 and u.digest = $3) as is_there";
    let row = sqlx::query(sql)
        .bind(by.runner)
        .bind(by.execution)
        .bind(named.to_string())
        .fetch_one(connection)
        .await?;
    match row.try_get::<Option<bool>, _>("is_there")? {
        Some(true) => return Ok(RemainingQuota::Stored),
        Some(false) => return Ok(RemainingQuota::Missing),
        None => {}
    }
    let left = |column, most: u64| {
        let used: i64 = row.try_get(column)?;
        Ok::<_, sqlx::Error>(most.saturating_sub(used.unsigned_abs()))
    };
    let (execution, runner) =
        (left("by_execution", quota.execution)?, left("by_runner", quota.runner)?);
    Ok(if execution <= runner {
        RemainingQuota::Left { bytes: execution, limit: Limit::Execution }
    } else {
        RemainingQuota::Left { bytes: runner, limit: Limit::Runner }
    })
}

/// Locks the counters of a runner until the transaction ends. Returns false if another transaction
/// holds the lock.
pub(super) async fn try_lock(tx: &mut PgConnection, runner: &str) -> Result<bool, sqlx::Error> {
    let lock = format!("select pg_try_advisory_xact_lock({LOCK})");
    sqlx::query_scalar(&lock).bind(runner).fetch_one(tx).await
}

/// Locks the counters of a runner, and waits for another transaction that holds the lock.
pub(super) async fn lock(tx: &mut PgConnection, runner: &str) -> Result<(), sqlx::Error> {
    let lock = format!("select pg_advisory_xact_lock({LOCK})");
    sqlx::query(&lock).bind(runner).execute(tx).await?;
    Ok(())
}

/// Adds a stored upload to the counters of its runner and its execution.
pub(super) async fn add(
    tx: &mut PgConnection,
    by: Uploader<'_>,
    size: u64,
) -> Result<(), sqlx::Error> {
    let add = "insert into upload_charge as c (holder, bytes) values ($1, $3), ($2, $3) \
         on conflict (holder) do update set bytes = c.bytes + excluded.bytes";
    sqlx::query(add)
        .bind(by.runner)
        .bind(by.execution)
        .bind(charge(size).cast_signed())
        .execute(tx)
        .await?;
    Ok(())
}

/// Statement that deletes the uploads of runner `$1` that meet a condition, and subtracts them from
/// the counters. It returns the number of deleted uploads, and the number of those that no report
/// referenced.
pub(super) fn delete_statement(condition: &str) -> String {
    format!(
        "with gone as (delete from blob_upload where {condition} \
           returning execution, greatest(size, {MIN_CHARGE}) as charge, bytes is not null as unnamed), \
         less as (select execution as holder, sum(charge) as bytes from gone group by execution \
           union all select $1::text, coalesce(sum(charge), 0) from gone), \
         counted as (update upload_charge c set bytes = c.bytes - less.bytes \
           from less where c.holder = less.holder) \
         select count(*), count(*) filter (where unnamed) from gone"
    )
}

/// Deletes counters that are zero.
pub(super) async fn delete_empty_counters(pool: &PgPool) -> Result<(), sqlx::Error> {
    sqlx::query("delete from upload_charge where bytes <= 0").execute(pool).await?;
    Ok(())
}
