//! The end of a key: its bytes are deleted, and the row says since when, and when no copy of what it sealed was left.
use domain::decider::Timestamp;
use sqlx::{PgExecutor, PgPool};

/// Delete the key of a subject. Its row stays or is made: nobody makes another key.
///
/// # Errors
/// If the database does not answer.
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

/// Whose shredding is in the log, and whose key is there still: somebody was killed in between.
///
/// # Errors
/// If the database does not answer.
pub async fn undone(executor: impl PgExecutor<'_>) -> Result<Vec<String>, sqlx::Error> {
    // The first event of such a stream is the decision; the second, that no copy is left.
    let decided = "select s.aggregate_id from log_stream s where s.aggregate_type = 'subject' \
         and s.version = 1 and not exists (select 1 from subject_key k \
           where k.subject = s.aggregate_id and k.shredded_at is not null)";
    sqlx::query_scalar(decided).fetch_all(executor).await
}

/// Erasure of a subject's copies that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// Whose copies.
    pub subject: String,
    /// Number of the request: an erasure answers it and those before.
    pub requests: i64,
}

/// Subjects whose key was deleted, and of whom there are copies yet.
///
/// # Errors
/// If the database does not answer.
pub async fn with_copies(executor: impl PgExecutor<'_>) -> Result<Vec<Due>, sqlx::Error> {
    let open = "select subject, erasure_requests from subject_key \
         where shredded_at is not null and erased_at is null order by subject";
    let due: Vec<(String, i64)> = sqlx::query_as(open).fetch_all(executor).await?;
    Ok(due.into_iter().map(|(subject, requests)| Due { subject, requests }).collect())
}

/// Subjects whose copies were erased.
///
/// # Errors
/// If the database does not answer.
pub async fn without_copies(executor: impl PgExecutor<'_>) -> Result<Vec<String>, sqlx::Error> {
    let done = "select subject from subject_key where shredded_at is not null and erased_at is not null \
         order by subject";
    sqlx::query_scalar(done).fetch_all(executor).await
}

/// Makes the database reject copies of data that any server read up to the present head of the log. The keys of these
/// subjects must be deleted already. Statements in flight may still write copies: [`barrier`] waits for them.
///
/// # Errors
/// If the database does not answer.
pub async fn raise_fence(
    executor: impl PgExecutor<'_>,
    subjects: &[String],
) -> Result<(), sqlx::Error> {
    let raise = "update subject_key set fence = (select position from log_head) \
         where subject = any($1) and shredded_at is not null";
    sqlx::query(raise).bind(subjects).execute(executor).await?;
    Ok(())
}

/// Wait for every statement that is writing one of these tables. Those that begin later see what was committed before.
///
/// # Errors
/// If a table is written without a pause for 2 s, or the role may not lock it.
pub async fn barrier(owner: &PgPool, tables: &[&str]) -> Result<(), sqlx::Error> {
    for table in tables {
        let mut tx = owner.begin().await?;
        let lock = format!("set local lock_timeout = '2s'; lock table {table} in share mode");
        sqlx::Executor::execute(&mut *tx, &*lock).await?;
        tx.rollback().await?;
    }
    Ok(())
}

/// Have the copies of a shredded subject erased again, also if an erasure is under way.
///
/// # Errors
/// If the database does not answer.
pub async fn erase_again(executor: impl PgExecutor<'_>, subject: &str) -> Result<(), sqlx::Error> {
    let again = "update subject_key set erased_at = null, erasure_requests = erasure_requests + 1 \
         where subject = $1 and shredded_at is not null";
    sqlx::query(again).bind(subject).execute(executor).await?;
    Ok(())
}

/// Records that no copy is left, unless the erasure was requested again after this one began. Returns whether it was
/// recorded.
///
/// # Errors
/// If the database does not answer.
pub async fn erased(
    executor: impl PgExecutor<'_>,
    due: &Due,
    now: Timestamp,
) -> Result<bool, sqlx::Error> {
    let erased = "update subject_key set erased_at = $3 \
         where subject = $1 and erasure_requests = $2 and erased_at is null";
    let erased = sqlx::query(erased).bind(&due.subject).bind(due.requests).bind(now);
    Ok(erased.execute(executor).await?.rows_affected() > 0)
}
