//! The one statement: all guards, the head's compare-and-set, all writes. One round trip, one fsync.
use std::{collections::HashMap, iter, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use sqlx::{
    PgConnection, Postgres, Row,
    postgres::{PgArguments, PgDatabaseError, PgRow, PgSeverity},
    query::Query,
};
use uuid::Uuid;

use super::{
    batch::{Batch, Ride},
    culprits::{Culprits, Known},
    head::{Head, within},
    sql::{BETWEEN, Check, Parameter, Parts},
};
use crate::{Column, Stored, SyncView, stored::bigint};

/// What became of a batch.
pub(crate) enum Sent {
    /// It is durable, but for those that were known to come too late.
    Committed(Culprits),
    /// Nothing was written, because of these.
    Culprits(Culprits),
    /// Nothing was written, because the head is not where we thought.
    Moved,
    /// Nothing was written, because a stream or key that was trusted to be new is not: ask.
    Distrusted,
    /// Nothing was written, because the database says so.
    Refused(sqlx::Error),
    /// Nobody knows.
    InDoubt(sqlx::Error),
}

/// The texts that were sent so far: one per combination of parts.
pub(crate) struct Statement {
    /// For each view its statements in one text.
    views: Vec<String>,
    texts: HashMap<(Parts, Vec<usize>), Text>,
}

#[derive(Clone)]
struct Text {
    sql: Arc<str>,
    parameters: Arc<[Parameter]>,
}

/// What the head must be, and what this program is.
struct Expected<'a> {
    before: &'a Head,
    layout: i32,
    check: Check,
}

impl Statement {
    pub(crate) fn of(views: &[Arc<dyn SyncView>]) -> Statement {
        let views = views.iter().map(|view| view.statements().join(BETWEEN)).collect();
        Statement { views, texts: HashMap::new() }
    }

    /// Send a batch and wait until the database has said everything it has to say about it.
    pub(crate) fn send<'a>(
        &'a mut self,
        connection: &'a mut PgConnection,
        before: &'a Head,
        batch: &'a Batch,
        rides: Vec<Ride>,
        (layout, check, answer): (i32, Check, Duration),
    ) -> BoxFuture<'a, Sent> {
        let Text { sql, parameters } = self.text(batch, check, &rides);
        Box::pin(async move {
            let expected = Expected { before, layout, check };
            let bound = parameters.iter().fold(sqlx::query(&sql), |query, parameter| {
                bind(query, *parameter, &expected, batch)
            });
            let columns = rides.into_iter().flat_map(|ride| ride.columns);
            let query = columns.fold(bound, bind_column);
            // All rows, not one: the commit comes after the row, and only the end of the answer says it is durable.
            match within(answer, query.fetch_all(connection)).await {
                Ok(rows) => outcome(&rows).unwrap_or_else(Sent::InDoubt),
                Err(error) if check == Check::Trusted && was_known(&error) => Sent::Distrusted,
                Err(error) if is_certain(&error) => Sent::Refused(error),
                Err(error) if batch.writes => Sent::InDoubt(error),
                Err(error) => Sent::Refused(error),
            }
        })
    }

    fn text(&mut self, batch: &Batch, check: Check, rides: &[Ride]) -> Text {
        let key = (Parts::of(batch, check), rides.iter().map(|ride| ride.view).collect::<Vec<_>>());
        if let Some(text) = self.texts.get(&key) {
            return text.clone();
        }
        let views: Vec<_> = key.1.iter().filter_map(|view| self.views.get(*view)).collect();
        let (sql, parameters) = key.0.text(&views.iter().map(|sql| &***sql).collect::<Vec<_>>());
        let text = Text { sql: sql.into(), parameters: parameters.into() };
        self.texts.insert(key, text.clone());
        text
    }
}

/// Whether the database itself said that nothing was written. A connection that it ends (FATAL) may have
/// committed before.
fn is_certain(error: &sqlx::Error) -> bool {
    match error.as_database_error().and_then(|error| error.try_downcast_ref::<PgDatabaseError>()) {
        Some(error) => matches!(error.severity(), PgSeverity::Error),
        // Values that could not even be encoded were never sent.
        None => matches!(error, sqlx::Error::Encode(_)),
    }
}

