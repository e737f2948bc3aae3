//! Checkpoints that were published, and what may be forgotten.
use chrono::TimeDelta;
use domain::decider::Timestamp;
use ed25519_dalek::{SigningKey, VerifyingKey};
use proof::checkpoint::Checkpoint;
use sqlx::{PgExecutor, Row};

use crate::{
    EventLog, LogError,
    stored::{bigint, fixed, number},
};

/// How long after its end a key may still have signed: servers take a new one within seconds.
pub const LAG: TimeDelta = TimeDelta::seconds(60);
/// Number of checkpoints that are read at once.
const PAGE: i64 = 100;

/// Key that signs published checkpoints, and its end.
#[derive(Debug, Clone, Copy)]
pub struct SealKey {
    /// The public key.
    pub key: VerifyingKey,
    /// Time from which it validates nothing; `None`: it was not retired.
    pub until: Option<Timestamp>,
    /// Size of the log at its last checkpoint: it validates none of a larger log, whatever the database says of the time.
    /// `None`: it was not retired, or only a moment ago.
    pub last_size: Option<u64>,
}

/// Key that signs checkpoints, or signed them, as the database lists it.
#[derive(Debug, Clone, Copy)]
pub struct NoteKey {
    /// The key and its end.
    pub key: SealKey,
    /// When it was made.
    pub from: Timestamp,
}

impl From<VerifyingKey> for SealKey {
    fn from(key: VerifyingKey) -> SealKey {
        SealKey { key, until: None, last_size: None }
    }
}

impl SealKey {
    /// Whether it may have signed a checkpoint of this size that was published at a moment. Nobody signed the moment.
    fn may_sign(&self, size: u64, at: Timestamp) -> bool {
        match self.last_size {
            Some(last) => size <= last,
            None => self.until.is_none_or(|until| at < until + LAG),
        }
    }
}

/// The keys that may have signed a checkpoint of this size that was published at a moment.
fn valid_at(keys: &[SealKey], size: u64, at: Timestamp) -> Vec<VerifyingKey> {
    keys.iter().filter(|key| key.may_sign(size, at)).map(|key| key.key).collect()
}

