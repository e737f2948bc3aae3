//! Bytes that a runner uploads before the report that references them.
//!
//! ```text
//! PUT ─▶ blob_upload ── accepted report ─▶ blob
//!            └─────── a day later ───────▶ deleted
//! ```
//! Uploads are separate from `blob`, whose rows only an erasure deletes. So the collector of
//! uploads cannot delete bytes that an event references. If the collector deletes an upload before
//! its report arrives, the server rejects the report and the runner uploads again.
use chrono::TimeDelta;
use domain::digest::Digest;
use sqlx::{PgConnection, PgPool};

use crate::{
    Clock,
    blob::{BlobError, digest, get},
    transaction::completed,
};

mod charge;
pub use charge::{Limit, Quota, RemainingQuota, charge, remaining_quota};

/// Time during which an upload counts towards its quotas and a report can reference it.
const RETENTION: TimeDelta = TimeDelta::hours(24);
/// Maximum number of uploads that one statement deletes.
const DELETE_BATCH: i64 = 200;

/// Reasons why an upload was not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotStored {
    /// The upload would exceed a quota.
    Exceeds(Limit),
    /// The data of the execution was erased.
    Erased,
    /// Another upload of the runner is being stored.
    Busy,
}

/// SQL condition: the data of execution `$2` was not erased.
const NOT_ERASED: &str = "not exists (select from erased_execution where execution = $2)";

/// Execution that an upload belongs to, and its runner.
#[derive(Debug, Clone, Copy)]
pub struct Uploader<'u> {
    pub execution: &'u str,
    pub runner: &'u str,
}

/// Stores an upload. Storing the same bytes again changes nothing, unless an erasure deleted them.
/// Returns the reason if the upload was not stored.
///
/// # Errors
/// [`BlobError`].
pub async fn put(
    pool: &PgPool,
    clock: &Clock,
    by: Uploader<'_>,
    bytes: &[u8],
    quota: Quota,
) -> Result<Result<(), NotStored>, BlobError> {
    let (digest, bytes) = (digest(bytes)?, bytes.to_vec());
    let (pool, clock) = (pool.clone(), clock.clone());
    let (runner, execution) = (by.runner.to_owned(), by.execution.to_owned());
    completed(async move {
        let by = Uploader { runner: &runner, execution: &execution };
        let mut tx = pool.begin().await?;
        let stored = put_in(&mut tx, &clock, by, (&digest, &bytes), quota).await?;
        // An explicit rollback releases the lock of the runner immediately. A dropped transaction
        // would hold the lock until the pool rolls it back.
        match stored {
            Ok(()) => tx.commit().await?,
            Err(_) => tx.rollback().await?,
        }
        Ok(stored)
    })
    .await
}

async fn put_in(
    tx: &mut PgConnection,
    clock: &Clock,
    by: Uploader<'_>,
    (digest, bytes): (&Digest, &[u8]),
    quota: Quota,
) -> Result<Result<(), NotStored>, BlobError> {
    let size = bytes.len() as u64;
    // Does not wait: waiting uploads would hold all connections of the pool.
    if !charge::try_lock(&mut *tx, by.runner).await? {
        return Ok(Err(NotStored::Busy));
    }
    let (sql, is_new) = match charge::remaining_quota_in(&mut *tx, by, digest, quota).await? {
        RemainingQuota::Stored => return Ok(Ok(())),
        RemainingQuota::Left { bytes, limit } if charge(size) > bytes => {
            return Ok(Err(NotStored::Exceeds(limit)));
        }
        // The upload was moved to a blob, and an erasure that did not see the upload deleted that
        // blob.
        RemainingQuota::Missing => {
            let again = "update blob_upload set bytes = $3, created_at = $4, runner = $5, size = $6 \
                 where digest = $1 and execution = $2 and bytes is null";
            (format!("{again} and {NOT_ERASED}"), false)
        }
        // A single statement: either an erasure of the execution waits for this statement, or the
        // statement sees that the execution is marked as erased.
        RemainingQuota::Left { .. } => {
            let new = "insert into blob_upload (digest, execution, bytes, created_at, runner, size) \
                 select $1::text, $2::text, $3::bytea, $4::timestamptz, $5::text, $6::int8";
            (format!("{new} where {NOT_ERASED}"), true)
        }
    };
    let stored = sqlx::query(&sql)
        .bind(digest.to_string())
        .bind(by.execution)
        .bind(bytes)
        .bind(clock.now())
        .bind(by.runner)
        .bind(size.cast_signed())
        .execute(&mut *tx)
        .await?;
    if stored.rows_affected() == 0 {
        return Ok(Err(NotStored::Erased));
    }
    if is_new {
        charge::add(&mut *tx, by, size).await?;
    }
    Ok(Ok(()))
}

