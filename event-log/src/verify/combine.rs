//! Combines the results of the segments and compares them with the stored streams and nodes.
use std::collections::HashMap;

use proof::{
    Hash,
    tree::{Edge, Node},
};
use sqlx::{PgPool, Row};

use super::{
    Difference, VerifyError,
    segment::{LEVEL, Segment, StreamEnds},
};
use crate::{
    StreamId,
    stored::{bigint, number},
};

/// Maximum number of streams that are read at once.
const PAGE: u32 = 5_000;

/// Combined result of the segments.
pub(super) struct LogSummary {
    pub position: u64,
    pub chain: Hash,
    pub edge: Edge,
    /// Time in microseconds and commit number of the last event.
    pub last: Option<(i64, i64)>,
    /// Streams, with their first and last event.
    pub streams: HashMap<StreamId, StreamEnds>,
    /// Nodes above those of the segments, to compare with the stored ones.
    pub nodes: Vec<(Node, Hash)>,
    pub from_start: bool,
}

impl LogSummary {
    pub fn take(&mut self, to: u64, part: Segment) -> Result<(), Difference> {
        let position = self.position + 1;
        let differs = |position, what: &str| Err(Difference { position, what: what.into() });
        if let (Some(last), Some((first, _))) = (self.last, part.times)
            && (first.0 < last.0 || first.1 < last.1)
        {
            return differs(position, "the event is older than the event before it");
        }
        let mut wrong = None;
        for (stream, StreamEnds { first, last }) in part.streams {
            let known = self.streams.get(&stream);
            let expected = match known {
                Some(known) => Some(known.last.0 + 1),
                None => self.from_start.then_some(1),
            };
            if expected.is_some_and(|expected| expected != first.0) {
                wrong = wrong.into_iter().chain([first.1]).min();
            }
            let first = known.map_or(first, |known| known.first);
            self.streams.insert(stream, StreamEnds { first, last });
        }
        if let Some(position) = wrong {
            return differs(position, "the event is not the next of its stream");
        }
        let nodes = &mut self.nodes;
        let mut keep = |node: Node, hash: &Hash| {
            if node.level.is_multiple_of(LEVEL) {
                nodes.push((node, *hash));
            }
        };
        for node in part.nodes {
            self.edge.join(LEVEL, node, &mut keep);
        }
        for leaf in part.leaves {
            self.edge.push(leaf, &mut keep);
        }
        (self.position, self.chain) = (to, part.chain);
        self.last = part.times.map(|(_, last)| last).or(self.last);
        Ok(())
    }

    /// Compares the nodes above the segments with the stored nodes.
    pub async fn compare_nodes(&mut self, pool: &PgPool) -> Result<(), VerifyError> {
        let nodes = std::mem::take(&mut self.nodes);
        let rows = sqlx::query(
            "select w.n, o.hash from unnest($1::integer[], $2::bigint[]) with ordinality as w(level, index, n) \
             join log_node o on o.level = w.level and o.index = w.index",
        )
        .bind(nodes.iter().map(|(node, _)| i32::from(node.level)).collect::<Vec<_>>())
        .bind(nodes.iter().map(|(node, _)| bigint(node.index)).collect::<Vec<_>>())
        .fetch_all(pool)
        .await?;
        let mut found = HashMap::new();
        for row in &rows {
            found.insert(row.try_get::<i64, _>("n")?, row.try_get::<Vec<u8>, _>("hash")?);
        }
        for (n, (node, hash)) in (1..).zip(&nodes) {
            if found.get(&n).is_none_or(|found| found[..] != hash[..]) {
                let position = ((node.index + 1) << node.level).min(self.position);
                let what = format!(
                    "the stored hash of tree node {} of level {} is missing or differs from the computed hash",
                    node.index, node.level
                );
                return Err(Difference { position, what }.into());
            }
        }
        Ok(())
    }

