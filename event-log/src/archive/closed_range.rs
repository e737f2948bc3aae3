//! Checks that a range is closed, and finds the published checkpoint that covers it.
use proof::{
    Hash,
    bundle::Base64,
    chain,
    checkpoint::Checkpoint,
    key::{TrustedKey, VerifierKey},
    range::{FORMAT, Head as Proof},
    tree::{self, Edge},
};
use sqlx::{PgConnection, PgPool, Row};

use super::ArchiveError;
use crate::{
    Archives, LogError,
    append::Head,
    checkpoints::note_keys_at,
    nodes,
    partitions::Partition,
    stored::{bigint, number},
};

/// A consumer of the log, with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reader {
    pub name: String,
    /// Last position that the reader has processed.
    pub position: u64,
}

/// Proof that the events of a range must match.
pub(super) struct RangeProof {
    pub log_id: String,
    pub proof: Proof,
    pub keys: Vec<TrustedKey>,
}

/// Builds the proof of a closed partition's range. Fails if the log or a reader has not reached the
/// end of the range, or if no published checkpoint covers it.
pub(super) async fn range_proof(
    pool: &PgPool,
    archives: &Archives,
    of: &Partition,
    readers: &[Reader],
) -> Result<RangeProof, ArchiveError> {
    let (first, last) = (of.first, of.last);
    let open = |why: String| ArchiveError::NotClosed { first, last, why };
    let mut connection = pool.acquire().await?;
    let head = Head::read_row(&mut connection).await?.ok_or(LogError::NoLog)?;
    if head.position < last {
        return Err(open(format!("the log ends at {}, before their last position", head.position)));
    }
    if let Some(Reader { name, position }) = readers.iter().find(|reader| reader.position < last) {
        let why =
            format!("{name} is at {position}; let the server run until {name} has passed {last}");
        return Err(open(why));
    }
    let published = sqlx::query(
        "select position, note, published_at from log_checkpoint where position >= $1 order by position limit 1",
    );
    let published = published.bind(bigint(last)).fetch_optional(&mut *connection).await?;
    let Some(published) = published else {
        let why = "no published checkpoint covers them yet; let the server run for a minute";
        return Err(open(why.into()));
    };
    let (size, note): (u64, String) = (number(published.try_get(0)?), published.try_get(1)?);
    let keys = note_keys_at(&mut *connection, size, published.try_get(2)?).await?;
    let signer = |key: &ed25519_dalek::VerifyingKey| {
        let checkpoint = Checkpoint::open(&note, std::slice::from_ref(key)).ok()?;
        Some(VerifierKey { name: checkpoint.origin(), key: *key })
    };
    let Some(signer) = keys.iter().find_map(signer) else {
        return Err(ArchiveError::NoSigner { first, last, size });
    };
    let edge = nodes::fetch_through(&mut connection, archives, Edge::nodes(first - 1)).await?;
    let plan = tree::consistency(last, size).map_err(LogError::Proof)?;
    let nodes = plan.nodes().collect();
    let path = nodes::fetch_through(&mut connection, archives, nodes).await?;
    let path = plan.fold(&path).map_err(LogError::Proof)?;
    let before = match first {
        1 => chain::genesis(&head.log_id),
        _ => link(&mut connection, archives, first - 1).await?,
    };
    let hashes = |hashes: Vec<Hash>| hashes.into_iter().map(Base64).collect();
    let proof = Proof {
        format: FORMAT.into(),
        from: first,
        to: last,
        signer: signer.to_string(),
        checkpoint: note,
        edge: hashes(edge),
        consistency: hashes(path),
        chain: Base64(before),
    };
    let keys = keys.into_iter().map(TrustedKey::Bare).collect();
    Ok(RangeProof { log_id: head.log_id, proof, keys })
}

/// Link of the chain at a position, from the row or from an archive.
async fn link(
    connection: &mut PgConnection,
    archives: &Archives,
    position: u64,
) -> Result<Hash, LogError> {
    let row = sqlx::query_scalar::<_, Vec<u8>>("select chain from log_event where position = $1");
    if let Some(chain) = row.bind(bigint(position)).fetch_optional(&mut *connection).await? {
        return crate::stored::fixed(chain, position, "chain");
    }
    let event = archives.event(connection, position).await?;
    let what = || "the event is missing".to_owned();
    Ok(event.ok_or_else(|| LogError::Damaged { position, what: what() })?.chain)
}
