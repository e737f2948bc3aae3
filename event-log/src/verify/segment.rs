//! Verifies a segment of the log, from the stored link before it to its last event. The caller
//! verifies that the segments fit together.
use std::collections::HashMap;

use futures::TryStreamExt as _;
use proof::{
    Hash, chain,
    leaf::{self, Leaf, metadata_hash, payload_hash},
    report::ReportEvent,
    tree,
};
use sqlx::{PgConnection, PgPool, Row, postgres::PgRow};

use super::{Difference, VerifyError};
use crate::{
    LogError, Source, StoredEvent, StreamId,
    archive::floor,
    stored::{bigint, fixed},
};

/// Level of the nodes of a segment: the lowest stored level.
pub(super) const LEVEL: u8 = 8;
/// Number of events under a node of this level.
pub(super) const BLOCK: u64 = 1 << LEVEL;

/// Events of a segment, and the state before them.
pub(super) struct Range {
    /// Start of the first block, at or before `after`.
    pub block: u64,
    /// Position before the first event.
    pub after: u64,
    /// Position of the last event.
    pub to: u64,
    /// Link before the first event of the log.
    pub genesis: Hash,
    /// True to verify the reports of runners.
    pub reports: bool,
}

/// Result of a segment.
pub(super) struct Segment {
    /// Last link of the chain.
    pub chain: Hash,
    /// Time in microseconds and commit number of the first and of the last event.
    pub times: Option<((i64, i64), (i64, i64))>,
    /// Streams, with sequence and position of their first and last event.
    pub streams: Vec<(StreamId, StreamEnds)>,
    /// Nodes that the segment completes.
    pub nodes: Vec<Hash>,
    /// Leaves after the last complete node.
    pub leaves: Vec<Hash>,
    /// Events that concern reports of runners, with their positions.
    pub report_events: Vec<(u64, ReportEvent)>,
}

/// Sequence and position of a stream's first and last event in a segment.
#[derive(Debug, Clone, Copy)]
pub(super) struct StreamEnds {
    pub first: (u64, u64),
    pub last: (u64, u64),
}

/// Number of archived events that are read at once.
const PAGE: u32 = 512;

/// Verifies the events of a range. It loads one event at a time, or one page of archived events.
pub(super) async fn check(source: Source, range: Range) -> Result<Segment, VerifyError> {
    loop {
        let mut connection = source.pool.acquire().await?;
        let before = floor(&mut connection).await?;
        let checked = try_check(&source, &mut connection, &range, before).await;
        // Rows that were dropped meanwhile are in an archive, so the next attempt reads them there.
        if checked.is_err() && floor(&mut connection).await? > before {
            continue;
        }
        drop(connection);
        let part = checked?;
        compare(&source.pool, range.block / BLOCK, &part.nodes, range.to).await?;
        return Ok(part);
    }
}

async fn try_check(
    source: &Source,
    connection: &mut PgConnection,
    range: &Range,
    floor: u64,
) -> Result<Segment, VerifyError> {
    let chain = match range.after {
        0 => range.genesis,
        after => link(connection, source, after).await?,
    };
    // Stored leaves of a block that began before the range.
    let mut begun = vec![];
    if range.block < range.after {
        let rows = sqlx::query_scalar::<_, Vec<u8>>(
            "select leaf from log_event where position > $1 and position <= $2 order by position",
        );
        let rows = rows.bind(bigint(range.block)).bind(bigint(range.after));
        for leaf in rows.fetch_all(&mut *connection).await? {
            begun.push(fixed(leaf, range.after, "leaf")?);
        }
        if begun.is_empty() {
            let archived_range = (range.block, range.after);
            let archived = source.archives.events(connection, archived_range, u32::MAX).await?;
            begun.extend(archived.iter().map(|event| event.leaf));
        }
    }
    let mut walk = Walk::new(range, chain, begun);
    let archived = floor.min(range.to);
    while walk.position < archived {
        let next = (walk.position, archived);
        let page = source.archives.events(connection, next, PAGE).await?;
        if page.is_empty() {
            break;
        }
        for event in &page {
            walk.take(&Raw::archived(event))?;
        }
    }
    // Reads the hashed bytes directly, without copying texts or parsing times.
    let rows = sqlx::query(
        "select position, event_id, aggregate_type, aggregate_id, sequence, event_type, event_version, \
         payload, metadata, salt, leaf, chain, commit_no, recorded_at from log_event \
         where position > $1 and position <= $2 order by position",
    );
    let mut rows = rows.bind(bigint(walk.position)).bind(bigint(range.to)).fetch(connection);
    while let Some(row) = rows.try_next().await? {
        walk.take(&Raw::of(&row, walk.position + 1)?)?;
    }
    walk.end()
}