impl EventLog {
    /// Sign and publish the head, if something happened since the last time. Returns the note that was published.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn seal(&self, key: &SigningKey) -> Result<Option<String>, LogError> {
        let head = self.head();
        if head.size == 0 {
            return Ok(None);
        }
        let now = self.clock().now();
        // The key first: a note whose key nobody can look up proves nothing.
        sqlx::query(
            "insert into log_checkpoint_key (public_key, valid_from) values ($1, $2) on conflict do nothing",
        )
        .bind(&key.verifying_key().as_bytes()[..])
        .bind(now)
        .execute(self.pool())
        .await?;
        let note = head.sign(key);
        let done = sqlx::query(
            "insert into log_checkpoint (position, note, published_at) values ($1, $2, $3) \
             on conflict (position) do nothing",
        )
        .bind(bigint(head.size))
        .bind(&note)
        .bind(now)
        .execute(self.pool())
        .await?;
        Ok((done.rows_affected() == 1).then_some(note))
    }

    /// Keep the public keys that sign checkpoints, or signed them, each with its time.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn note_keys(&self, keys: &[NoteKey]) -> Result<(), LogError> {
        for NoteKey { key, from } in keys {
            sqlx::query(
                "insert into log_checkpoint_key (public_key, valid_from, valid_until, last_size) values ($1, $2, $3, $4) \
                 on conflict (public_key) do update \
                   set valid_until = excluded.valid_until, \
                   last_size = coalesce(log_checkpoint_key.last_size, excluded.last_size)",
            )
            .bind(&key.key.as_bytes()[..])
            .bind(from)
            .bind(key.until)
            .bind(key.last_size.map(bigint))
            .execute(self.pool())
            .await?;
        }
        Ok(())
    }

    /// Size of the log at the last checkpoint that a key signed until its end; 0: it signed none.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn last_size_of(
        &self,
        key: &VerifyingKey,
        until: Timestamp,
    ) -> Result<u64, LogError> {
        let mut below = i64::MAX;
        loop {
            let rows: Vec<(i64, String)> = sqlx::query_as(
                "select position, note from log_checkpoint where position < $1 and published_at < $2 \
                 order by position desc limit $3",
            )
            .bind(below)
            .bind(until + LAG)
            .bind(PAGE)
            .fetch_all(self.pool())
            .await?;
            for (position, note) in &rows {
                if Checkpoint::open(note, std::slice::from_ref(key)).is_ok() {
                    return Ok(number(*position));
                }
            }
            let Some((last, _)) = rows.last() else { return Ok(0) };
            below = *last;
        }
    }

    /// The position of the newest published checkpoint; 0: none was.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn newest_seal(&self) -> Result<u64, LogError> {
        let newest = sqlx::query_scalar("select coalesce(max(position), 0) from log_checkpoint");
        Ok(number(newest.fetch_one(self.pool()).await?))
    }

    /// Published checkpoints after a position, in order, at most `limit`.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn seals(&self, after: u64, limit: u32) -> Result<Vec<(u64, String)>, LogError> {
        let published = self.published(after, limit).await?;
        Ok(published.into_iter().map(|(position, note, _)| (position, note)).collect())
    }

    async fn published(
        &self,
        after: u64,
        limit: u32,
    ) -> Result<Vec<(u64, String, Timestamp)>, LogError> {
        let rows = sqlx::query(
            "select position, note, published_at from log_checkpoint where position > $1 \
             order by position limit $2",
        )
        .bind(bigint(after))
        .bind(i64::from(limit))
        .fetch_all(self.pool())
        .await?;
        let seal = |row: &sqlx::postgres::PgRow| {
            Ok((number(row.try_get(0)?), row.try_get(1)?, row.try_get(2)?))
        };
        rows.iter().map(seal).collect()
    }

    /// The keys that published checkpoints were signed with, as the database has them.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn known_note_keys(&self) -> Result<Vec<VerifyingKey>, LogError> {
        note_keys(self.pool()).await
    }

    /// Read every published checkpoint and compare it with the log as it is now. A key validates nothing of after its
    /// end. Returns how many there are.
    ///
    /// # Errors
    /// [`LogError::Damaged`] with the first that does not hold.
    pub async fn check_seals(&self, keys: &[SealKey]) -> Result<u64, LogError> {
        let (mut checked, mut last) = (0, 0);
        loop {
            let seals = self.published(last, 100).await?;
            if seals.is_empty() {
                return Ok(checked);
            }
            // What is published beyond the head as it is by now was there and is gone.
            let end: i64 =
                sqlx::query_scalar("select position from log_head").fetch_one(self.pool()).await?;
            let end = number(end);
            let there: Vec<u64> =
                seals.iter().map(|(position, ..)| *position).filter(|at| *at <= end).collect();
            let roots = match self.roots(&there).await {
                Err(LogError::Database(sqlx::Error::Decode(_))) => {
                    return Err(self.first_without_root(&there).await?);
                }
                roots => roots?,
            };
            for (n, (position, note, published_at)) in seals.into_iter().enumerate() {
                let differs = |position, what: String| LogError::Damaged { position, what };
                let seal = Checkpoint::open(&note, &valid_at(keys, position, published_at))
                    .map_err(|error| differs(position, error.to_string()))?;
                let Some(root) = roots.get(n) else {
                    let what =
                        format!("the events from here to {position} were published and are gone");
                    return Err(differs(end + 1, what));
                };
                if seal.size != position || seal.root != *root {
                    let what = "the log is not the one that was sealed here".into();
                    return Err(differs(position, what));
                }
                (checked, last) = (checked + 1, position);
            }
        }
    }

    /// Leaves or nodes are gone: before which of these checkpoints.
    async fn first_without_root(&self, sizes: &[u64]) -> Result<LogError, LogError> {
        let what = "events or nodes before it are gone".to_owned();
        for position in sizes {
            match self.roots(&[*position]).await {
                Ok(_) => {}
                Err(LogError::Database(sqlx::Error::Decode(_))) => {
                    return Ok(LogError::Damaged { position: *position, what });
                }
                Err(other) => return Err(other),
            }
        }
        // Somebody put them back meanwhile.
        Ok(LogError::Damaged { position: sizes.first().copied().unwrap_or(0), what })
    }

    /// Forget idempotency keys that have expired. Returns how many.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn sweep_keys(&self) -> Result<u64, LogError> {
        let done = sqlx::query("delete from log_command where expires_at <= $1")
            .bind(self.clock().now())
            .execute(self.pool())
            .await?;
        Ok(done.rows_affected())
    }
}

/// The keys that published checkpoints were signed with, as the database has them.
///
/// # Errors
/// [`LogError`].
pub async fn note_keys(executor: impl PgExecutor<'_>) -> Result<Vec<VerifyingKey>, LogError> {
    Ok(all_note_keys(executor).await?.into_iter().map(|key| key.key).collect())
}

/// Those of them that may have signed a checkpoint of this size that was published at a moment.
///
/// # Errors
/// [`LogError`].
pub async fn note_keys_at(
    executor: impl PgExecutor<'_>,
    size: u64,
    at: Timestamp,
) -> Result<Vec<VerifyingKey>, LogError> {
    Ok(valid_at(&all_note_keys(executor).await?, size, at))
}

async fn all_note_keys(executor: impl PgExecutor<'_>) -> Result<Vec<SealKey>, LogError> {
    let keys =
        "select public_key, valid_until, last_size from log_checkpoint_key order by valid_from";
    let rows = sqlx::query(keys).fetch_all(executor).await?;
    let key = |row: &sqlx::postgres::PgRow| {
        let bytes = fixed(row.try_get(0)?, 0, "a checkpoint's key")?;
        let key = VerifyingKey::from_bytes(&bytes)
            .map_err(|error| LogError::Damaged { position: 0, what: error.to_string() })?;
        let last_size: Option<i64> = row.try_get(2)?;
        Ok(SealKey { key, until: row.try_get(1)?, last_size: last_size.map(number) })
    };
    rows.iter().map(key).collect()
}
