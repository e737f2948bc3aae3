//! Decodes each event once for all projections.
use std::{str::FromStr, sync::Arc};

use domain::{
    access::{Access, AccessEvent},
    actor::Actor,
    app::{App, AppEvent},
    build::{Build, BuildEvent},
    component::{Component, ComponentEvent},
    decider::{Decider, Event, Timestamp},
    enrolment::{Enrolment, EnrolmentEvent},
    ids::{AppId, BuildId, ComponentId, InstallId, JobId, PrincipalId, RunId, RunnerId, TokenId},
    install::{Install, InstallEvent},
    job::{Job, JobEvent},
    name::{Name, NameEvent},
    run::{Run, RunEvent},
    runner::{Runner, RunnerEvent},
    subject::{Subject, SubjectEvent, SubjectId},
    upcast,
};
use event_log::{
    LogError, Source, StoredEvent, StreamId,
    archive::FLOOR,
    encryption::{EventContext, Keys},
    read::floor_of,
};
use serde::Deserialize;
use sqlx::{PgConnection, Row, postgres::PgRow};

/// An event with the id of its aggregate.
#[derive(Debug, Clone, PartialEq)]
pub enum DomainEvent {
    Access(PrincipalId, AccessEvent),
    App(AppId, AppEvent),
    Build(BuildId, BuildEvent),
    Component(ComponentId, ComponentEvent),
    Enrolment(TokenId, EnrolmentEvent),
    Install(InstallId, InstallEvent),
    Job(JobId, JobEvent),
    Name(String, NameEvent),
    Run(RunId, RunEvent),
    Runner(RunnerId, RunnerEvent),
    Subject(SubjectId, SubjectEvent),
}

/// An event with its position, time and actor.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedEvent {
    /// Index in the whole log, from 1.
    pub position: u64,
    /// Index in the stream, from 1.
    pub sequence: u64,
    /// Time at which the server recorded the event.
    pub at: Timestamp,
    /// Actor that caused the event.
    pub actor: Actor,
    pub fact: DomainEvent,
}

impl RecordedEvent {
    /// Decodes a stored event. Upcasting an event of an older version can return several events.
    ///
    /// # Errors
    /// [`LogError::Damaged`] if this program cannot decode the event.
    pub fn read(stored: &StoredEvent) -> Result<Vec<RecordedEvent>, LogError> {
        let mut decoded = vec![];
        RawEvent { payload: stored.readable()?, ..RawEvent::of(stored) }.read(&mut decoded)?;
        Ok(decoded)
    }

    /// Decodes an event without decrypting it: encrypted fields read `[encrypted]`.
    ///
    /// # Errors
    /// [`LogError::Damaged`] if this program does not know the event.
    pub fn read_encrypted(stored: &StoredEvent) -> Result<Vec<RecordedEvent>, LogError> {
        RawEvent::of(stored).decode()
    }

    pub fn aggregate(&self) -> &'static str {
        match &self.fact {
            DomainEvent::Access(..) => Access::NAME,
            DomainEvent::App(..) => App::NAME,
            DomainEvent::Build(..) => Build::NAME,
            DomainEvent::Component(..) => Component::NAME,
            DomainEvent::Enrolment(..) => Enrolment::NAME,
            DomainEvent::Install(..) => Install::NAME,
            DomainEvent::Job(..) => Job::NAME,
            DomainEvent::Name(..) => Name::NAME,
            DomainEvent::Run(..) => Run::NAME,
            DomainEvent::Runner(..) => Runner::NAME,
            DomainEvent::Subject(..) => Subject::NAME,
        }
    }

    pub fn stream(&self) -> StreamId {
        let id = match &self.fact {
            DomainEvent::Access(id, _) => id.to_string(),
            DomainEvent::App(id, _) => id.to_string(),
            DomainEvent::Build(id, _) => id.to_string(),
            DomainEvent::Component(id, _) => id.to_string(),
            DomainEvent::Enrolment(id, _) => id.to_string(),
            DomainEvent::Install(id, _) => id.to_string(),
            DomainEvent::Job(id, _) => id.to_string(),
            DomainEvent::Name(id, _) => id.clone(),
            DomainEvent::Run(id, _) => id.to_string(),
            DomainEvent::Runner(id, _) => id.to_string(),
            DomainEvent::Subject(id, _) => id.to_string(),
        };
        StreamId::new(self.aggregate(), id)
    }

    /// Event type of the current version, `aggregate.verb_past`.
    pub fn event_type(&self) -> &'static str {
        match &self.fact {
            DomainEvent::Access(_, event) => event.name(),
            DomainEvent::App(_, event) => event.name(),
            DomainEvent::Build(_, event) => event.name(),
            DomainEvent::Component(_, event) => event.name(),
            DomainEvent::Enrolment(_, event) => event.name(),
            DomainEvent::Install(_, event) => event.name(),
            DomainEvent::Job(_, event) => event.name(),
            DomainEvent::Name(_, event) => event.name(),
            DomainEvent::Run(_, event) => event.name(),
            DomainEvent::Runner(_, event) => event.name(),
            DomainEvent::Subject(_, event) => event.name(),
        }
    }
}