/// Whether a stream or a key was there that should not be.
fn was_known(error: &sqlx::Error) -> bool {
    let constraint = error.as_database_error().and_then(|error| error.constraint());
    constraint.is_some_and(|name| matches!(name, "log_stream_pkey" | "log_command_pkey"))
}

/// Deadlock, serialisation failure, lock time-out, or a partition that was attached while the rows were on their way into
/// the rest: nothing was written, and the next try may well be.
pub(crate) fn is_transient(error: &sqlx::Error) -> bool {
    let Some(error) = error.as_database_error() else { return false };
    // A check of a table has a name, a partition's range has none.
    let attached = |code: &str| code == "23514" && error.constraint().is_none();
    error
        .code()
        .is_some_and(|code| matches!(&*code, "40P01" | "40001" | "55P03") || attached(&code))
}

/// Whether a commit in the batch may be to blame, as opposed to the database being away.
pub(crate) fn is_refusal(error: &sqlx::Error) -> bool {
    // A row of a view that cannot be read belongs to a stream of one of them; nothing was sent yet.
    is_certain(error) || matches!(error, sqlx::Error::Decode(_) | sqlx::Error::ColumnDecode { .. })
}

type Bound<'q> = Query<'q, Postgres, PgArguments>;

fn bind<'q>(
    query: Bound<'q>,
    parameter: Parameter,
    expected: &Expected<'_>,
    batch: &'q Batch,
) -> Bound<'q> {
    use Parameter as P;
    let Batch { events, guards, keys, consumers, sessions, begun, grown, nodes, head, .. } = batch;
    let texts = |of: fn(&Stored) -> &str| -> Vec<&'q str> { events.iter().map(of).collect() };
    let bytes = |of: fn(&Stored) -> &[u8]| -> Vec<&'q [u8]> { events.iter().map(of).collect() };
    let numbers = |of: fn(&Stored) -> u64| -> Vec<i64> {
        events.iter().map(|event| bigint(of(event))).collect()
    };
    let asked = |guards: &'q [String], begun: &'q [String]| -> Vec<&'q str> {
        let begun = if expected.check == Check::Asked { begun } else { &[] };
        guards.iter().chain(begun).map(|text| &**text).collect()
    };
    match parameter {
        P::Position => query.bind(bigint(expected.before.position)),
        P::CommitNo => query.bind(bigint(expected.before.commit_no)),
        P::Turn => query.bind(expected.before.turn),
        P::Epoch => query.bind(expected.before.epoch),
        P::Layout => query.bind(expected.layout),
        P::NewPosition => query.bind(bigint(head.position)),
        P::NewChain => query.bind(&head.chain[..]),
        P::RecordedAt => query.bind(head.recorded_at),
        P::GuardKind => query.bind(asked(&guards.kind, &begun.kind)),
        P::GuardId => query.bind(asked(&guards.id, &begun.id)),
        P::GuardExpected => {
            let zero = if expected.check == Check::Asked { begun.kind.len() } else { 0 };
            let wanted = guards.expected.iter().copied().chain(iter::repeat_n(0, zero));
            query.bind(wanted.collect::<Vec<_>>())
        }
        P::KeyPrincipal => query.bind(&keys.principal),
        P::Key => query.bind(&keys.key),
        P::KeyRequestHash => query.bind(&keys.request_hash),
        P::KeyFirst => query.bind(&keys.first),
        P::KeyLast => query.bind(&keys.last),
        P::KeyAnswer => query.bind(&keys.answer),
        P::KeyExpiresAt => query.bind(batch.keys_expire_at),
        P::ProbePrincipal => query.bind(&batch.probes.principal),
        P::ProbeKey => query.bind(&batch.probes.key),
        P::ConsumerName => query.bind(&consumers.name),
        P::ConsumerVersion => query.bind(&consumers.version),
        P::ConsumerShard => query.bind(&consumers.shard),
        P::ConsumerExpected => query.bind(&consumers.expected),
        P::ConsumerOwnerEpoch => query.bind(&consumers.owner_epoch),
        P::ConsumerTo => query.bind(&consumers.to),
        P::SessionRunner => query.bind(&sessions.runner),
        P::SessionServer => query.bind(&sessions.server),
        P::SessionServerEpoch => query.bind(&sessions.server_epoch),
        P::EventPosition => query.bind(numbers(|event| event.position)),
        P::EventId => {
            let ids = events.iter().map(|event| Uuid::from_bytes(event.event_id.to_bytes()));
            query.bind(ids.collect::<Vec<_>>())
        }
        P::EventStreamKind => query.bind(texts(|event| &event.stream.aggregate_type)),
        P::EventStreamId => query.bind(texts(|event| &event.stream.aggregate_id)),
        P::EventSequence => query.bind(numbers(|event| event.sequence)),
        P::EventType => query.bind(texts(|event| &event.event_type)),
        P::EventVersion => query.bind(texts(|event| &event.event_version)),
        P::EventPayload => query.bind(texts(|event| &event.payload)),
        P::EventMetadata => query.bind(texts(|event| &event.metadata)),
        P::EventSalt => query.bind(bytes(|event| &event.salt)),
        P::EventLeaf => query.bind(bytes(|event| &event.leaf)),
        P::EventChain => query.bind(bytes(|event| &event.chain)),
        P::BegunKind => query.bind(&begun.kind),
        P::BegunId => query.bind(&begun.id),
        P::BegunVersion => query.bind(&begun.version),
        P::BegunLastPosition => query.bind(&begun.last_position),
        P::GrownKind => query.bind(&grown.kind),
        P::GrownId => query.bind(&grown.id),
        P::GrownVersion => query.bind(&grown.version),
        P::GrownLastPosition => query.bind(&grown.last_position),
        P::NodeLevel => {
            query.bind(nodes.iter().map(|(node, _)| i32::from(node.level)).collect::<Vec<_>>())
        }
        P::NodeIndex => {
            query.bind(nodes.iter().map(|(node, _)| bigint(node.index)).collect::<Vec<_>>())
        }
        P::NodeHash => query.bind(nodes.iter().map(|(_, hash)| &hash[..]).collect::<Vec<_>>()),
    }
}

