//! Blobs: bytes by digest, such as manifests, grants, bundles and large payloads. A blob is written
//! before the event that references it.
use domain::digest::Digest;
use sqlx::{PgExecutor, PgPool, Row};

use crate::Clock;

/// Reasons why a blob cannot be stored or read.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// A database operation failed.
    #[error("cannot access blobs in the database: {0}")]
    Database(#[from] sqlx::Error),
    /// The bytes do not match their digest.
    #[error(
        "cannot read blob {0}: its bytes do not match its digest; restore the database from a backup"
    )]
    Damaged(Digest),
    /// The digest has an invalid format, which does not happen in practice.
    #[error(transparent)]
    Digest(#[from] domain::digest::DigestError),
}

/// Computes the digest of bytes.
///
/// # Errors
/// None in practice: a computed digest always has a valid format.
pub fn digest(bytes: &[u8]) -> Result<Digest, domain::digest::DigestError> {
    proof::digest_text(&proof::sha256(bytes)).parse()
}

/// Stores bytes durably and returns their digest. Storing the same bytes again changes
/// nothing.
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
        flush_first_writer(pool).await?;
    }
    Ok(digest)
}

/// Stores bytes durably for an event that is appended afterwards. An erasure of the subject, if there
/// is one, deletes the bytes even if no event refers to them. If the key of the subject was shredded,
/// stores nothing.
///
/// The commit of the event does not suffice to make the bytes durable: if the database crashes
/// between the two, it loses the bytes, and the event is appended again after the restart.
///
/// # Errors
/// [`BlobError`].
pub async fn put_for_event(
    pool: &PgPool,
    bytes: &[u8],
    subject: Option<&str>,
) -> Result<Digest, BlobError> {
    let digest = digest(bytes)?;
    let put = sqlx::query(
        "insert into blob (digest, bytes, created_at, subject) \
         select $1::text, $2::bytea, $3::timestamptz, $4::text \
         where not exists (select from subject_key where subject = $4 and shredded_at is not null) \
         on conflict (digest) do nothing",
    );
    let put = put.bind(digest.to_string()).bind(bytes).bind(Clock::system().now()).bind(subject);
    if put.execute(pool).await?.rows_affected() == 0 {
        flush_first_writer(pool).await?;
    }
    Ok(digest)
}

/// Waits until the commit of the first writer of a blob is durable. A commit that writes nothing
/// would not wait for the disk, so this statement writes a message.
async fn flush_first_writer(pool: &PgPool) -> Result<(), sqlx::Error> {
    sqlx::query("select pg_logical_emit_message(true, 'stead', '')").execute(pool).await.map(drop)
}

/// Stores several blobs in one statement, without waiting for the disk. Use it only for bytes that
/// can be reproduced.
///
/// # Errors
/// [`BlobError`].
pub async fn put_unflushed<B: AsRef<[u8]>>(pool: &PgPool, all: &[B]) -> Result<(), BlobError> {
    let bytes: Vec<&[u8]> = all.iter().map(AsRef::as_ref).collect();
    let digests = bytes.iter().map(|bytes| Ok(digest(bytes)?.to_string()));
    let digests = digests.collect::<Result<Vec<String>, BlobError>>()?;
    sqlx::query(
        "with asynchronous as (select set_config('synchronous_commit', 'off', true)) \
         insert into blob (digest, bytes, created_at) \
         select u.digest, u.bytes, $3 from asynchronous, unnest($1::text[], $2::bytea[]) as u(digest, bytes) \
         on conflict (digest) do nothing",
    )
    .bind(digests)
    .bind(bytes)
    .bind(Clock::system().now())
    .execute(pool)
    .await?;
    Ok(())
}

/// Reads the bytes of a digest and verifies them. Returns `None` if they are not stored.
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

/// Data whose blobs are erased.
#[derive(Debug, Clone, Copy)]
pub struct Erased<'e> {
    /// Subjects of the blobs to erase.
    pub subjects: &'e [String],
    /// Digests of further blobs to erase.
    pub digests: &'e [String],
    /// Executions whose uploads are erased.
    pub executions: &'e [String],
}

/// SQL condition on the erased blobs `b`. No execution outside the array `$3` has an upload that was
/// moved to the blob. The report that references such an upload may not be in the log yet.
const ERASED: &str = "(b.subject = any($1) or b.digest = any($2)) and not exists (select from blob_upload u \
     where u.digest = b.digest and u.bytes is null and u.execution <> all($3))";

/// Deletes blobs whose data is erased. Keeps a blob that another execution also uploaded.
///
/// # Errors
/// If a database operation fails, for example because concurrent uploads keep `blob_upload` locked
/// for 2 s.
pub async fn erase(owner: &PgPool, erased: Erased<'_>) -> Result<(), sqlx::Error> {
    let mut tx = owner.begin().await?;
    // The lock waits for uploads that are being moved to these blobs. A later move finds the blob
    // missing and stores it again.
    let lock = "set local lock_timeout = '2s'; lock table blob_upload in share mode";
    sqlx::Executor::execute(&mut *tx, lock).await?;
    let delete = format!("delete from blob b where {ERASED}");
    let Erased { subjects, digests, executions } = erased;
    sqlx::query(&delete).bind(subjects).bind(digests).bind(executions).execute(&mut *tx).await?;
    tx.commit().await
}

/// Number of blobs that [`erase`] would delete.
///
/// # Errors
/// A database operation failed.
pub async fn not_erased(
    executor: impl PgExecutor<'_>,
    erased: Erased<'_>,
) -> Result<i64, sqlx::Error> {
    let count = format!("select count(*) from blob b where {ERASED}");
    let Erased { subjects, digests, executions } = erased;
    let count = sqlx::query_scalar(&count).bind(subjects).bind(digests).bind(executions);
    count.fetch_one(executor).await
}
