//! The append statement: all guards, the compare-and-set of the head and all writes, in one round
//! trip and one fsync.
//!
//! Each part contains its SQL and binds its own values; [`builder`] numbers the parameters. A batch
//! sends only the parts in its [`Shape`]. The text of each shape is built once, so that the
//! database reuses its prepared statement.
mod builder;
mod consumers;
mod events;
mod guards;
mod head;
mod inline;
mod keys;
mod nodes;
mod sessions;
mod shape;
mod streams;

use std::{collections::HashMap, sync::Arc};

use sqlx::postgres::PgArguments;

use super::{batch::Batch, head::Head, outcome};
use crate::{Column, InlineProjection};
use builder::StatementBuilder;
pub(super) use builder::Text;
pub(super) use guards::StreamGuard;
pub(super) use inline::InlineRows;
use inline::InlineStatement;
pub(super) use keys::{KeyRow, StaleKey};
pub(super) use shape::{Shape, Uniqueness};
pub(super) use streams::StreamRow;

/// Preconditions of a statement that do not depend on its commits.
pub(super) struct Expected<'a> {
    /// Head of the log that the batch follows. The statement compares it with the stored head.
    pub head: &'a Head,
    /// Format of the log that this program writes.
    pub format: i32,
    pub uniqueness: Uniqueness,
}

/// Texts of the statements that were sent so far.
pub(crate) struct StatementCache {
    /// Statements of each inline projection.
    projections: Vec<Vec<InlineStatement>>,
    texts: HashMap<(Shape, Vec<InlineShape>), Arc<str>>,
}

/// Index of an inline projection, and indexes of its statements that have rows.
type InlineShape = (usize, Vec<usize>);

/// Values of a batch that were bound before the rows of the inline projections were known.
pub(crate) struct PreparedValues {
    shape: Shape,
    sql: StatementBuilder,
}

/// Text and values of one statement.
pub(super) struct BoundStatement {
    pub sql: Arc<str>,
    pub values: Result<PgArguments, sqlx::Error>,
    pub shape: Shape,
}

impl PreparedValues {
    /// Binds the values of a batch. `None` if its shape depends on the inline projections.
    pub(super) fn of(expected: &Expected<'_>, batch: &Batch) -> Option<PreparedValues> {
        let shape = Shape::of(batch, expected.uniqueness, 0);
        (!shape.one_row).then(|| {
            let mut sql = StatementBuilder::values_only(shape.one_row);
            push(&mut sql, shape, expected, batch);
            PreparedValues { shape, sql }
        })
    }
}

impl StatementCache {
    pub(crate) fn new(projections: &[Arc<dyn InlineProjection>]) -> StatementCache {
        let parse = |projection: &Arc<dyn InlineProjection>| {
            projection.statements().iter().map(|sql| InlineStatement::parse(sql)).collect()
        };
        StatementCache {
            projections: projections.iter().map(parse).collect(),
            texts: HashMap::new(),
        }
    }

    /// Builds the statement of a batch.
    pub(super) fn bind(
        &mut self,
        expected: &Expected<'_>,
        batch: &Batch,
        prepared: Option<PreparedValues>,
        inline: Vec<InlineRows>,
    ) -> BoundStatement {
        let columns = inline.iter().flat_map(|rows| &rows.columns);
        let inline_rows = columns.map(Column::len).max().unwrap_or(0);
        let shape = Shape::of(batch, expected.uniqueness, inline_rows);
        let key = (shape, inline.iter().map(|rows| self.inline_shape(rows)).collect::<Vec<_>>());
        let cached = self.texts.get(&key).cloned();
        let mut sql = match prepared {
            Some(prepared) if prepared.shape == shape && cached.is_some() => prepared.sql,
            Some(_) | None => {
                let mut sql = match cached {
                    Some(_) => StatementBuilder::values_only(shape.one_row),
                    None => StatementBuilder::new(shape.one_row),
                };
                push(&mut sql, shape, expected, batch);
                sql
            }
        };
        for (rows, (projection, numbers)) in inline.into_iter().zip(&key.1) {
            let statements = &self.projections[*projection];
            inline::push(&mut sql, rows, numbers.iter().map(|at| (*at, &statements[*at])));
        }
        sql.with_text(|text| outcome::push_select(text, shape.writes));
        let (text, values) = sql.finish();
        let sql = match cached {
            Some(sql) => sql,
            None => {
                let sql: Arc<str> = text.unwrap_or_default().into();
                self.texts.insert(key, sql.clone());
                sql
            }
        };
        BoundStatement { sql, values, shape }
    }

