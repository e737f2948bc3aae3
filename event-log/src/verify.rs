//! Reading everything again and believing nothing: each leaf from its row, each link, each node, the head.
//!
//! The log is checked in parts, several at once. A part begins with the chain's link that is stored before it,
//! which the part before has to arrive at.
use std::{collections::HashMap, thread};

use futures::{StreamExt, stream};
use proof::{Hash, chain, tree::Edge};

use crate::{LogError, Source, append::Head, nodes, stored::number};

mod part;
mod reports;
mod whole;

pub use reports::Reported;

use part::{BLOCK, Range, check, link};
use reports::Gathering;
use whole::Whole;

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
    /// What runners signed of it; nothing, where it was not looked at ([`Parts::reports`]).
    pub reported: Reported,
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
    Log(LogError),
}

impl From<LogError> for VerifyError {
    fn from(error: LogError) -> VerifyError {
        match error {
            // Bytes that are not even of an event are a difference like any other.
            LogError::Damaged { position, what } => Difference { position, what }.into(),
            other => VerifyError::Log(other),
        }
    }
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
/// is caught by a checkpoint that was kept elsewhere: compare [`Verified::root`] with it. And by what they cannot
/// sign: [`Verified::reported`] has the reports that no runner made.
///
/// # Errors
/// [`VerifyError::Differs`] with the first difference.
pub async fn verify(
    source: impl Into<Source>,
    from_exclusive: u64,
    progress: impl FnMut(u64),
) -> Result<Verified, VerifyError> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    verify_in(
        source,
        from_exclusive,
        Parts { at_once: cores.min(AT_ONCE), ..Parts::default() },
        progress,
    )
    .await
}

/// How the work is divided.
#[derive(Debug, Clone, Copy)]
pub struct Parts {
    /// How many at once.
    pub at_once: usize,
    /// How many blocks of 256 events one has.
    pub blocks: u64,
    /// Whether what runners signed is checked, too. Their signatures take longer than all the rest.
    pub reports: bool,
}

impl Default for Parts {
    fn default() -> Parts {
        Parts { at_once: 1, blocks: 16, reports: true }
    }
}

/// The same, divided like this.
///
/// # Errors
/// [`VerifyError::Differs`] with the first difference.
pub async fn verify_in(
    source: impl Into<Source>,
    from_exclusive: u64,
    parts: Parts,
    mut progress: impl FnMut(u64),
) -> Result<Verified, VerifyError> {
    let source = source.into();
    let pool = &source.pool;
    let mut connection = pool.acquire().await?;
    // Migrations write the head with its table.
    let gone = || Difference { position: 1, what: "the head is gone".into() };
    let head = Head::read_row(&mut connection).await.map_err(|error| unreadable(1, error))?;
    let head = head.ok_or_else(gone)?;
    if from_exclusive > head.position {
        let what = "the head is before where verification should begin".into();
        return Err(Difference { position: head.position + 1, what }.into());
    }
    let start = from_exclusive - from_exclusive % BLOCK;
    let hashes = nodes::fetch(&mut connection, Edge::nodes(start)).await;
    let hashes = hashes.map_err(|error| unreadable(start, error))?;
    let genesis = chain::genesis(&head.log_id);
    let before = match from_exclusive {
        0 => genesis,
        after => link(&mut connection, &source, after).await?,
    };
    drop(connection);
    let mut whole = Whole {
        position: from_exclusive,
        chain: before,
        edge: Edge::of(start, hashes).ok_or(LogError::NoLog)?,
        last: None,
        streams: HashMap::new(),
        nodes: Vec::new(),
        whole: from_exclusive == 0,
    };
    let ranges = ranges(parts, start, from_exclusive, head.position, genesis);
    let checks = ranges.map(|range| {
        let to = range.to;
        let checking = tokio::spawn(check(source.clone(), range));
        async move {
            let part = checking.await.map_err(|error| sqlx::Error::Io(error.into()))??;
            Ok::<_, VerifyError>((to, part))
        }
    });
    // In order, whichever is ready first: the first difference is the one that is told.
    let mut checks = stream::iter(checks).buffered(parts.at_once.max(1));
    let mut gathering = Gathering::new(from_exclusive == 0);
    while let Some(part) = checks.next().await {
        let (to, mut part) = part?;
        gathering.take(std::mem::take(&mut part.facts)).await?;
        whole.take(to, part)?;
        progress(to - from_exclusive);
    }
    let differs = |what: &str| Difference { position: head.position + 1, what: what.into() };
    if whole.chain != head.chain {
        return Err(differs("the head has another chain").into());
    }
    // Others may append while this runs; but whatever they have written, the head of that moment counts it.
    let beyond =
        "select min(e.position) from log_event e, log_head h where e.position > h.position";
    let beyond: Option<i64> = sqlx::query_scalar(beyond).fetch_one(pool).await?;
    if let Some(position) = beyond {
        let what = "there are events after the head".into();
        return Err(Difference { position: number(position), what }.into());
    }
    whole.compare_nodes(pool).await?;
    whole.compare_streams(pool, head.position).await?;
    let (size, checked) = (head.position, head.position.saturating_sub(from_exclusive));
    let reported = gathering.end().await?;
    Ok(Verified { size, root: whole.edge.root(), chain: whole.chain, checked, reported })
}

/// What is stored there is not even what we write.
fn unreadable(position: u64, error: sqlx::Error) -> VerifyError {
    match error {
        sqlx::Error::Decode(what) | sqlx::Error::ColumnDecode { source: what, .. } => {
            Difference { position, what: what.to_string() }.into()
        }
        other => other.into(),
    }
}

/// The parts, each from a block's beginning; but the first begins where it was asked for.
fn ranges(
    Parts { blocks, reports, .. }: Parts,
    block: u64,
    after: u64,
    end: u64,
    genesis: Hash,
) -> impl Iterator<Item = Range> {
    let part = blocks.max(1).saturating_mul(BLOCK);
    let size = usize::try_from(part).unwrap_or(usize::MAX);
    (block..end).step_by(size).map(move |block| Range {
        block,
        after: block.max(after),
        to: block.saturating_add(part).min(end),
        genesis,
        reports,
    })
}
