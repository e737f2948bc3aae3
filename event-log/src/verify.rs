//! Reading everything again and believing nothing: each leaf from its row, each link, each node, the head.
//!
//! The log is checked in parts, several at once. A part begins with the chain's link that is stored before it,
//! which the part before has to arrive at.
use std::{collections::HashMap, thread};

use futures::{StreamExt, stream};
use proof::{Hash, chain, tree::Edge};
use sqlx::PgPool;

use crate::{LogError, append::Head, nodes, stored::bigint};

mod part;
mod whole;

use part::{BLOCK, Range, check, link};
use whole::Whole;

/// How many events are a part: a multiple of what a stored node has.
const PART: u64 = 16 * BLOCK;
/// The most parts at once.
const AT_ONCE: usize = 8;

/// A log that is what it says it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// How many events it has.
    pub size: u64,
    /// The root over them.
    pub root: Hash,
    /// The last link of the chain.
    pub chain: Hash,
    /// How many events were read for this.
    pub checked: u64,
}

/// The first place where the log is not what it says it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("position {position}: {what}")]
pub struct Difference {
    /// Where; one more than the last event when something is missing at the end.
    pub position: u64,
    /// What is wrong there.
    pub what: String,
}

/// What verification found, or why it could not look.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The log is not what it says it is.
    #[error(transparent)]
    Differs(#[from] Difference),
    /// It could not be read.
    #[error(transparent)]
    Log(#[from] LogError),
}

impl From<sqlx::Error> for VerifyError {
    fn from(error: sqlx::Error) -> VerifyError {
        VerifyError::Log(error.into())
    }
}

/// Check everything after a position, which is itself taken as it is stored; 0 checks the whole log. `progress`
/// hears how many events have been checked. As many parts at once as there are cores.
///
/// It finds what was changed, removed, added or swapped by somebody who did not compute the log anew. Who did
/// is caught only by a checkpoint that was kept elsewhere: compare [`Verified::root`] with it.
///
/// # Errors
/// [`VerifyError::Differs`] with the first difference.
pub async fn verify(
    pool: &PgPool,
    from_exclusive: u64,
    progress: impl FnMut(u64),
) -> Result<Verified, VerifyError> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    verify_with(pool, from_exclusive, cores.min(AT_ONCE), progress).await
}

/// The same, with so many parts at once.
///
/// # Errors
/// [`VerifyError::Differs`] with the first difference.
pub async fn verify_with(
    pool: &PgPool,
    from_exclusive: u64,
    at_once: usize,
    mut progress: impl FnMut(u64),
) -> Result<Verified, VerifyError> {
    let mut connection = pool.acquire().await?;
    let head = Head::read_row(&mut connection).await?.ok_or(LogError::NoLog)?;
    if from_exclusive > head.position {
        let what = "the head is before where verification should begin".into();
        return Err(Difference { position: head.position + 1, what }.into());
    }
    let start = from_exclusive - from_exclusive % BLOCK;
    let hashes = nodes::fetch(&mut connection, Edge::nodes(start)).await?;
    drop(connection);
    let genesis = chain::genesis(&head.log_id);
    let before = if from_exclusive == 0 { genesis } else { link(pool, from_exclusive).await? };
    let mut whole = Whole {
        position: from_exclusive,
        chain: before,
        edge: Edge::of(start, hashes).ok_or(LogError::NoLog)?,
        last: None,
        streams: HashMap::new(),
        nodes: Vec::new(),
        whole: from_exclusive == 0,
    };
    let parts = ranges(start, from_exclusive, head.position, genesis);
    let parts = parts.map(|range| {
        let to = range.to;
        let checking = tokio::spawn(check(pool.clone(), range));
        async move {
            let part = checking.await.map_err(|error| sqlx::Error::Io(error.into()))??;
            Ok::<_, VerifyError>((to, part))
        }
    });
    // In order, whichever is ready first: the first difference is the one that is told.
    let mut parts = stream::iter(parts).buffered(at_once.max(1));
    while let Some(part) = parts.next().await {
        let (to, part) = part?;
        whole.take(to, part)?;
        progress(to - from_exclusive);
    }
    let differs = |what: &str| Difference { position: head.position + 1, what: what.into() };
    if whole.chain != head.chain {
        return Err(differs("the head has another chain").into());
    }
    // Others may append while this runs, but nothing of a batch that the head already counts.
    let beyond = sqlx::query("select 1 from log_event where position > $1 and commit_no <= $2")
        .bind(bigint(head.position))
        .bind(bigint(head.commit_no));
    if beyond.fetch_optional(pool).await?.is_some() {
        return Err(differs("there are events after the head").into());
    }
    whole.compare_nodes(pool).await?;
    whole.compare_streams(pool, head.position).await?;
    let (size, checked) = (head.position, head.position.saturating_sub(from_exclusive));
    Ok(Verified { size, root: whole.edge.root(), chain: whole.chain, checked })
}

/// The parts, each from a block's beginning; but the first begins where it was asked for.
fn ranges(block: u64, after: u64, end: u64, genesis: Hash) -> impl Iterator<Item = Range> {
    let size = usize::try_from(PART).unwrap_or(usize::MAX);
    (block..end).step_by(size).map(move |block| Range {
        block,
        after: block.max(after),
        to: (block + PART).min(end),
        genesis,
    })
}