/// The chain's link at a position, as it is stored.
pub(super) async fn link(
    connection: &mut PgConnection,
    source: &Source,
    position: u64,
) -> Result<Hash, VerifyError> {
    let row = sqlx::query("select chain from log_event where position = $1")
        .bind(bigint(position))
        .fetch_optional(&mut *connection)
        .await?;
    if let Some(row) = row {
        return Ok(fixed(row.try_get(0)?, position, "chain")?);
    }
    let event = source.archives.event(connection, position).await?;
    let missing = || Difference { position, what: "the event is missing".into() };
    Ok(event.ok_or_else(missing)?.chain)
}

/// State while the events of a range are verified.
struct Walk<'r> {
    range: &'r Range,
    position: u64,
    chain: Hash,
    leaves: Vec<Hash>,
    times: Option<((i64, i64), (i64, i64))>,
    /// Streams by type and id, joined by a byte that neither contains.
    streams: HashMap<String, StreamEnds>,
    /// Buffer for the joined name of a stream, so that a known stream needs no allocation.
    name: String,
    report_events: Vec<(u64, ReportEvent)>,
}

impl<'r> Walk<'r> {
    fn new(range: &'r Range, chain: Hash, mut leaves: Vec<Hash>) -> Walk<'r> {
        let position = range.after;
        leaves.reserve(usize::try_from(range.to - position).unwrap_or(0));
        let (streams, name, report_events) = (HashMap::new(), String::new(), vec![]);
        Walk { range, position, chain, leaves, times: None, streams, name, report_events }
    }

    fn take(&mut self, event: &Raw<'_>) -> Result<(), VerifyError> {
        self.position += 1;
        let position = self.position;
        let differs = |what: &str| Difference { position, what: what.into() };
        if event.position != position {
            return Err(differs("the event is missing").into());
        }
        if event.computed() != Some(event.leaf) {
            return Err(differs("the event does not match its hash").into());
        }
        self.chain = chain::next(&self.chain, &event.leaf);
        if self.chain != event.chain {
            return Err(differs("the chain link of the event does not match").into());
        }
        let now = (event.recorded_at_us, event.commit_no);
        let (first, last) = self.times.unwrap_or((now, now));
        if now.0 < last.0 || now.1 < last.1 {
            return Err(differs("the event is older than the event before it").into());
        }
        self.times = Some((first, now));
        let current = (event.sequence, position);
        self.name.clear();
        self.name.extend([event.aggregate_type, "\0", event.aggregate_id]);
        match self.streams.get_mut(self.name.as_str()) {
            Some(seen) if event.sequence == seen.last.0.wrapping_add(1) => seen.last = current,
            Some(_) => return Err(differs("the event is not the next of its stream").into()),
            None => {
                self.streams
                    .insert(self.name.clone(), StreamEnds { first: current, last: current });
            }
        }
        self.leaves.push(event.leaf);
        if self.range.reports {
            let stream = (event.aggregate_type, event.aggregate_id);
            let report_event = ReportEvent::read(stream, event.event_type, event.payload);
            self.report_events.extend(report_event.map(|report_event| (position, report_event)));
        }
        Ok(())
    }

    fn end(self) -> Result<Segment, VerifyError> {
        let Walk { range, position, chain, leaves, times, streams, report_events, .. } = self;
        if position != range.to {
            let what = "the event is missing".into();
            return Err(Difference { position: position + 1, what }.into());
        }
        let blocks = leaves.chunks_exact(1 << LEVEL);
        let rest = blocks.remainder().to_vec();
        let nodes = blocks.filter_map(tree::perfect).collect();
        let named = |(name, seen): (String, StreamEnds)| {
            let (kind, id) = name.split_once('\0').unwrap_or((&name, ""));
            (StreamId::new(kind, id), seen)
        };
        let streams = streams.into_iter().map(named).collect();
        Ok(Segment { chain, times, streams, nodes, leaves: rest, report_events })
    }
}

/// Compares nodes with the stored ones, starting at an index.
async fn compare(pool: &PgPool, first: u64, nodes: &[Hash], to: u64) -> Result<(), VerifyError> {
    let Some(end) = (!nodes.is_empty()).then(|| first + nodes.len() as u64) else { return Ok(()) };
    let rows = sqlx::query(
        "select index, hash from log_node where level = $1 and index >= $2 and index < $3",
    )
    .bind(i32::from(LEVEL))
    .bind(bigint(first))
    .bind(bigint(end))
    .fetch_all(pool)
    .await?;
    let mut stored = HashMap::new();
    for row in &rows {
        stored.insert(row.try_get::<i64, _>(0)?, row.try_get::<Vec<u8>, _>(1)?);
    }
    for (index, node) in (first..).zip(nodes) {
        if stored.get(&bigint(index)).is_none_or(|stored| stored[..] != node[..]) {
            let position = ((index + 1) * BLOCK).min(to);
            let what = format!(
                "the stored hash of tree node {index} of level {LEVEL} is missing or differs from the computed hash"
            );
            return Err(Difference { position, what }.into());
        }
    }
    Ok(())
}

/// An event as stored in its row.
struct Raw<'r> {
    position: u64,
    event_id: [u8; 16],
    aggregate_type: &'r str,
    aggregate_id: &'r str,
    sequence: u64,
    event_type: &'r str,
    event_version: &'r str,
    payload: &'r [u8],
    metadata: &'r [u8],
    salt: [u8; 16],
    leaf: Hash,
    chain: Hash,
    commit_no: i64,
    recorded_at_us: i64,
}