/// Reads the events of these kinds of aggregates after one position and up to another, without the
/// columns that only proofs need. Positions are dense, so a range of positions is a page.
pub(crate) async fn page(
    connection: &mut PgConnection,
    source: &Source,
    range: (u64, u64),
    aggregates: &[&str],
) -> Result<Vec<RecordedEvent>, LogError> {
    let events = rows(&mut *connection, source, range, aggregates).await?;
    let keys = keys(connection, source, &events).await?;
    read(&events, &keys, |_, _| true)
}

/// Loads the keys that decrypt these events.
pub(crate) async fn keys(
    connection: &mut PgConnection,
    source: &Source,
    events: &[EncodedEvent],
) -> Result<Keys, sqlx::Error> {
    let payloads = events.iter().map(payload).collect::<Result<Vec<&str>, _>>()?;
    source.keys.decryption_keys(connection, payloads).await
}

/// Reads the events as [`page`] does, without decoding them. Decoding takes longer than reading,
/// and other workers can do it.
pub(crate) async fn rows(
    connection: &mut PgConnection,
    source: &Source,
    (after, last): (u64, u64),
    aggregates: &[&str],
) -> Result<Vec<EncodedEvent>, LogError> {
    let sql = format!(
        "select {COLUMNS}, {FLOOR} as floor from log_event \
         where position > $1 and position <= $2 and aggregate_type = any($3) order by position"
    );
    let rows = sqlx::query(&sql)
        .bind(bigint(after))
        .bind(bigint(last))
        .bind(aggregates)
        .fetch_all(&mut *connection)
        .await?;
    let floor = floor_of(connection, &rows).await?;
    let mut events = vec![];
    if floor > after {
        let archived =
            source.archives.events(connection, (after, floor.min(last)), u32::MAX).await?;
        let is_selected =
            |event: &Arc<StoredEvent>| aggregates.contains(&&*event.stream.aggregate_type);
        events.extend(archived.into_iter().filter(is_selected).map(EncodedEvent::Archived));
    }
    events.extend(rows.into_iter().map(EncodedEvent::Row));
    Ok(events)
}

/// An event that is not decoded yet.
pub(crate) enum EncodedEvent {
    /// A row of the event table.
    Row(PgRow),
    /// An event that only an archive has.
    Archived(Arc<StoredEvent>),
}

/// Columns that a projection needs, in the order in which they are read.
const COLUMNS: &str = "position, sequence, recorded_at, aggregate_type, aggregate_id, event_type, \
    event_version, payload::text, metadata::text";

/// Position as the database stores it. No log comes close to 2^63 events.
fn bigint(position: u64) -> i64 {
    i64::try_from(position).unwrap_or(i64::MAX)
}

/// Id of the event's stream.
pub(crate) fn stream(event: &EncodedEvent) -> Result<&str, sqlx::Error> {
    match event {
        EncodedEvent::Row(row) => row.try_get(4),
        EncodedEvent::Archived(event) => Ok(&event.stream.aggregate_id),
    }
}

fn payload(event: &EncodedEvent) -> Result<&str, sqlx::Error> {
    match event {
        EncodedEvent::Row(row) => row.try_get(7),
        EncodedEvent::Archived(event) => Ok(&event.payload),
    }
}

/// Decodes the events whose stream and position `is_selected` accepts.
pub(crate) fn read<'r>(
    events: impl IntoIterator<Item = &'r EncodedEvent>,
    keys: &Keys,
    is_selected: impl Fn(&str, u64) -> bool,
) -> Result<Vec<RecordedEvent>, LogError> {
    let events = events.into_iter();
    let mut decoded = Vec::with_capacity(events.size_hint().0);
    for event in events {
        if is_selected(stream(event)?, position_and_sequence(event)?.0) {
            let mut raw = match event {
                EncodedEvent::Row(row) => RawEvent::of_row(row)?,
                EncodedEvent::Archived(event) => RawEvent::of(event),
            };
            let payload =
                keys.open(raw.payload, raw.context()).map_err(|why| raw.unreadable(&why))?;
            raw.payload = payload.as_deref().unwrap_or(raw.payload);
            raw.read(&mut decoded)?;
        }
    }
    Ok(decoded)
}

/// Position and sequence of an event.
fn position_and_sequence(event: &EncodedEvent) -> Result<(u64, u64), sqlx::Error> {
    match event {
        EncodedEvent::Row(row) => Ok((number(row.try_get(0)?), number(row.try_get(1)?))),
        EncodedEvent::Archived(event) => Ok((event.position, event.sequence)),
    }
}

