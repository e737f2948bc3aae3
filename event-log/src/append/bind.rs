//! The values of the one statement: lists, or where every part has one row the rows themselves.
use std::iter;

use sqlx::{
    Arguments, Encode, Postgres, Type,
    error::BoxDynError,
    postgres::{PgArguments, PgHasArrayType},
};
use uuid::Uuid;

use super::{
    batch::Batch,
    head::Head,
    sql::{Check, Parameter},
};
use crate::{Column, Stored, stored::bigint};

/// What the head must be, and what this program is.
pub(super) struct Expected<'a> {
    pub before: &'a Head,
    pub layout: i32,
    pub check: Check,
}

/// The values that the statement has so far, as the database wants them.
pub(super) struct Bound {
    /// An error: one of them cannot be written so.
    values: Result<PgArguments, BoxDynError>,
    /// Whether the statement takes values instead of lists.
    single: bool,
}

impl Bound {
    pub(super) fn none(single: bool) -> Bound {
        Bound { values: Ok(PgArguments::default()), single }
    }

    pub(super) fn values(self) -> Result<PgArguments, sqlx::Error> {
        self.values.map_err(sqlx::Error::Encode)
    }

    pub(super) fn bind(
        self,
        parameter: Parameter,
        expected: &Expected<'_>,
        batch: &Batch,
    ) -> Bound {
        use Parameter as P;
        let Batch { events, guards, keys, consumers, sessions, begun, grown, nodes, head, .. } =
            batch;
        let texts = |of: fn(&Stored) -> &str| -> Vec<&str> { events.iter().map(of).collect() };
        let bytes = |of: fn(&Stored) -> &[u8]| -> Vec<&[u8]> { events.iter().map(of).collect() };
        let numbers = |of: fn(&Stored) -> u64| -> Vec<i64> {
            events.iter().map(|event| bigint(of(event))).collect()
        };
        let asks = expected.check == Check::Asked;
        let begins = if asks { begun.kind.len() } else { 0 };
        match parameter {
            P::Position => self.value(bigint(expected.before.position)),
            P::CommitNo => self.value(bigint(expected.before.commit_no)),
            P::Turn => self.value(expected.before.turn),
            P::Epoch => self.value(expected.before.epoch),
            P::Layout => self.value(expected.layout),
            P::NewPosition => self.value(bigint(head.position)),
            P::NewChain => self.value(&head.chain[..]),
            P::RecordedAt => self.value(head.recorded_at),
            P::GuardKind => self
                .list(guards.kind.iter().chain(begun.kind.iter().take(begins)).map(|text| &**text)),
            P::GuardId => {
                self.list(guards.id.iter().chain(begun.id.iter().take(begins)).map(|text| &**text))
            }
            P::GuardExpected => {
                self.list(guards.expected.iter().copied().chain(iter::repeat_n(0, begins)))
            }
            P::KeyPrincipal => self.list(keys.principal.iter().map(|text| &**text)),
            P::Key => self.list(keys.key.iter().map(|text| &**text)),
            P::KeyRequestHash => self.list(keys.request_hash.iter().map(|hash| &hash[..])),
            P::KeyFirst => self.list(keys.first.iter().copied()),
            P::KeyLast => self.list(keys.last.iter().copied()),
            P::KeyAnswer => self.nullable(keys.answer.iter().map(Option::as_deref)),
            P::KeyExpiresAt => self.value(batch.keys_expire_at),
            P::ProbePrincipal => self.list(batch.probes.principal.iter().map(|text| &**text)),
            P::ProbeKey => self.list(batch.probes.key.iter().map(|text| &**text)),
            P::ConsumerName => self.list(consumers.name.iter().map(|text| &**text)),
            P::ConsumerVersion => self.list(consumers.version.iter().copied()),
            P::ConsumerShard => self.list(consumers.shard.iter().copied()),
            P::ConsumerExpected => self.list(consumers.expected.iter().copied()),
            P::ConsumerOwnerEpoch => self.list(consumers.owner_epoch.iter().copied()),
            P::SessionRunner => self.list(sessions.runner.iter().map(|text| &**text)),
            P::SessionServer => self.list(sessions.server.iter().map(|text| &**text)),
            P::SessionServerEpoch => self.list(sessions.server_epoch.iter().copied()),
            P::EventPosition => self.list(numbers(|event| event.position)),
            P::EventId => {
                let ids = events.iter().map(|event| Uuid::from_bytes(event.event_id.to_bytes()));
                self.list(ids)
            }
            P::EventStreamKind => self.list(texts(|event| &event.stream.aggregate_type)),
            P::EventStreamId => self.list(texts(|event| &event.stream.aggregate_id)),
            P::EventSequence => self.list(numbers(|event| event.sequence)),
            P::EventType => self.list(texts(|event| &event.event_type)),
            P::EventVersion => self.list(texts(|event| &event.event_version)),
            P::EventPayload => self.list(texts(|event| &event.payload)),
            P::EventMetadata => self.list(texts(|event| &event.metadata)),
            P::EventSalt => self.list(bytes(|event| &event.salt)),
            P::EventLeaf => self.list(bytes(|event| &event.leaf)),
            P::EventChain => self.list(bytes(|event| &event.chain)),
            P::BegunKind => self.list(begun.kind.iter().map(|text| &**text)),
            P::BegunId => self.list(begun.id.iter().map(|text| &**text)),
            P::BegunVersion => self.list(begun.version.iter().copied()),
            P::BegunLastPosition => self.list(begun.last_position.iter().copied()),
            P::GrownKind => self.list(grown.kind.iter().map(|text| &**text)),
            P::GrownId => self.list(grown.id.iter().map(|text| &**text)),
            P::GrownVersion => self.list(grown.version.iter().copied()),
            P::GrownLastPosition => self.list(grown.last_position.iter().copied()),
            P::NodeLevel => self.list(nodes.iter().map(|(node, _)| i32::from(node.level))),
            P::NodeIndex => self.list(nodes.iter().map(|(node, _)| bigint(node.index))),
            P::NodeHash => self.list(nodes.iter().map(|(_, hash)| &hash[..])),
        }
    }

    /// A view's column.
    pub(super) fn column(self, column: Column) -> Bound {
        match column {
            Column::Text(values) => self.nullable(values),
            Column::Bigint(values) => self.nullable(values),
            Column::Integer(values) => self.nullable(values),
            Column::Boolean(values) => self.nullable(values),
            Column::Bytes(values) => self.nullable(values),
            Column::Time(values) => self.nullable(values),
        }
    }

    fn value<'q, T: 'q + Encode<'q, Postgres> + Type<Postgres>>(mut self, value: T) -> Bound {
        self.values = self.values.and_then(|mut values| values.add(value).map(|()| values));
        self
    }

    fn list<'q, T>(self, values: impl IntoIterator<Item = T>) -> Bound
    where
        T: 'q + Encode<'q, Postgres> + Type<Postgres> + PgHasArrayType,
    {
        self.nullable(values.into_iter().map(Some))
    }

    fn nullable<'q, T>(self, values: impl IntoIterator<Item = Option<T>>) -> Bound
    where
        T: 'q + Encode<'q, Postgres> + Type<Postgres> + PgHasArrayType,
    {
        let mut values = values.into_iter();
        match self.single {
            true => self.value(values.next().flatten()),
            false => self.value(values.collect::<Vec<_>>()),
        }
    }
}
