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

/// Time after the end of a key during which it may still have signed: servers switch to a new key within seconds.
const LAG: TimeDelta = TimeDelta::seconds(60);

/// Key that signs published checkpoints, and its end.
#[derive(Debug, Clone, Copy)]
pub struct SealKey {
    /// The public key.
    pub key: VerifyingKey,
    /// Time from which it validates nothing; `None`: it was not retired.
    pub until: Option<Timestamp>,
}

impl From<VerifyingKey> for SealKey {
    fn from(key: VerifyingKey) -> SealKey {
        SealKey { key, until: None }
    }
}

/// Keys that may have signed a checkpoint published at this time.
fn valid_at(keys: &[SealKey], at: Timestamp) -> Vec<VerifyingKey> {
    let valid = keys.iter().filter(|key| key.until.is_none_or(|until| at < until + LAG));
    valid.map(|key| key.key).collect()
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
            "insert into log_note_key (public_key, valid_from) values ($1, $2) on conflict do nothing",
        )
        .bind(&key.verifying_key().as_bytes()[..])
        .bind(now)
        .execute(self.pool())
        .await?;
        let note = head.sign(key);
        let done = sqlx::query(
            "insert into log_seal (position, note, sealed_at) values ($1, $2, $3) \
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
    pub async fn note_keys(
        &self,
        keys: &[(VerifyingKey, Timestamp, Option<Timestamp>)],
    ) -> Result<(), LogError> {
        for (key, valid_from, valid_until) in keys {
            sqlx::query(
                "insert into log_note_key (public_key, valid_from, valid_until) values ($1, $2, $3) \
                 on conflict (public_key) do update set valid_until = excluded.valid_until",
            )
            .bind(&key.as_bytes()[..])
            .bind(valid_from)
            .bind(valid_until)
            .execute(self.pool())
            .await?;
        }
        Ok(())
    }

    /// The position of the newest published checkpoint; 0: none was.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn newest_seal(&self) -> Result<u64, LogError> {
        let newest = sqlx::query_scalar("select coalesce(max(position), 0) from log_seal");
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
            "select position, note, sealed_at from log_seal where position > $1 \
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

    /// Read every published checkpoint and compare it with the log as it is now. A key validates nothing that was
    /// published after its end. Returns how many there are.
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
            for (n, (position, note, sealed_at)) in seals.into_iter().enumerate() {
                let differs = |position, what: String| LogError::Damaged { position, what };
                let seal = Checkpoint::open(&note, &valid_at(keys, sealed_at))
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

/// Checkpoint keys that may have signed a checkpoint published at this time.
///
/// # Errors
/// [`LogError`].
pub async fn note_keys_at(
    executor: impl PgExecutor<'_>,
    at: Timestamp,
) -> Result<Vec<VerifyingKey>, LogError> {
    Ok(valid_at(&all_note_keys(executor).await?, at))
}

async fn all_note_keys(executor: impl PgExecutor<'_>) -> Result<Vec<SealKey>, LogError> {
    let rows = sqlx::query("select public_key, valid_until from log_note_key order by valid_from")
        .fetch_all(executor)
        .await?;
    let key = |row: &sqlx::postgres::PgRow| {
        let bytes = fixed(row.try_get(0)?, 0, "a checkpoint's key")?;
        let key = VerifyingKey::from_bytes(&bytes)
            .map_err(|error| LogError::Damaged { position: 0, what: error.to_string() })?;
        Ok(SealKey { key, until: row.try_get(1)? })
    };
    rows.iter().map(key).collect()
}
