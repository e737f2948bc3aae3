//! Data about a subject that an event references by a digest. It is encrypted before it reaches the
//! database, and the deletion of the subject's key makes it unreadable.
use domain::digest::Digest;
use sqlx::{PgExecutor, PgPool, Row};

use super::{
    Key, KeyRing,
    aead::{decrypt, encrypt},
};
use crate::Clock;

/// Identity of the data: its subject, and the digest by which an event references it.
#[derive(Debug, Clone, Copy)]
pub struct DataId<'a> {
    /// Id of the subject, such as an install.
    pub subject: &'a str,
    /// Digest of the plaintext. The caller defines and verifies it.
    pub digest: &'a Digest,
}

/// Result of storing data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// The data is stored, now or earlier.
    Stored,
    /// The key of the subject was deleted, so the data was not stored.
    Erased,
    /// The execution has stored other data already.
    OtherData,
}

/// Data that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Read {
    /// The plaintext.
    Found(Vec<u8>),
    /// The key of the subject was deleted.
    Erased,
    /// There is no such data.
    NotFound,
}

/// Reasons why data cannot be stored or read.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// A database operation failed.
    #[error("cannot access the data of a subject in the database: {0}")]
    Database(#[from] sqlx::Error),
    /// The key of the subject is not available, or does not decrypt the data.
    #[error("cannot use the data of {subject}: {why}")]
    Key {
        /// Id of the subject.
        subject: String,
        /// Explanation.
        why: String,
    },
}

impl DataId<'_> {
    fn context(&self) -> Vec<u8> {
        let DataId { subject, digest } = self;
        format!("stead/subject-data/v1\n{subject}\n{digest}").into_bytes()
    }
}

impl KeyRing {
    async fn key_of(
        &self,
        pool: &PgPool,
        subject: &str,
        create: Option<&Clock>,
    ) -> Result<Option<Key>, DataError> {
        let Some(shared) = &self.0 else { return Ok(None) };
        let subjects = [subject.to_owned()];
        let (mut keys, missing) = shared.cache.cached(subjects.clone().into());
        if !missing.is_empty() {
            if let Some(clock) = create {
                shared.make(pool, &missing, clock).await?;
            }
            keys.0.extend(shared.fetch(&mut *pool.acquire().await?, &missing).await?);
        }
        Ok(keys.0.remove(subject))
    }
}

fn no_key(subject: &str, why: &str) -> DataError {
    DataError::Key { subject: subject.to_owned(), why: why.to_owned() }
}

/// Stores data of an execution durably for an event that is appended afterwards. Storing the same
/// data again changes nothing.
///
/// # Errors
/// [`DataError`].
pub async fn put(
    pool: &PgPool,
    keys: &KeyRing,
    clock: &Clock,
    id: DataId<'_>,
    (execution, plain): (&str, &[u8]),
) -> Result<Stored, DataError> {
    let key = match keys.key_of(pool, id.subject, Some(clock)).await? {
        Some(Key::Open(key)) => key,
        Some(Key::Shredded) => return Ok(Stored::Erased),
        Some(Key::Missing(why)) => return Err(no_key(id.subject, &why)),
        None => return Err(no_key(id.subject, "this program has no subject keys")),
    };
    let ciphertext = encrypt(&key, &id.context(), plain)
        .ok_or_else(|| no_key(id.subject, "the data is too long to encrypt"))?;
    sqlx::query(
        "insert into subject_data (subject, digest, execution, ciphertext, created_at) \
         select $1::text, $2::text, $3::text, $4::bytea, $5::timestamptz \
         where not exists (select from subject_key where subject = $1 and shredded_at is not null) \
         on conflict do nothing",
    )
    .bind(id.subject)
    .bind(id.digest.to_string())
    .bind(execution)
    .bind(ciphertext)
    .bind(clock.now())
    .execute(pool)
    .await?;
    let found = "select exists (select from subject_data where subject = $1 and digest = $2), \
         exists (select from subject_key where subject = $1 and shredded_at is not null)";
    let (is_stored, is_erased): (bool, bool) =
        sqlx::query_as(found).bind(id.subject).bind(id.digest.to_string()).fetch_one(pool).await?;
    Ok(match (is_stored, is_erased) {
        (true, _) => Stored::Stored,
        (false, true) => Stored::Erased,
        (false, false) => Stored::OtherData,
    })
}

/// Reads and decrypts data.
///
/// # Errors
/// [`DataError`].
pub async fn get(pool: &PgPool, keys: &KeyRing, id: DataId<'_>) -> Result<Read, DataError> {
    let sql = "select ciphertext from subject_data where subject = $1 and digest = $2";
    let row = sqlx::query(sql).bind(id.subject).bind(id.digest.to_string());
    let row = row.fetch_optional(pool).await?;
    let key = match keys.key_of(pool, id.subject, None).await? {
        Some(Key::Shredded) => return Ok(Read::Erased),
        Some(Key::Open(key)) => Ok(key),
        Some(Key::Missing(why)) => Err(no_key(id.subject, &why)),
        None => Err(no_key(id.subject, "this program has no subject keys")),
    };
    let Some(row) = row else { return Ok(Read::NotFound) };
    let ciphertext: Vec<u8> = row.try_get(0)?;
    let plain = decrypt(&*key?, &id.context(), &ciphertext);
    let plain = plain.ok_or_else(|| no_key(id.subject, "its data was changed"))?;
    Ok(Read::Found(plain.to_vec()))
}

/// Deletes the data of these subjects.
///
/// # Errors
/// If a database operation fails.
pub async fn erase(executor: impl PgExecutor<'_>, subjects: &[String]) -> Result<(), sqlx::Error> {
    let delete = "delete from subject_data where subject = any($1)";
    sqlx::query(delete).bind(subjects).execute(executor).await?;
    Ok(())
}

/// Returns the number of rows that [`erase`] would delete.
///
/// # Errors
/// If a database operation fails.
pub async fn not_erased(
    executor: impl PgExecutor<'_>,
    subjects: &[String],
) -> Result<i64, sqlx::Error> {
    let count = "select count(*) from subject_data where subject = any($1)";
    sqlx::query_scalar(count).bind(subjects).fetch_one(executor).await
}