    /// Checks that each stream's version is the sequence of its last event, and that each stream
    /// has events.
    pub async fn compare_streams(&mut self, pool: &PgPool, end: u64) -> Result<(), VerifyError> {
        let mut after = (String::new(), String::new());
        loop {
            let rows = sqlx::query(
                "select aggregate_type, aggregate_id, version, last_position, first_position from log_stream \
                 where (aggregate_type, aggregate_id) > ($1, $2) \
                 order by aggregate_type, aggregate_id limit $3",
            )
            .bind(&after.0)
            .bind(&after.1)
            .bind(i64::from(PAGE))
            .fetch_all(pool)
            .await?;
            let Some(last) = rows.last() else { break };
            after = (last.try_get(0)?, last.try_get(1)?);
            let mut later = GrownStreams::default();
            for row in &rows {
                let stream =
                    StreamId::new(row.try_get::<String, _>(0)?, row.try_get::<String, _>(1)?);
                let (version, position) = (number(row.try_get(2)?), number(row.try_get(3)?));
                let since = number(row.try_get(4)?);
                let differs = |position| Err(differs(position, &stream).into());
                match self.streams.remove(&stream) {
                    // The stream's last event may be from a concurrent append after the verified
                    // end. That event must be in the database by now.
                    seen if position > end => {
                        let reported = seen.map_or(position, |seen| seen.last.1);
                        later.push(stream, version, position, reported);
                    }
                    // Reads of the stream skip events before its recorded beginning.
                    Some(StreamEnds { first, .. }) if self.from_start && first.1 < since => {
                        let (position, what) =
                            (first.1, format!("{stream} has events before its recorded beginning"));
                        return Err(Difference { position, what }.into());
                    }
                    Some(seen) if seen.last == (version, position) => {}
                    Some(seen) => return differs(seen.last.1),
                    None if self.from_start => return differs(position),
                    None => {}
                }
            }
            later.compare(pool).await?;
        }
        match self.streams.iter().map(|(stream, seen)| (seen.last.1, stream)).min() {
            None => Ok(()),
            Some((position, stream)) => {
                Err(Difference { position, what: format!("{stream} has events, but no version") }
                    .into())
            }
        }
    }
}

/// Streams whose version is from an event after the verified end.
#[derive(Default)]
struct GrownStreams {
    kind: Vec<String>,
    id: Vec<String>,
    version: Vec<i64>,
    position: Vec<i64>,
    /// Position to report in case of an error: the last verified event of the stream.
    reported: Vec<i64>,
}

impl GrownStreams {
    fn push(&mut self, stream: StreamId, version: u64, position: u64, reported: u64) {
        self.kind.push(stream.aggregate_type);
        self.id.push(stream.aggregate_id);
        self.version.push(bigint(version));
        self.position.push(bigint(position));
        self.reported.push(bigint(reported));
    }

    /// Checks that each stream has an event with this position and sequence, because the append
    /// statement writes the stream's row with its event.
    async fn compare(self, pool: &PgPool) -> Result<(), VerifyError> {
        if self.kind.is_empty() {
            return Ok(());
        }
        let row = sqlx::query(
            "select w.kind, w.id, w.reported \
             from unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[]) \
               as w(kind, id, version, position, reported) \
             where not exists (select 1 from log_event e where e.position = w.position \
               and e.aggregate_type = w.kind and e.aggregate_id = w.id and e.sequence = w.version) \
             order by w.reported limit 1",
        )
        .bind(self.kind)
        .bind(self.id)
        .bind(self.version)
        .bind(self.position)
        .bind(self.reported)
        .fetch_optional(pool)
        .await?;
        let Some(row) = row else { return Ok(()) };
        let stream = StreamId::new(row.try_get::<String, _>(0)?, row.try_get::<String, _>(1)?);
        Err(differs(number(row.try_get(2)?), &stream).into())
    }
}

fn differs(position: u64, stream: &StreamId) -> Difference {
    Difference {
        position,
        what: format!("the version of {stream} is not the sequence of its last event"),
    }
}
