//! Where a stream's state was a while ago, so that nobody folds it from the first event. What is here is derived and
//! disposable: what cannot be read, or was made by other code, is as good as not there.
use std::sync::Arc;

use domain::decider::Decider;
use sqlx::{PgExecutor, PgPool, Row};
use tracing::warn;

use crate::{
    EventLog, Loaded, StreamId,
    stored::{bigint, number},
};

/// After how many events of a stream its state is kept again.
const EVERY: u64 = 200;
/// How a state is written: JSON, because the states' own serde attributes (tags, left-out fields) need a format that
/// describes itself.
const JSON: i16 = 1;
/// The digest of everything that makes a state: the source of `domain`. A fold that reads its events otherwise makes
/// another state also where its fields are the same.
const MADE_BY: &str = env!("DOMAIN_SHA256");

/// Which code a state of this kind is of.
fn schema_hash<D: Decider>() -> proof::Hash {
    proof::sha256(format!("stead/snapshot/v1\n{}\n{MADE_BY}", D::NAME).as_bytes())
}

/// A state that is not newer than its stream, and its version.
pub(crate) async fn read<D: Decider>(
    executor: impl PgExecutor<'_>,
    stream: &StreamId,
) -> Result<Option<(Arc<D>, u64)>, sqlx::Error> {
    let row = sqlx::query(
        "select s.sequence, s.state from log_snapshot s \
         join log_stream t using (aggregate_type, aggregate_id) \
         where aggregate_type = $1 and aggregate_id = $2 and s.sequence <= t.version \
           and s.codec = $3 and s.schema_hash = $4",
    )
    .bind(&stream.aggregate_type)
    .bind(&stream.aggregate_id)
    .bind(JSON)
    .bind(&schema_hash::<D>()[..])
    .fetch_optional(executor)
    .await?;
    let Some(row) = row else { return Ok(None) };
    let (version, state): (i64, Vec<u8>) = (row.try_get(0)?, row.try_get(1)?);
    match serde_json::from_slice(&state) {
        Ok(state) => Ok(Some((Arc::new(state), number(version)))),
        Err(error) => {
            warn!(%stream, "The snapshot of {stream} is damaged, reading its events instead: {error}");
            Ok(None)
        }
    }
}

impl EventLog {
    /// Keep a durable state that has come far enough since `known`, when whoever waits for an answer has it.
    pub(crate) fn keep_snapshot<D: Decider>(&self, loaded: &Loaded<D>, known: u64) {
        if loaded.version / EVERY <= known / EVERY {
            return;
        }
        let (pool, loaded) = (self.pool().clone(), loaded.clone());
        tokio::spawn(async move {
            if let Err(error) = keep(&pool, &loaded).await {
                let stream = &loaded.stream;
                warn!(%stream, "Cannot keep a snapshot of {stream}, its events are read instead: {error}");
            }
        });
    }
}

async fn keep<D: Decider>(pool: &PgPool, loaded: &Loaded<D>) -> Result<(), sqlx::Error> {
    let state =
        serde_json::to_vec(&*loaded.state).map_err(|error| sqlx::Error::Encode(error.into()))?;
    sqlx::query(
        "insert into log_snapshot (aggregate_type, aggregate_id, sequence, codec, schema_hash, state) \
         values ($1, $2, $3, $4, $5, $6) \
         on conflict (aggregate_type, aggregate_id) do update set sequence = excluded.sequence, \
           codec = excluded.codec, schema_hash = excluded.schema_hash, state = excluded.state",
    )
    .bind(&loaded.stream.aggregate_type)
    .bind(&loaded.stream.aggregate_id)
    .bind(bigint(loaded.version))
    .bind(JSON)
    .bind(&schema_hash::<D>()[..])
    .bind(state)
    .execute(pool)
    .await?;
    Ok(())
}
