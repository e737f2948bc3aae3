//! Verification of the log: recomputes every leaf, link, node and the head from the stored events.
//!
//! Segments of the log are verified concurrently. A segment begins with the stored link before it,
//! and the previous segment must end with the same link.
use std::{collections::HashMap, thread};

use futures::{StreamExt, stream};
use proof::{Hash, chain, tree::Edge};

use crate::{LogError, Source, append::Head, nodes, stored::number};

mod combine;
mod reports;
mod segment;

pub use reports::Reported;

use combine::LogSummary;
use reports::ReportVerifier;
use segment::{BLOCK, Range, check, link};

/// Maximum number of concurrent segments.
const MAX_CONCURRENT: usize = 8;

/// Result of a successful verification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// Number of events in the log.
    pub size: u64,
    /// Root of the tree.
    pub root: Hash,
    /// Last link of the chain.
    pub chain: Hash,
    /// Number of events that were read.
    pub checked: u64,
    /// Result for the signed reports of runners; empty if they were not checked
    /// ([`VerifyOptions::reports`]).
    pub reported: Reported,
}

/// First position at which the log fails verification.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("position {position}: {what}")]
pub struct Difference {
    /// Position; one after the last event if something is missing at the end.
    pub position: u64,
    /// Description of the error.
    pub what: String,
}

/// Reasons why a verification fails.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The log fails verification.
    #[error(transparent)]
    Differs(#[from] Difference),
    /// The log cannot be read.
    #[error(transparent)]
    Log(LogError),
}

impl From<LogError> for VerifyError {
    fn from(error: LogError) -> VerifyError {
        match error {
            // Stored bytes that cannot be decoded also fail the verification.
            LogError::Damaged { position, what } => Difference { position, what }.into(),
            other @ (LogError::Database(_)
            | LogError::NoLog
            | LogError::Encoding(_)
            | LogError::Format(_)
            | LogError::Archived { .. }
            | LogError::WrappingKey(_)
            | LogError::Proof(_)) => VerifyError::Log(other),
        }
    }
}

impl From<sqlx::Error> for VerifyError {
    fn from(error: sqlx::Error) -> VerifyError {
        VerifyError::Log(error.into())
    }
}

/// Verifies all events after a position; 0 verifies the whole log. The event at that position is
/// trusted as stored. `progress` receives the number of verified events. Runs one segment per
/// processor core, at most 8.
///
/// Detects events that were changed, removed, added or swapped, unless all hashes were recomputed.
/// To detect recomputed hashes, compare [`Verified::root`] with a checkpoint that another party
/// stored. In addition, [`Verified::reported`] lists forged reports, because only a runner can sign
/// its reports.
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
        VerifyOptions { concurrency: cores.min(MAX_CONCURRENT), ..VerifyOptions::default() },
        progress,
    )
    .await
}

/// Concurrency and scope of a verification.
#[derive(Debug, Clone, Copy)]
pub struct VerifyOptions {
    /// Number of concurrent segments.
    pub concurrency: usize,
    /// Number of blocks of 256 events in a segment.
    pub blocks: u64,
    /// True to verify the signatures of runners' reports.
    pub reports: bool,
}

impl Default for VerifyOptions {
    fn default() -> VerifyOptions {
        VerifyOptions { concurrency: 1, blocks: 16, reports: true }
    }
}

/// Verifies the log as [`verify`] does, with these options.
///
/// # Errors
/// [`VerifyError::Differs`] with the first difference.
pub async fn verify_in(
    source: impl Into<Source>,
    from_exclusive: u64,
    parts: VerifyOptions,
    mut progress: impl FnMut(u64),
) -> Result<Verified, VerifyError> {
    let source = source.into();
    let pool = &source.pool;
    let mut connection = pool.acquire().await?;
    // `stead migrate` creates the head row, so a missing row is a difference.
    let missing =
        || Difference { position: 1, what: "the row of the log's head is missing".into() };
    let head = Head::read_row(&mut connection).await.map_err(|error| unreadable(1, error))?;
    let head = head.ok_or_else(missing)?;
    if from_exclusive > head.position {
        let what = "the head of the log is before the start of the verification".into();
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
    let mut summary = LogSummary {
        position: from_exclusive,
        chain: before,
        edge: Edge::of(start, hashes).ok_or(LogError::NoLog)?,
        last: None,
        streams: HashMap::new(),
        nodes: Vec::new(),
        from_start: from_exclusive == 0,
    };
    let ranges = ranges(parts, start, from_exclusive, head.position, genesis);
    let checks = ranges.map(|range| {
        let to = range.to;
        #[expect(clippy::disallowed_methods, reason = "the task is awaited below")]
        let checking = tokio::spawn(check(source.clone(), range));
        async move {
            let part = checking.await.map_err(|error| sqlx::Error::Io(error.into()))??;
            Ok::<_, VerifyError>((to, part))
        }
    });
    // Results are processed in order, so that the first difference is reported.
    let mut checks = stream::iter(checks).buffered(parts.concurrency.max(1));
    let mut gathering = ReportVerifier::new(from_exclusive == 0);
    while let Some(part) = checks.next().await {
        let (to, mut part) = part?;
        gathering.take(std::mem::take(&mut part.report_events)).await?;
        summary.take(to, part)?;
        progress(to - from_exclusive);
    }
    let differs = |what: &str| Difference { position: head.position + 1, what: what.into() };
    if summary.chain != head.chain {
        return Err(
            differs("the chain link of the log's head does not match the last event").into()
        );
    }
    // A concurrent append may have written events meanwhile, but the head of the same snapshot
    // includes them.
    let beyond =
        "select min(e.position) from log_event e, log_head h where e.position > h.position";
    let beyond: Option<i64> = sqlx::query_scalar(beyond).fetch_one(pool).await?;
    if let Some(position) = beyond {
        let what = "the event is after the head of the log".into();
        return Err(Difference { position: number(position), what }.into());
    }
    summary.compare_nodes(pool).await?;
    summary.compare_streams(pool, head.position).await?;
    let (size, checked) = (head.position, head.position.saturating_sub(from_exclusive));
    let reported = gathering.end().await?;
    Ok(Verified { size, root: summary.edge.root(), chain: summary.chain, checked, reported })
}

/// Reports undecodable data as a difference.
fn unreadable(position: u64, error: sqlx::Error) -> VerifyError {
    if let sqlx::Error::Decode(what) | sqlx::Error::ColumnDecode { source: what, .. } = error {
        return Difference { position, what: what.to_string() }.into();
    }
    error.into()
}

/// Returns the segments. Each begins at a block, except the first, which begins at the requested
/// position.
fn ranges(
    VerifyOptions { blocks, reports, .. }: VerifyOptions,
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