/// Returns bytes that an execution uploaded, or that are in `blob` already.
///
/// # Errors
/// [`BlobError`].
pub async fn read(
    pool: &PgPool,
    execution: &str,
    named: &Digest,
) -> Result<Option<Vec<u8>>, BlobError> {
    let bytes = "select bytes from blob_upload where execution = $1 and digest = $2";
    let bytes: Option<Option<Vec<u8>>> = sqlx::query_scalar(bytes)
        .bind(execution)
        .bind(named.to_string())
        .fetch_optional(pool)
        .await?;
    match bytes.flatten() {
        Some(bytes) if digest(&bytes)? == *named => Ok(Some(bytes)),
        Some(_) => Err(BlobError::Damaged(named.clone())),
        None => get(pool, named).await,
    }
}

/// Moves an upload to `blob`, before the event that references it is appended. An execution
/// has one such upload: the summary of its plan. Returns true if the bytes are in `blob`.
///
/// # Errors
/// [`BlobError`].
pub async fn move_to_blob(
    pool: &PgPool,
    clock: &Clock,
    execution: &str,
    named: &Digest,
) -> Result<bool, BlobError> {
    // Locks the row first. The collector skips a locked row, or has deleted the row already.
    let moved = format!(
        "with upload as ( \
           select digest, bytes from blob_upload where execution = $2 and digest = $1 and bytes is not null \
             and {NOT_ERASED} \
             and not exists (select from blob_upload where execution = $2 and bytes is null) for update), \
         kept as (insert into blob (digest, bytes, created_at) select digest, bytes, $3 from upload \
           on conflict (digest) do nothing) \
         update blob_upload set bytes = null where execution = $2 and digest = (select digest from upload)"
    );
    sqlx::query(&moved)
        .bind(named.to_string())
        .bind(execution)
        .bind(clock.now())
        .execute(pool)
        .await?;
    let is_there = "select exists (select from blob where digest = $1)";
    Ok(sqlx::query_scalar(is_there).bind(named.to_string()).fetch_one(pool).await?)
}

/// Deletes uploads that are older than a day, in batches. Returns the number of deleted
/// uploads that no report referenced. Skips runners that are uploading; the next call deletes
/// their uploads.
///
/// # Errors
/// A database operation failed.
pub async fn delete_expired(pool: &PgPool, clock: &Clock) -> Result<u64, sqlx::Error> {
    let before = clock.now() - RETENTION;
    let runners = "select distinct runner from blob_upload where created_at < $1";
    let runners: Vec<String> = sqlx::query_scalar(runners).bind(before).fetch_all(pool).await?;
    let old = "select execution, digest from blob_upload where runner = $1 and created_at < $2 \
         order by created_at limit $3 for update skip locked";
    let delete = charge::delete_statement(&format!("(execution, digest) in ({old})"));
    let mut collected = 0;
    for runner in runners {
        loop {
            let mut tx = pool.begin().await?;
            if !charge::try_lock(&mut tx, &runner).await? {
                break;
            }
            let delete = sqlx::query_as(&delete).bind(&runner).bind(before).bind(DELETE_BATCH);
            let (deleted, unnamed): (i64, i64) = delete.fetch_one(&mut *tx).await?;
            tx.commit().await?;
            collected += unnamed.unsigned_abs();
            if deleted < DELETE_BATCH {
                break;
            }
        }
    }
    charge::delete_empty_counters(pool).await?;
    Ok(collected)
}

/// Returns the size in bytes of the uploads that no report references yet.
///
/// # Errors
/// A database operation failed.
pub async fn unreferenced_bytes(pool: &PgPool) -> Result<u64, sqlx::Error> {
    let sum = "select coalesce(sum(size), 0)::int8 from blob_upload where bytes is not null";
    let bytes: i64 = sqlx::query_scalar(sum).fetch_one(pool).await?;
    Ok(bytes.unsigned_abs())
}

/// Deletes the uploads of these executions, after they were marked as erased.
///
/// # Errors
/// A database operation failed.
pub async fn erase(pool: &PgPool, executions: &[String]) -> Result<(), sqlx::Error> {
    let runners = "select distinct runner from blob_upload where execution = any($1)";
    let runners: Vec<String> = sqlx::query_scalar(runners).bind(executions).fetch_all(pool).await?;
    let delete = charge::delete_statement("runner = $1 and execution = any($2)");
    for runner in runners {
        let mut tx = pool.begin().await?;
        charge::lock(&mut tx, &runner).await?;
        sqlx::query(&delete).bind(runner).bind(executions).execute(&mut *tx).await?;
        tx.commit().await?;
    }
    charge::delete_empty_counters(pool).await
}
