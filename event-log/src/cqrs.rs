//! Adapter for `cqrs-es`, for programs that use this library or migrate from or to it.
//!
//! - An aggregate of `cqrs-es` runs on the log: [`EventLog`] is a `cqrs_es::EventStore`. Replace
//!   `postgres_cqrs(pool, queries, services)` by `CqrsFramework::new(log, queries, services)`.
//! - Stock `postgres-es` reads the event table of the log: configure its repository with
//!   `with_tables("stead.log_event", "stead.log_snapshot")`, and its store with `new_event_store`.
//!   Writes of `postgres-es` fail.
//! - A [`Decider`] runs in `cqrs-es`: [`Root`] is the aggregate, and [`CqrsEvent`] its event.
//!
//! `examples/cqrs_es.rs` is a complete program, and `docs/cqrs-es.md` lists the requirements on
//! events and the limits. Stead itself uses no store, snapshot, view or replay of `cqrs-es`.
use std::collections::HashMap;

use cqrs_es::{
    Aggregate, AggregateError, DomainEvent, EventEnvelope, EventStore, event_sink::EventSink,
    persist::EventStoreAggregateContext,
};
use domain::{
    actor::Actor,
    decider::{Decider, Event, Timestamp},
};
use serde::{Deserialize, Serialize};

use crate::{
    AppendError, Commit, EventLog, LogError, NewEvent, StoredEvent, StreamId, Write,
    encryption::is_encrypted, ids::new_ulid, load::check_sequence,
};

/// Event store of an aggregate. Every load reads the whole stream, without the cache of states.
impl<A: Aggregate> EventStore<A> for EventLog {
    type AC = EventStoreAggregateContext<A>;

    async fn load_events(
        &self,
        aggregate_id: &str,
    ) -> Result<Vec<EventEnvelope<A>>, AggregateError<A::Error>> {
        let stream = StreamId::new(A::TYPE, aggregate_id);
        let events = self.read_stream(&stream, 0).await.map_err(read_error::<A::Error>)?;
        let mut envelopes = Vec::with_capacity(events.len());
        for (event, version) in events.iter().zip(0..) {
            check_sequence(event, version).map_err(read_error::<A::Error>)?;
            envelopes.push(envelope(event)?);
        }
        Ok(envelopes)
    }

    async fn load_aggregate(
        &self,
        aggregate_id: &str,
    ) -> Result<EventStoreAggregateContext<A>, AggregateError<A::Error>> {
        let events = EventStore::<A>::load_events(self, aggregate_id).await?;
        let current_sequence = events.len();
        let mut aggregate = A::default();
        events.into_iter().for_each(|event| aggregate.apply(event.payload));
        let aggregate_id = aggregate_id.to_owned();
        Ok(EventStoreAggregateContext {
            aggregate_id,
            aggregate,
            current_sequence,
            current_snapshot: None,
        })
    }

    async fn commit(
        &self,
        events: Vec<A::Event>,
        context: EventStoreAggregateContext<A>,
        mut metadata: HashMap<String, String>,
    ) -> Result<Vec<EventEnvelope<A>>, AggregateError<A::Error>> {
        if events.is_empty() {
            return Ok(Vec::new());
        }
        let EventStoreAggregateContext { aggregate_id, current_sequence, .. } = context;
        metadata.entry("actor".into()).or_insert_with(|| Actor::System.to_string());
        metadata.entry("command_id".into()).or_insert_with(|| new_ulid().to_string());
        let meta = serde_json::to_value(&metadata)
            .and_then(serde_json::from_value)
            .map_err(|error| unexpected::<A::Error>(format!("invalid metadata: {error}")))?;
        let write = Write {
            stream: StreamId::new(A::TYPE, &*aggregate_id),
            expected: current_sequence as u64,
            events: events.iter().map(new_event::<A>).collect::<Result<_, _>>()?,
        };
        self.append(Commit::of(meta, vec![write])).await.map_err(append_error::<A::Error>)?;
        let envelopes = events.into_iter().zip(current_sequence + 1..);
        let envelopes = envelopes.map(|(payload, sequence)| EventEnvelope {
            aggregate_id: aggregate_id.clone(),
            sequence,
            payload,
            metadata: metadata.clone(),
        });
        Ok(envelopes.collect())
    }
}

