//! Shredding of subject keys. The key bytes are deleted. The row records the time of the deletion,
//! and the time at which the last copy of the data was erased.
use domain::decider::Timestamp;
use sqlx::{PgExecutor, PgPool};

/// Deletes the key of a subject. The row remains or is created, so that no server creates
/// another key.
///
/// # Errors
/// If a database operation fails.
pub async fn delete_key(pool: &PgPool, subject: &str, now: Timestamp) -> Result<(), sqlx::Error> {
    sqlx::query(
        "insert into subject_key as k (subject, created_at, shredded_at) values ($1, $2, $2) \
         on conflict (subject) do update set wrapped = null, wrapped_by = null, \
           shredded_at = coalesce(k.shredded_at, excluded.shredded_at)",
    )
    .bind(subject)
    .bind(now)
    .execute(pool)
    .await?;
    Ok(())
}

/// Returns the subjects whose shredding is in the log but whose key still exists. A server that
/// crashes between the append of the event and the deletion of the key leaves such a subject.
///
/// # Errors
/// If a database operation fails.
pub async fn unfinished(executor: impl PgExecutor<'_>) -> Result<Vec<String>, sqlx::Error> {
    // The first event of a subject's stream is the shredding. The second event records that the
    // last copy was erased.
    let decided = "select s.aggregate_id from log_stream s where s.aggregate_type = 'subject' \
         and s.version = 1 and not exists (select 1 from subject_key k \
           where k.subject = s.aggregate_id and k.shredded_at is not null)";
    sqlx::query_scalar(decided).fetch_all(executor).await
}

/// Returns true if the key of the subject was deleted.
///
/// # Errors
/// If a database operation fails.
pub async fn is_shredded(
    executor: impl PgExecutor<'_>,
    subject: &str,
) -> Result<bool, sqlx::Error> {
    let shredded =
        "select exists (select from subject_key where subject = $1 and shredded_at is not null)";
    sqlx::query_scalar(shredded).bind(subject).fetch_one(executor).await
}

/// A due erasure of a subject's copies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueErasure {
    /// Subject of the copies.
    pub subject: String,
    /// Number of the request. An erasure completes this request and all earlier ones.
    pub requests: i64,
}

/// Returns the subjects whose key was deleted but whose copies may still exist.
///
/// # Errors
/// If a database operation fails.
pub async fn with_copies(executor: impl PgExecutor<'_>) -> Result<Vec<DueErasure>, sqlx::Error> {
    let open = "select subject, erasure_requests from subject_key \
         where shredded_at is not null and erased_at is null order by subject";
    let due: Vec<(String, i64)> = sqlx::query_as(open).fetch_all(executor).await?;
    Ok(due.into_iter().map(|(subject, requests)| DueErasure { subject, requests }).collect())
}

/// Returns the subjects whose copies were erased.
///
/// # Errors
/// If a database operation fails.
pub async fn without_copies(executor: impl PgExecutor<'_>) -> Result<Vec<String>, sqlx::Error> {
    let done = "select subject from subject_key where shredded_at is not null and erased_at is not null \
         order by subject";
    sqlx::query_scalar(done).fetch_all(executor).await
}

/// Makes the database reject every copy that a server computes from events that it read at or
/// before the current head. The keys of these subjects must be deleted already. Running statements
/// may still write copies: [`wait_for_writers`] waits for them.
///
/// # Errors
/// If a database operation fails.
pub async fn raise_fence(
    executor: impl PgExecutor<'_>,
    subjects: &[String],
) -> Result<(), sqlx::Error> {
    let raise = "update subject_key set fence = (select position from log_head) \
         where subject = any($1) and shredded_at is not null";
    sqlx::query(raise).bind(subjects).execute(executor).await?;
    Ok(())
}

/// Waits for the transactions that write to one of these tables. Later statements see the data that
/// those transactions committed.
///
/// # Errors
/// If writers hold a table for 2 s, or the role may not lock it.
pub async fn wait_for_writers(owner: &PgPool, tables: &[&str]) -> Result<(), sqlx::Error> {
    for table in tables {
        let mut tx = owner.begin().await?;
        let lock = format!("set local lock_timeout = '2s'; lock table {table} in share mode");
        sqlx::Executor::execute(&mut *tx, &*lock).await?;
        tx.rollback().await?;
    }
    Ok(())
}

/// Requests another erasure of a shredded subject's copies, even if one is running.
///
/// # Errors
/// If a database operation fails.
pub async fn erase_again(executor: impl PgExecutor<'_>, subject: &str) -> Result<(), sqlx::Error> {
    let again = "update subject_key set erased_at = null, erasure_requests = erasure_requests + 1 \
         where subject = $1 and shredded_at is not null";
    sqlx::query(again).bind(subject).execute(executor).await?;
    Ok(())
}

/// Records that the last copy was erased, unless another erasure was requested after this one
/// began. Returns true if it was recorded.
///
/// # Errors
/// If a database operation fails.
pub async fn record_erasure(
    executor: impl PgExecutor<'_>,
    due: &DueErasure,
    now: Timestamp,
) -> Result<bool, sqlx::Error> {
    let erased = "update subject_key set erased_at = $3 \
         where subject = $1 and erasure_requests = $2 and erased_at is null";
    let erased = sqlx::query(erased).bind(&due.subject).bind(due.requests).bind(now);
    Ok(erased.execute(executor).await?.rows_affected() > 0)
}