    fn inline_shape(&self, rows: &InlineRows) -> InlineShape {
        let statements = self.projections.get(rows.projection).into_iter().flatten().enumerate();
        let with_rows = statements.filter(|(_, statement)| statement.has_rows(&rows.columns));
        (rows.projection, with_rows.map(|(number, _)| number).collect())
    }
}

/// Adds all parts of a batch except the inline projections and the final select.
fn push(sql: &mut StatementBuilder, shape: Shape, expected: &Expected<'_>, batch: &Batch) {
    let now = batch.head.recorded_at;
    let queried = shape.uniqueness == Uniqueness::Queried;
    if shape.stream_guards {
        guards::push(sql, &batch.stream_guards, if queried { &batch.new_streams } else { &[] });
    }
    if shape.keys && queried {
        keys::guard(sql, &batch.keys, now);
    }
    if shape.stale_keys {
        keys::look_up(sql, &batch.stale_keys, now);
    }
    if shape.consumers {
        consumers::push(sql, &batch.consumers, shape.writes);
    }
    if shape.sessions {
        sessions::push(sql, &batch.sessions, shape.writes);
    }
    if !shape.writes {
        return;
    }
    head::push(sql, expected, &batch.head);
    if shape.events {
        events::push(sql, &batch.events, now);
    }
    if shape.new_streams {
        streams::insert(sql, &batch.new_streams, expected.head.position + 1);
    }
    if shape.grown_streams {
        streams::update(sql, &batch.grown_streams);
    }
    if shape.keys {
        keys::insert(sql, &batch.keys, batch.keys_expire_at, queried);
    }
    if shape.nodes {
        nodes::push(sql, &batch.nodes);
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, time::Duration};

    use chrono::DateTime;
    use proof::tree::{Edge, Node};
    use sqlx::Arguments;

    use super::*;
    use crate::{ConsumerGuard, SessionGuard, StreamId, append::versions::StaleStreams};

    fn head() -> Head {
        Head {
            log_id: "log".into(),
            position: 0,
            commit_no: 0,
            fence: 0,
            epoch: 0,
            format: 1,
            chain: [0; 32],
            recorded_at: DateTime::UNIX_EPOCH,
            edge: Edge::default(),
        }
    }

    /// Returns a batch with this many rows in each part and without events.
    fn batch(rows: u64) -> Batch {
        let stale = StaleStreams::default();
        let mut batch =
            Batch::number(&head(), &[], &stale, DateTime::UNIX_EPOCH, Duration::from_secs(1));
        let stream = |id: u64| StreamId::new("job", id.to_string());
        let text = String::new;
        for id in 0..rows {
            batch.stream_guards.push(StreamGuard { stream: stream(id), expected: 1 });
            batch.keys.push(KeyRow {
                principal: text(),
                key: text(),
                request_hash: [0; 32],
                first: 1,
                last: 1,
                response: None,
            });
            batch.stale_keys.push(StaleKey { principal: text(), key: text() });
            let (expected, owner_epoch) = (id, 1);
            let (name, version, shard) = (text(), 1, 0);
            batch.consumers.push(ConsumerGuard { name, version, shard, expected, owner_epoch });
            let (runner, server, server_epoch) = (text(), text(), 1);
            batch.sessions.push(SessionGuard { runner, server, server_epoch });
            let row = |id| StreamRow { stream: stream(id), version: 1, last_position: 1 };
            batch.new_streams.push(row(id));
            batch.grown_streams.push(row(id));
            batch.nodes.push((Node { level: 0, index: id }, [0; 32]));
        }
        batch.writes = rows > 0;
        batch
    }

    fn placeholders(sql: &str) -> BTreeSet<usize> {
        let after = sql.split('$').skip(1);
        let numbers = after.map(|text| text.chars().take_while(char::is_ascii_digit).collect());
        numbers.map(|digits: String| digits.parse().unwrap()).collect()
    }

    #[test]
    fn every_bound_value_is_in_the_text() {
        let head = head();
        for rows in 1..=2 {
            for uniqueness in [Uniqueness::Queried, Uniqueness::ByConstraint] {
                let expected = Expected { head: &head, format: 1, uniqueness };
                let mut statements = StatementCache::new(&[]);
                let first = statements.bind(&expected, &batch(rows), None, Vec::new());
                let again = statements.bind(&expected, &batch(rows), None, Vec::new());
                assert!(Arc::ptr_eq(&first.sql, &again.sql));
                let bound = first.values.unwrap().len();
                assert_eq!(again.values.unwrap().len(), bound);
                assert_eq!(placeholders(&first.sql), (1..=bound).collect(), "{}", first.sql);
            }
        }
    }
}