fn new_event<A: Aggregate>(event: &A::Event) -> Result<NewEvent, AggregateError<A::Error>> {
    let (event_type, payload) = (event.event_type(), serde_json::to_string(event)?);
    // The log would accept an event with a member `encrypted`, treat it as encrypted, and never
    // decode it.
    if !payload.starts_with('{') || is_encrypted(&payload) {
        return Err(unexpected(format!(
            "cannot append {event_type}: its payload is not an object, or has the reserved member \
             `encrypted`; change its JSON form"
        )));
    }
    let event_version = event.event_version().into();
    Ok(NewEvent { event_type: event_type.into(), event_version, payload, customer: None })
}

fn envelope<A: Aggregate>(
    stored: &StoredEvent,
) -> Result<EventEnvelope<A>, AggregateError<A::Error>> {
    let damaged = |error: serde_json::Error| {
        AggregateError::<A::Error>::DeserializationError(stored.damaged(&error).into())
    };
    Ok(EventEnvelope {
        aggregate_id: stored.stream.aggregate_id.clone(),
        sequence: stored.sequence as usize,
        payload: serde_json::from_str(stored.readable().map_err(read_error::<A::Error>)?)
            .map_err(damaged)?,
        metadata: serde_json::from_str(&stored.metadata).map_err(damaged)?,
    })
}

fn read_error<E: std::error::Error>(error: LogError) -> AggregateError<E> {
    match error {
        LogError::Database(_) => AggregateError::DatabaseConnectionError(error.into()),
        LogError::NoLog
        | LogError::Encoding(_)
        | LogError::Format(_)
        | LogError::Damaged { .. }
        | LogError::Archived { .. }
        | LogError::WrappingKey(_)
        | LogError::Proof(_) => AggregateError::UnexpectedError(error.into()),
    }
}

fn append_error<E: std::error::Error>(error: AppendError) -> AggregateError<E> {
    match error {
        AppendError::Conflict { .. } => AggregateError::AggregateConflict,
        AppendError::Database(_) => AggregateError::DatabaseConnectionError(error.into()),
        AppendError::KeyUsed { .. }
        | AppendError::KeyMismatch
        | AppendError::ConsumerMoved { .. }
        | AppendError::SessionMoved { .. }
        | AppendError::Full { .. }
        | AppendError::Layout { .. }
        | AppendError::TooLarge { .. }
        | AppendError::Invalid(_)
        | AppendError::NotEncrypted(_)
        | AppendError::Closed => AggregateError::UnexpectedError(error.into()),
    }
}

fn unexpected<E: std::error::Error>(message: String) -> AggregateError<E> {
    AggregateError::UnexpectedError(message.into())
}

/// Adapts an [`Event`] to a `cqrs-es` event, with the same JSON and name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent, bound = "")]
pub struct CqrsEvent<E: Event>(pub E);

impl<E: Event> DomainEvent for CqrsEvent<E> {
    fn event_type(&self) -> String {
        self.0.name().into()
    }
    fn event_version(&self) -> String {
        self.0.version().into()
    }
}

/// Adapts a [`Decider`] to a `cqrs-es` aggregate.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent, bound = "")]
pub struct Root<D: Decider>(pub D);

impl<D: Decider> Aggregate for Root<D>
where
    D::Event: Unpin + 'static,
    D::Command: Sync + 'static,
{
    const TYPE: &'static str = D::NAME;
    type Command = D::Command;
    type Event = CqrsEvent<D::Event>;
    type Error = D::Error;
    type Services = Now;

    async fn handle(
        &mut self,
        command: D::Command,
        now: &Now,
        sink: &EventSink<Self>,
    ) -> Result<(), D::Error> {
        for event in self.0.decide(command, (now.0)())? {
            sink.write(CqrsEvent(event), self).await;
        }
        Ok(())
    }

    fn apply(&mut self, CqrsEvent(event): CqrsEvent<D::Event>) {
        self.0.evolve(event);
    }
}

/// The only source of time in decisions made through `cqrs-es`.
pub struct Now(pub fn() -> Timestamp);
