//! Published checkpoints, and the deletion of expired idempotency keys.
use chrono::TimeDelta;
use domain::decider::Timestamp;
use ed25519_dalek::{SigningKey, VerifyingKey};
use proof::checkpoint::Checkpoint;
use sqlx::{PgExecutor, Row};

use crate::{
    EventLog, LogError,
    stored::{bigint, fixed, number},
};

/// Time after the end of a key's validity in which servers may still sign with the key. Servers
/// load a new key within seconds.
pub const KEY_GRACE: TimeDelta = TimeDelta::seconds(60);
/// Maximum number of checkpoints that are read at once.
const PAGE: i64 = 100;

/// Key that signs checkpoints, with the end of its validity.
#[derive(Debug, Clone, Copy)]
pub struct CheckpointKey {
    pub key: VerifyingKey,
    /// End of the key's validity; `None` if the key was not retired.
    pub until: Option<Timestamp>,
    /// Size of the log at the key's last checkpoint. The key validates no checkpoint of a larger
    /// log, even if the database states an earlier time. `None` if the key was not retired, or was
    /// retired only recently.
    pub last_size: Option<u64>,
}

/// Checkpoint key as the database lists it.
#[derive(Debug, Clone, Copy)]
pub struct CheckpointKeyRecord {
    /// The key, with the end of its validity.
    pub key: CheckpointKey,
    /// Time from which the key is valid.
    pub from: Timestamp,
}

impl From<VerifyingKey> for CheckpointKey {
    fn from(key: VerifyingKey) -> CheckpointKey {
        CheckpointKey { key, until: None, last_size: None }
    }
}

impl CheckpointKey {
    /// Returns true if the key may have signed a checkpoint of this size and time. The signature
    /// does not cover the time.
    fn may_sign(&self, size: u64, at: Timestamp) -> bool {
        match self.last_size {
            Some(last) => size <= last,
            None => self.until.is_none_or(|until| at < until + KEY_GRACE),
        }
    }
}

/// Returns the keys that may have signed a checkpoint of this size and time.
fn valid_at(keys: &[CheckpointKey], size: u64, at: Timestamp) -> Vec<VerifyingKey> {
    keys.iter().filter(|key| key.may_sign(size, at)).map(|key| key.key).collect()
}

impl EventLog {
    /// Signs and publishes the head, unless a checkpoint of its size exists. Returns the signed
    /// note, or `None` if nothing was published.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn publish_checkpoint(&self, key: &SigningKey) -> Result<Option<String>, LogError> {
        let head = self.head();
        if head.size == 0 {
            return Ok(None);
        }
        let now = self.clock().now();
        // The key is stored first, because a note with an unknown key proves nothing.
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

    /// Stores the public checkpoint keys, with the times from and until which they are valid.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn note_keys(&self, keys: &[CheckpointKeyRecord]) -> Result<(), LogError> {
        for CheckpointKeyRecord { key, from } in keys {
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

    /// Returns the size of the log at the last checkpoint that the key signed before `until`, or 0.
    /// Allows [`KEY_GRACE`] after `until`.
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
            .bind(until + KEY_GRACE)
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

    /// Returns the position of the latest published checkpoint, or 0.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn latest_checkpoint(&self) -> Result<u64, LogError> {
        let newest = sqlx::query_scalar("select coalesce(max(position), 0) from log_checkpoint");
        Ok(number(newest.fetch_one(self.pool()).await?))
    }

