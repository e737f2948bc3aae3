//! Snapshots: saved states of streams, so that loading need not apply every event. They are derived
//! and disposable. A snapshot that cannot be read, or that other code wrote, is ignored.
use std::sync::Arc;

use bincode::{
    config::standard,
    error::{DecodeError, EncodeError},
};
use domain::decider::Decider;
use sha2::{Digest as _, Sha256};
use sqlx::{PgExecutor, PgPool, Row};
use tracing::warn;

use crate::{
    EventLog, Loaded, StreamId,
    stored::{bigint, number},
};

/// Number of a stream's events between two snapshots.
pub(crate) const SNAPSHOT_INTERVAL: u32 = 200;
/// Size in bytes of the digest at the start of a snapshot.
const DIGEST: usize = 32;
/// Version of the encoding: a digest, then the state in bincode. Snapshots of another version are
/// ignored.
const CODEC: i16 = 3;
/// Maximum size of a snapshot and of the decoded state. A larger state is computed from its events.
const MAX_BYTES: usize = 64 * 1024 * 1024;
/// Digest of the source of `domain`, which determines every state. Changed code may compute another
/// state even if the fields are the same.
const DOMAIN_DIGEST: &str = env!("DOMAIN_SHA256");

/// Returns a hash that identifies the aggregate type and the code that computes its state.
fn schema_hash<D: Decider>() -> proof::Hash {
    proof::sha256(format!("stead/snapshot/v1\n{}\n{DOMAIN_DIGEST}", D::NAME).as_bytes())
}

/// Encodes a state with a preceding digest over its stream, version and bytes. The digest is
/// necessary because bincode decodes almost any bytes: a flipped bit would result in a wrong value
/// instead of an error.
///
/// # Errors
/// [`EncodeError`]; also if the state is too large.
pub fn encode<D: Decider>(
    stream: &StreamId,
    version: u64,
    state: &D,
) -> Result<Vec<u8>, EncodeError> {
    let mut bytes = vec![0; DIGEST];
    bincode::encode_into_std_write(state, &mut bytes, standard())?;
    if bytes.len() > MAX_BYTES {
        return Err(EncodeError::Other("the state exceeds the maximum size of a snapshot"));
    }
    let digest = digest::<D>(stream, version, &bytes[DIGEST..]);
    bytes[..DIGEST].copy_from_slice(&digest);
    Ok(bytes)
}

/// Decodes a state and verifies that it belongs to this stream, version and code.
///
/// # Errors
/// [`DecodeError`].
pub fn decode<D: Decider>(stream: &StreamId, version: u64, bytes: &[u8]) -> Result<D, DecodeError> {
    let other = DecodeError::Other("the digest does not match this stream and version");
    let Some((stored, state)) = bytes.split_at_checked(DIGEST) else { return Err(other) };
    if stored != digest::<D>(stream, version, state) {
        return Err(other);
    }
    let (read, length) = bincode::decode_from_slice(state, standard().with_limit::<MAX_BYTES>())?;
    match length == state.len() {
        true => Ok(read),
        false => Err(DecodeError::Other("extra bytes follow the state")),
    }
}

fn digest<D: Decider>(stream: &StreamId, version: u64, state: &[u8]) -> proof::Hash {
    let mut hasher = Sha256::new();
    hasher.update(schema_hash::<D>());
    hasher.update(version.to_be_bytes());
    for id in [&stream.aggregate_type, &stream.aggregate_id] {
        hasher.update((id.len() as u64).to_be_bytes());
        hasher.update(id);
    }
    hasher.update(state);
    hasher.finalize().into()
}

/// Reads a state that is not newer than its stream, with its version. Returns `None` while copies
/// of a shredded subject's data are being erased. After the erasure, ignores snapshots from before
/// it, because they may contain erased data.
pub(crate) async fn read<D: Decider>(
    executor: impl PgExecutor<'_>,
    stream: &StreamId,
) -> Result<Option<(Arc<D>, u64)>, sqlx::Error> {
    let row = sqlx::query(
        "select s.sequence, s.state from log_snapshot s \
         join log_stream t using (aggregate_type, aggregate_id) \
         where aggregate_type = $1 and aggregate_id = $2 and s.sequence <= t.version \
           and s.codec = $3 and s.schema_hash = $4 \
           and not exists (select from subject_key \
             where shredded_at is not null and erased_at is null) \
           and not exists (select from subject_key where fence >= s.read_position)",
    )
    .bind(&stream.aggregate_type)
    .bind(&stream.aggregate_id)
    .bind(CODEC)
    .bind(&schema_hash::<D>()[..])
    .fetch_optional(executor)
    .await?;
    let Some(row) = row else { return Ok(None) };
    let (version, state): (i64, Vec<u8>) = (row.try_get(0)?, row.try_get(1)?);
    match decode(stream, number(version), &state) {
        Ok(state) => Ok(Some((Arc::new(state), number(version)))),
        Err(error) => {
            warn!(%stream, error = %error, "Cannot read a snapshot; the state is read from the events");
            Ok(None)
        }
    }
}

impl EventLog {
    /// Stores a snapshot of a durable state in the background, if enough events followed version
    /// `known`.
    pub(crate) fn store_snapshot<D: Decider>(&self, loaded: &Loaded<D>, known: u64) {
        let every = u64::from(SNAPSHOT_INTERVAL);
        if loaded.version / every <= known / every {
            return;
        }
        let (pool, loaded) = (self.pool().clone(), loaded.clone());
        #[expect(
            clippy::disallowed_methods,
            reason = "a snapshot is a cache: nothing waits for it"
        )]
        tokio::spawn(async move {
            if let Err(error) = store(&pool, &loaded).await {
                warn!(stream = %loaded.stream, error = %error, "Cannot store a snapshot; the state is read from the events");
            }
        });
    }
}

async fn store<D: Decider>(pool: &PgPool, loaded: &Loaded<D>) -> Result<(), sqlx::Error> {
    let state = encode(&loaded.stream, loaded.version, &*loaded.state)
        .map_err(|error| sqlx::Error::Encode(error.into()))?;
    // A state that was read before a key was deleted may contain erased data, so it must not be
    // stored after the erasure.
    sqlx::query(
        "insert into log_snapshot (aggregate_type, aggregate_id, sequence, codec, schema_hash, state, \
           read_position) \
         select $1::text, $2::text, $3::int8, $4::int2, $5::bytea, $6::bytea, $7::int8 \
         where not exists (select from subject_key where fence >= $7::int8) \
         on conflict (aggregate_type, aggregate_id) do update set sequence = excluded.sequence, \
           codec = excluded.codec, schema_hash = excluded.schema_hash, state = excluded.state, \
           read_position = excluded.read_position",
    )
    .bind(&loaded.stream.aggregate_type)
    .bind(&loaded.stream.aggregate_id)
    .bind(bigint(loaded.version))
    .bind(CODEC)
    .bind(&schema_hash::<D>()[..])
    .bind(state)
    .bind(bigint(loaded.read_at))
    .execute(pool)
    .await?;
    Ok(())
}