fn bind_column(query: Bound<'_>, column: Column) -> Bound<'_> {
    match column {
        Column::Text(values) => query.bind(values),
        Column::Bigint(values) => query.bind(values),
        Column::Integer(values) => query.bind(values),
        Column::Boolean(values) => query.bind(values),
        Column::Bytes(values) => query.bind(values),
        Column::Time(values) => query.bind(values),
    }
}

/// What the statement's one row says.
fn outcome(rows: &[PgRow]) -> Result<Sent, sqlx::Error> {
    let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
    let (moved, culprits) = (row.try_get::<i64, _>("moved")? == 1, culprits(row)?);
    let held = culprits.stale.is_empty() && culprits.sessions.is_empty();
    Ok(match (moved, culprits.is_empty()) {
        (true, _) if held => Sent::Committed(culprits),
        (false, true) => Sent::Moved,
        (true | false, _) => Sent::Culprits(culprits),
    })
}

fn culprits(row: &PgRow) -> Result<Culprits, sqlx::Error> {
    fn list<T: serde::de::DeserializeOwned>(
        row: &PgRow,
        name: &str,
    ) -> Result<Vec<T>, sqlx::Error> {
        match row.try_get::<Option<String>, _>(name)? {
            None => Ok(Vec::new()),
            Some(text) => {
                serde_json::from_str(&text).map_err(|error| sqlx::Error::Decode(error.into()))
            }
        }
    }
    let known = list::<Known>(row, "known")?.into_iter();
    let stale = list::<(String, String, u64)>(row, "stale")?.into_iter();
    Ok(Culprits {
        stale: stale.map(|(kind, id, version)| ((kind, id), version)).collect(),
        known: known.map(|one| ((one.principal.clone(), one.key.clone()), one)).collect(),
        consumers: list(row, "consumers")?.into_iter().collect(),
        sessions: list(row, "sessions")?.into_iter().collect(),
    })
}