impl<'r> Raw<'r> {
    /// Reads the columns in their order.
    fn of(row: &'r PgRow, position: u64) -> Result<Raw<'r>, LogError> {
        let damaged = |what: String| LogError::Damaged { position, what };
        let bytes = |at: usize| -> Result<&'r [u8], LogError> {
            row.try_get_raw(at)?
                .as_bytes()
                .map_err(|error| damaged(format!("column {at}: {error}")))
        };
        let text = |at: usize| {
            str::from_utf8(bytes(at)?).map_err(|error| damaged(format!("column {at}: {error}")))
        };
        let number =
            |at: usize| Ok::<_, LogError>(i64::from_be_bytes(array(bytes(at)?, position)?));
        Ok(Raw {
            position: number(0)?.cast_unsigned(),
            event_id: array(bytes(1)?, position)?,
            aggregate_type: text(2)?,
            aggregate_id: text(3)?,
            sequence: number(4)?.cast_unsigned(),
            event_type: text(5)?,
            event_version: text(6)?,
            payload: bytes(7)?,
            metadata: bytes(8)?,
            salt: array(bytes(9)?, position)?,
            leaf: array(bytes(10)?, position)?,
            chain: array(bytes(11)?, position)?,
            commit_no: number(12)?,
            recorded_at_us: number(13)?.saturating_add(POSTGRES_EPOCH_US),
        })
    }

    fn archived(event: &'r StoredEvent) -> Raw<'r> {
        Raw {
            position: event.position,
            event_id: event.event_id.to_bytes(),
            aggregate_type: &event.stream.aggregate_type,
            aggregate_id: &event.stream.aggregate_id,
            sequence: event.sequence,
            event_type: &event.event_type,
            event_version: &event.event_version,
            payload: event.payload.as_bytes(),
            metadata: event.metadata.as_bytes(),
            salt: event.salt,
            leaf: event.leaf,
            chain: event.chain,
            commit_no: event.commit_no.cast_signed(),
            recorded_at_us: event.recorded_at.timestamp_micros(),
        }
    }

    /// Leaf hash, computed from the fields that it covers. `None` if the version is not a number.
    fn computed(&self) -> Option<Hash> {
        let leaf = Leaf {
            position: self.position,
            event_id: self.event_id,
            aggregate_type: self.aggregate_type,
            aggregate_id: self.aggregate_id,
            sequence: self.sequence,
            event_type: self.event_type,
            event_version: leaf::version(self.event_version)?,
            recorded_at_us: self.recorded_at_us,
            payload_hash: payload_hash(&self.salt, self.payload),
            metadata_hash: metadata_hash(&self.salt, self.metadata),
        };
        Some(leaf.hash())
    }
}

/// Start of the times of Postgres, the year 2000, in microseconds of Unix time.
const POSTGRES_EPOCH_US: i64 = 946_684_800_000_000;

fn array<const N: usize>(bytes: &[u8], position: u64) -> Result<[u8; N], LogError> {
    let what = || format!("a column has {} bytes, not {N}", bytes.len());
    bytes.try_into().map_err(|_| LogError::Damaged { position, what: what() })
}