fn number(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// An event before it is decoded, from a row, an archive or a bundle.
#[derive(Debug, Clone, Copy)]
pub struct RawEvent<'a> {
    /// Index in the log, from 1.
    pub position: u64,
    /// Index in the stream, from 1.
    pub sequence: u64,
    /// Time at which the server recorded the event.
    pub at: Timestamp,
    /// Aggregate type.
    pub aggregate: &'a str,
    /// Aggregate id.
    pub id: &'a str,
    /// `aggregate.verb_past`.
    pub event_type: &'a str,
    /// Version of the payload, a number.
    pub version: &'a str,
    /// JSON. Encrypted fields in it read `[encrypted]` unless they were decrypted.
    pub payload: &'a str,
    /// JSON object that contains the actor.
    pub metadata: &'a str,
}

/// Part of the metadata that projections read: the actor.
#[derive(Deserialize)]
struct Metadata {
    actor: Actor,
}

impl<'a> RawEvent<'a> {
    /// Wraps a stored event. Its encrypted fields stay encrypted.
    fn of(stored: &'a StoredEvent) -> RawEvent<'a> {
        RawEvent {
            position: stored.position,
            sequence: stored.sequence,
            at: stored.recorded_at,
            aggregate: &stored.stream.aggregate_type,
            id: &stored.stream.aggregate_id,
            event_type: &stored.event_type,
            version: &stored.event_version,
            payload: &stored.payload,
            metadata: &stored.metadata,
        }
    }

    fn of_row(row: &'a PgRow) -> Result<RawEvent<'a>, sqlx::Error> {
        Ok(RawEvent {
            position: number(row.try_get(0)?),
            sequence: number(row.try_get(1)?),
            at: row.try_get(2)?,
            aggregate: row.try_get(3)?,
            id: row.try_get(4)?,
            event_type: row.try_get(5)?,
            version: row.try_get(6)?,
            payload: row.try_get(7)?,
            metadata: row.try_get(8)?,
        })
    }

    fn context(&self) -> EventContext<'a> {
        let RawEvent { aggregate, id, sequence, event_type, .. } = *self;
        EventContext { aggregate_type: aggregate, aggregate_id: id, sequence, event_type }
    }

    /// Decodes the event with the payload as it is: nothing is decrypted.
    ///
    /// # Errors
    /// [`LogError::Damaged`] if this program does not know the event.
    pub fn decode(self) -> Result<Vec<RecordedEvent>, LogError> {
        let mut decoded = vec![];
        self.read(&mut decoded)?;
        Ok(decoded)
    }

    fn read(self, decoded: &mut Vec<RecordedEvent>) -> Result<(), LogError> {
        match self.aggregate {
            Access::NAME => self.decode_as(DomainEvent::Access, decoded),
            App::NAME => self.decode_as(DomainEvent::App, decoded),
            Build::NAME => self.decode_as(DomainEvent::Build, decoded),
            Component::NAME => self.decode_as(DomainEvent::Component, decoded),
            Enrolment::NAME => self.decode_as(DomainEvent::Enrolment, decoded),
            Install::NAME => self.decode_as(DomainEvent::Install, decoded),
            Job::NAME => self.decode_as(DomainEvent::Job, decoded),
            Name::NAME => self.decode_as(DomainEvent::Name, decoded),
            Run::NAME => self.decode_as(DomainEvent::Run, decoded),
            Runner::NAME => self.decode_as(DomainEvent::Runner, decoded),
            Subject::NAME => self.decode_as(DomainEvent::Subject, decoded),
            other => Err(self.unreadable(&format!("unknown aggregate type {other}"))),
        }
    }

    fn decode_as<I: FromStr + Clone, E: Event>(
        &self,
        of: fn(I, E) -> DomainEvent,
        decoded: &mut Vec<RecordedEvent>,
    ) -> Result<(), LogError>
    where
        I::Err: std::fmt::Display,
    {
        let id: I = self.id.parse().map_err(|error: I::Err| self.unreadable(&error))?;
        let Metadata { actor } =
            serde_json::from_str(self.metadata).map_err(|error| self.unreadable(&error))?;
        let events: Vec<E> = upcast::read(self.event_type, self.version, self.payload)
            .map_err(|error| self.unreadable(&error))?;
        let RawEvent { position, sequence, at, .. } = *self;
        decoded.extend(events.into_iter().map(|event| {
            let (actor, fact) = (actor.clone(), of(id.clone(), event));
            RecordedEvent { position, sequence, at, actor, fact }
        }));
        Ok(())
    }

    fn unreadable(&self, error: &dyn std::fmt::Display) -> LogError {
        let what = format!("{} version {}: {error}", self.event_type, self.version);
        LogError::Damaged { position: self.position, what }
    }
}

pub(crate) mod streams;
#[cfg(test)]
mod tests;
