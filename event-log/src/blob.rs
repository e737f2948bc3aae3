//! Bytes by digest: manifests, grants, bundles, large payloads. Written before the event that names them.
use domain::digest::Digest;
use sqlx::{PgExecutor, PgPool, Row};

use crate::Clock;

/// Why bytes were not kept or found.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// The database does not answer.
    #[error("the database does not answer: {0}")]
    Database(#[from] sqlx::Error),
    /// Somebody changed them: they are not what their digest says.
    #[error("the bytes of {0} are not what they were")]
    Damaged(Digest),
    /// The hash has no text, which cannot be.
    #[error(transparent)]
    Digest(#[from] domain::digest::DigestError),
}

/// The digest of some bytes.
///
/// # Errors
/// None in practice; the digest's text is checked like any other.
pub fn digest(bytes: &[u8]) -> Result<Digest, domain::digest::DigestError> {
    proof::digest_text(&proof::sha256(bytes)).parse()
}

/// Keep these bytes, durably, and say what they are called. Keeping them twice is keeping them once.
///
/// # Errors
/// [`BlobError`].
pub async fn put(pool: &PgPool, bytes: &[u8]) -> Result<Digest, BlobError> {
    let digest = digest(bytes)?;
    let put = sqlx::query(
        "insert into blob (digest, bytes, created_at) values ($1, $2, $3) \
         on conflict (digest) do nothing",
    );
    let put = put.bind(digest.to_string()).bind(bytes).bind(Clock::system().now());
    if put.execute(pool).await?.rows_affected() == 0 {
        // Who was first may not have waited for the disk. A commit that writes nothing does not wait for it either.
        sqlx::query("select pg_logical_emit_message(true, 'stead', '')").execute(pool).await?;
    }
    Ok(digest)
}

/// Stores bytes about a subject for an event that is appended afterwards; the commit of that event makes them durable.
/// Stores nothing about a shredded subject, which gets no such event.
///
/// # Errors
/// [`BlobError`].
pub async fn put_of_subject(
    pool: &PgPool,
    bytes: &[u8],
    subject: &str,
) -> Result<Digest, BlobError> {
    let digest = digest(bytes)?;
    sqlx::query(
        "with unhurried as (select set_config('synchronous_commit', 'off', true)) \
         insert into blob (digest, bytes, created_at) \
         select $1::text, $2::bytea, $3::timestamptz from unhurried \
         where not exists (select from subject_key where subject = $4 and shredded_at is not null) \
         on conflict (digest) do nothing",
    )
    .bind(digest.to_string())
    .bind(bytes)
    .bind(Clock::system().now())
    .bind(subject)
    .execute(pool)
    .await?;
    Ok(digest)
}

/// Keep all of these, in one statement, and do not wait for the disk: for what can be made again, and for what an event
/// names that is appended afterwards, whose commit takes to the disk all that was committed before it.
///
/// # Errors
/// [`BlobError`].
pub async fn put_unhurried<B: AsRef<[u8]>>(pool: &PgPool, all: &[B]) -> Result<(), BlobError> {
    let bytes: Vec<&[u8]> = all.iter().map(AsRef::as_ref).collect();
    let digests = bytes.iter().map(|bytes| Ok(digest(bytes)?.to_string()));
    let digests = digests.collect::<Result<Vec<String>, BlobError>>()?;
    sqlx::query(
        "with unhurried as (select set_config('synchronous_commit', 'off', true)) \
         insert into blob (digest, bytes, created_at) \
         select u.digest, u.bytes, $3 from unhurried, unnest($1::text[], $2::bytea[]) as u(digest, bytes) \
         on conflict (digest) do nothing",
    )
    .bind(digests)
    .bind(bytes)
    .bind(Clock::system().now())
    .execute(pool)
    .await?;
    Ok(())
}

/// The bytes of that digest, checked, or `None` if nobody kept them.
///
/// # Errors
/// [`BlobError`].
pub async fn get(
    executor: impl PgExecutor<'_>,
    digest: &Digest,
) -> Result<Option<Vec<u8>>, BlobError> {
    let row = sqlx::query("select bytes from blob where digest = $1")
        .bind(digest.to_string())
        .fetch_optional(executor)
        .await?;
    let Some(row) = row else { return Ok(None) };
    let bytes: Vec<u8> = row.try_get("bytes")?;
    if self::digest(&bytes)? == *digest {
        Ok(Some(bytes))
    } else {
        Err(BlobError::Damaged(digest.clone()))
    }
}

/// Condition that no upload of another execution than `$2` became blob `b`: its report may be on its way to the log.
const NO_OTHERS: &str = "not exists (select from blob_upload u \
     where u.digest = b.digest and u.bytes is null and u.execution <> all($2))";

/// Deletes blobs of executions whose data is erased. What an upload of another execution became as well stays: it is that
/// one's, too.
///
/// # Errors
/// If the role does not own the table, or uploads are written without a pause for 2 s.
pub async fn erase(
    owner: &PgPool,
    digests: &[String],
    executions: &[String],
) -> Result<(), sqlx::Error> {
    let mut tx = owner.begin().await?;
    // Whoever names a blob at the same moment is seen, or finds it missing and stores it.
    let lock = "set local lock_timeout = '2s'; lock table blob_upload in share mode";
    sqlx::Executor::execute(&mut *tx, lock).await?;
    let delete = format!("delete from blob b where b.digest = any($1) and {NO_OTHERS}");
    sqlx::query(&delete).bind(digests).bind(executions).execute(&mut *tx).await?;
    tx.commit().await
}

/// Number of blobs that [`erase`] would delete.
///
/// # Errors
/// The database does not answer.
pub async fn not_erased(
    executor: impl PgExecutor<'_>,
    digests: &[String],
    executions: &[String],
) -> Result<i64, sqlx::Error> {
    let count = format!("select count(*) from blob b where b.digest = any($1) and {NO_OTHERS}");
    sqlx::query_scalar(&count).bind(digests).bind(executions).fetch_one(executor).await
}