    /// Returns published checkpoints after a position, in order, at most `limit`.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn checkpoints(
        &self,
        after: u64,
        limit: u32,
    ) -> Result<Vec<(u64, String)>, LogError> {
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
        let checkpoint = |row: &sqlx::postgres::PgRow| {
            Ok((number(row.try_get(0)?), row.try_get(1)?, row.try_get(2)?))
        };
        rows.iter().map(checkpoint).collect()
    }

    /// Returns the checkpoint keys in the database.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn known_note_keys(&self) -> Result<Vec<VerifyingKey>, LogError> {
        note_keys(self.pool()).await
    }

    /// Compares every published checkpoint with the current log. A checkpoint that a key signed
    /// after the end of its validity is an error. Returns the number of checkpoints.
    ///
    /// # Errors
    /// [`LogError::Damaged`] for the first checkpoint that does not match.
    pub async fn verify_checkpoints(&self, keys: &[CheckpointKey]) -> Result<u64, LogError> {
        let (mut checked, mut last) = (0, 0);
        loop {
            let checkpoints = self.published(last, 100).await?;
            if checkpoints.is_empty() {
                return Ok(checked);
            }
            // A checkpoint after the current head proves that events were lost.
            let end: i64 =
                sqlx::query_scalar("select position from log_head").fetch_one(self.pool()).await?;
            let end = number(end);
            let sizes: Vec<u64> = checkpoints
                .iter()
                .map(|(position, ..)| *position)
                .filter(|at| *at <= end)
                .collect();
            let roots = match self.roots(&sizes).await {
                Err(LogError::Database(sqlx::Error::Decode(_))) => {
                    return Err(self.first_without_root(&sizes).await?);
                }
                roots => roots?,
            };
            for (n, (position, note, published_at)) in checkpoints.into_iter().enumerate() {
                let differs = |position, what: String| LogError::Damaged { position, what };
                let checkpoint = Checkpoint::open(&note, &valid_at(keys, position, published_at))
                    .map_err(|error| differs(position, error.to_string()))?;
                let Some(root) = roots.get(n) else {
                    let what = format!(
                        "the events up to the checkpoint at position {position} are missing"
                    );
                    return Err(differs(end + 1, what));
                };
                if checkpoint.size != position || checkpoint.root != *root {
                    let what =
                        "the log does not match the checkpoint that was published at this position"
                            .into();
                    return Err(differs(position, what));
                }
                (checked, last) = (checked + 1, position);
            }
        }
    }

    /// Returns an error for the first of these checkpoints whose root cannot be computed, because
    /// leaves or nodes are missing.
    async fn first_without_root(&self, sizes: &[u64]) -> Result<LogError, LogError> {
        let what = "events or tree nodes up to this position are missing".to_owned();
        for position in sizes {
            match self.roots(&[*position]).await {
                Ok(_) => {}
                Err(LogError::Database(sqlx::Error::Decode(_))) => {
                    return Ok(LogError::Damaged { position: *position, what });
                }
                Err(other) => return Err(other),
            }
        }
        // All roots can be computed again: the data was restored after the failed read. The
        // position of the damage is unknown, so the error names the first checkpoint of the batch.
        Ok(LogError::Damaged { position: sizes.first().copied().unwrap_or(0), what })
    }

    /// Deletes expired idempotency keys. Returns their number.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn delete_expired_keys(&self) -> Result<u64, LogError> {
        let done = sqlx::query("delete from log_command where expires_at <= $1")
            .bind(self.clock().now())
            .execute(self.pool())
            .await?;
        Ok(done.rows_affected())
    }
}

/// Returns the checkpoint keys in the database.
///
/// # Errors
/// [`LogError`].
pub async fn note_keys(executor: impl PgExecutor<'_>) -> Result<Vec<VerifyingKey>, LogError> {
    Ok(all_note_keys(executor).await?.into_iter().map(|key| key.key).collect())
}

/// Returns the checkpoint keys in the database that may have signed a checkpoint of this size
/// and time.
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

async fn all_note_keys(executor: impl PgExecutor<'_>) -> Result<Vec<CheckpointKey>, LogError> {
    let keys =
        "select public_key, valid_until, last_size from log_checkpoint_key order by valid_from";
    let rows = sqlx::query(keys).fetch_all(executor).await?;
    let key = |row: &sqlx::postgres::PgRow| {
        let bytes = fixed(row.try_get(0)?, 0, "a checkpoint's key")?;
        let key = VerifyingKey::from_bytes(&bytes)
            .map_err(|error| LogError::Damaged { position: 0, what: error.to_string() })?;
        let last_size: Option<i64> = row.try_get(2)?;
        Ok(CheckpointKey { key, until: row.try_get(1)?, last_size: last_size.map(number) })
    };
    rows.iter().map(key).collect()
}
