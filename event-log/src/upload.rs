//! Bytes that a runner uploads before the report that names them.
//!
//! ```text
//! PUT ─▶ blob_upload ── accepted report ─▶ blob
//!            └─────── a day later ───────▶ deleted
//! ```
//! An upload is kept apart from `blob`, whose rows are never deleted by a server: collecting uploads cannot take bytes
//! that an event names. A report that lost the race with the collector is refused and uploads again.
use chrono::TimeDelta;
use domain::digest::Digest;
use sqlx::{PgPool, Row as _};

use crate::{
    Clock,
    blob::{BlobError, digest, get},
};

/// How long an upload counts towards its quotas and may be named.
const KEPT: TimeDelta = TimeDelta::hours(24);
/// How many uploads one statement deletes.
const AT_ONCE: i64 = 200;

/// Most bytes that may be uploaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// By one execution.
    pub execution: u64,
    /// By one runner, within a day.
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
    /// That of the execution.
    Execution,
    /// That of the runner.
    Runner,
}

/// Why an upload was not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotStored {
    /// It would exceed a quota.
    Exceeds(Limit),
    /// The data of the execution was erased.
    Erased,
}

/// Condition that the data of execution `$2` was not erased: the mark of its log counts for all that it sent.
const NOT_ERASED: &str =
    "not exists (select from job_log where execution = $2 and start_offset = -1)";

/// Uploader: the execution and its runner.
#[derive(Debug, Clone, Copy)]
pub struct Uploader<'u> {
    /// The execution.
    pub execution: &'u str,
    /// The runner.
    pub runner: &'u str,
}

/// Stores an upload. Storing the same bytes again changes nothing. Returns why it was not stored.
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
    let digest = digest(bytes)?;
    let mut tx = pool.begin().await?;
    // Concurrent uploads of one runner count each other.
    sqlx::query("select pg_advisory_xact_lock(hashtextextended('blob_upload ' || $1, 0))")
        .bind(by.runner)
        .execute(&mut *tx)
        .await?;
    let used = format!(
        "select {NOT_ERASED} as is_open, coalesce(sum(size), 0)::int8 as by_runner, \
           coalesce(sum(size) filter (where execution = $2), 0)::int8 as by_execution, \
           coalesce(bool_or(execution = $2 and digest = $3), false) as is_there \
         from blob_upload where runner = $1"
    );
    let used = sqlx::query(&used)
        .bind(by.runner)
        .bind(by.execution)
        .bind(digest.to_string())
        .fetch_one(&mut *tx)
        .await?;
    if !used.try_get::<bool, _>("is_open")? {
        return Ok(Err(NotStored::Erased));
    }
    if used.try_get("is_there")? {
        return Ok(Ok(()));
    }
    let size = bytes.len() as u64;
    let fits = |column, most: u64| {
        let used: i64 = used.try_get(column)?;
        Ok::<_, sqlx::Error>(used.unsigned_abs().saturating_add(size) <= most)
    };
    if !fits("by_execution", quota.execution)? {
        return Ok(Err(NotStored::Exceeds(Limit::Execution)));
    }
    if !fits("by_runner", quota.runner)? {
        return Ok(Err(NotStored::Exceeds(Limit::Runner)));
    }
    sqlx::query(
        "insert into blob_upload (digest, execution, runner, size, bytes, created_at) \
         values ($1, $2, $3, $4, $5, $6)",
    )
    .bind(digest.to_string())
    .bind(by.execution)
    .bind(by.runner)
    .bind(size.cast_signed())
    .bind(bytes)
    .bind(clock.now())
    .execute(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(Ok(()))
}

/// Bytes that an execution uploaded, or that are in `blob` already.
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

/// Moves an upload to `blob`, before the event that names it. An execution has one such upload: its plan's summary.
/// Returns whether the bytes are in `blob`.
///
/// # Errors
/// [`BlobError`].
pub async fn keep(
    pool: &PgPool,
    clock: &Clock,
    execution: &str,
    named: &Digest,
) -> Result<bool, BlobError> {
    // The row is locked first: from then on the collector waits, or has deleted it.
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

/// Deletes uploads that are older than a day, some at a time. Returns how many no report has named.
///
/// # Errors
/// The database does not answer.
pub async fn collect(pool: &PgPool, clock: &Clock) -> Result<u64, sqlx::Error> {
    let mut unnamed = 0;
    loop {
        let deleted: Vec<bool> = sqlx::query_scalar(
            "delete from blob_upload where (execution, digest) in ( \
               select execution, digest from blob_upload where created_at < $1 \
               order by created_at limit $2 for update skip locked) \
             returning bytes is not null",
        )
        .bind(clock.now() - KEPT)
        .bind(AT_ONCE)
        .fetch_all(pool)
        .await?;
        unnamed += deleted.iter().filter(|unnamed| **unnamed).count() as u64;
        if (deleted.len() as i64) < AT_ONCE {
            return Ok(unnamed);
        }
    }
}

/// Bytes that are uploaded and not named yet.
///
/// # Errors
/// The database does not answer.
pub async fn waiting(pool: &PgPool) -> Result<u64, sqlx::Error> {
    let sum = "select coalesce(sum(size), 0)::int8 from blob_upload where bytes is not null";
    let bytes: i64 = sqlx::query_scalar(sum).fetch_one(pool).await?;
    Ok(bytes.unsigned_abs())
}

/// Deletes what these executions uploaded, after their logs were marked as erased.
///
/// # Errors
/// The database does not answer.
pub async fn erase(pool: &PgPool, executions: &[String]) -> Result<(), sqlx::Error> {
    let delete = "delete from blob_upload where execution = any($1)";
    sqlx::query(delete).bind(executions).execute(pool).await?;
    Ok(())
}
