//! Recorded events of all aggregates, decoded from the strings that the log stores.
use std::{fmt, str::FromStr};

use serde::Deserialize;

use crate::{
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
    plugin::{Plugin, PluginEvent},
    run::{Run, RunEvent},
    runner::{Runner, RunnerEvent},
    stream::StreamId,
    subject::{Subject, SubjectEvent, SubjectId},
    upcast,
    webhook::{Webhook, WebhookEvent},
};

/// Event with the id of its aggregate.
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
    Plugin(String, PluginEvent),
    Run(RunId, RunEvent),
    Runner(RunnerId, RunnerEvent),
    Subject(SubjectId, SubjectEvent),
    Webhook(String, WebhookEvent),
}

/// Event with its position, time and actor.
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
    pub domain_event: DomainEvent,
}

impl RecordedEvent {
    /// Type of the aggregate.
    pub fn aggregate(&self) -> &'static str {
        match &self.domain_event {
            DomainEvent::Access(..) => Access::NAME,
            DomainEvent::App(..) => App::NAME,
            DomainEvent::Build(..) => Build::NAME,
            DomainEvent::Component(..) => Component::NAME,
            DomainEvent::Enrolment(..) => Enrolment::NAME,
            DomainEvent::Install(..) => Install::NAME,
            DomainEvent::Job(..) => Job::NAME,
            DomainEvent::Name(..) => Name::NAME,
            DomainEvent::Plugin(..) => Plugin::NAME,
            DomainEvent::Run(..) => Run::NAME,
            DomainEvent::Runner(..) => Runner::NAME,
            DomainEvent::Subject(..) => Subject::NAME,
            DomainEvent::Webhook(..) => Webhook::NAME,
        }
    }

    pub fn stream(&self) -> StreamId {
        let id = match &self.domain_event {
            DomainEvent::Access(id, _) => id.to_string(),
            DomainEvent::App(id, _) => id.to_string(),
            DomainEvent::Build(id, _) => id.to_string(),
            DomainEvent::Component(id, _) => id.to_string(),
            DomainEvent::Enrolment(id, _) => id.to_string(),
            DomainEvent::Install(id, _) => id.to_string(),
            DomainEvent::Job(id, _) => id.to_string(),
            DomainEvent::Name(id, _) => id.clone(),
            DomainEvent::Plugin(id, _) => id.clone(),
            DomainEvent::Run(id, _) => id.to_string(),
            DomainEvent::Runner(id, _) => id.to_string(),
            DomainEvent::Subject(id, _) => id.to_string(),
            DomainEvent::Webhook(id, _) => id.clone(),
        };
        StreamId::new(self.aggregate(), id)
    }

    /// Returns the event type of the current version, in the form `aggregate.verb_past`.
    pub fn event_type(&self) -> &'static str {
        match &self.domain_event {
            DomainEvent::Access(_, event) => event.name(),
            DomainEvent::App(_, event) => event.name(),
            DomainEvent::Build(_, event) => event.name(),
            DomainEvent::Component(_, event) => event.name(),
            DomainEvent::Enrolment(_, event) => event.name(),
            DomainEvent::Install(_, event) => event.name(),
            DomainEvent::Job(_, event) => event.name(),
            DomainEvent::Name(_, event) => event.name(),
            DomainEvent::Plugin(_, event) => event.name(),
            DomainEvent::Run(_, event) => event.name(),
            DomainEvent::Runner(_, event) => event.name(),
            DomainEvent::Subject(_, event) => event.name(),
            DomainEvent::Webhook(_, event) => event.name(),
        }
    }
}

/// Event before its decoding, from a row, an archive or a bundle.
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
    /// Event type, in the form `aggregate.verb_past`.
    pub event_type: &'a str,
    /// Version of the payload, a number.
    pub version: &'a str,
    /// JSON. Encrypted fields in it read `[encrypted]` unless they were decrypted.
    pub payload: &'a str,
    /// JSON object that contains the actor.
    pub metadata: &'a str,
}

/// Event that this program cannot decode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot decode the event at position {position}: {what}")]
pub struct DecodeError {
    /// Index in the log.
    pub position: u64,
    /// Event type, version and reason.
    pub what: String,
}

/// Metadata of an event, without the members that only the log reads.
#[derive(Deserialize)]
struct Metadata {
    actor: Actor,
}

impl RawEvent<'_> {
    /// Decodes the event without decryption of its payload.
    ///
    /// # Errors
    /// [`DecodeError`] if this program cannot decode the event.
    pub fn decode(self) -> Result<Vec<RecordedEvent>, DecodeError> {
        let mut events = vec![];
        self.decode_into(&mut events)?;
        Ok(events)
    }

    /// Decodes the event as [`RawEvent::decode`] does, and appends the result.
    ///
    /// # Errors
    /// [`DecodeError`] if this program does not know the event.
    pub fn decode_into(self, events: &mut Vec<RecordedEvent>) -> Result<(), DecodeError> {
        match self.aggregate {
            Access::NAME => self.decode_as(DomainEvent::Access, events),
            App::NAME => self.decode_as(DomainEvent::App, events),
            Build::NAME => self.decode_as(DomainEvent::Build, events),
            Component::NAME => self.decode_as(DomainEvent::Component, events),
            Enrolment::NAME => self.decode_as(DomainEvent::Enrolment, events),
            Install::NAME => self.decode_as(DomainEvent::Install, events),
            Job::NAME => self.decode_as(DomainEvent::Job, events),
            Name::NAME => self.decode_as(DomainEvent::Name, events),
            Plugin::NAME => self.decode_as(DomainEvent::Plugin, events),
            Run::NAME => self.decode_as(DomainEvent::Run, events),
            Runner::NAME => self.decode_as(DomainEvent::Runner, events),
            Subject::NAME => self.decode_as(DomainEvent::Subject, events),
            Webhook::NAME => self.decode_as(DomainEvent::Webhook, events),
            other => Err(self.error(&format!("unknown aggregate type {other}"))),
        }
    }

    fn decode_as<I: FromStr + Clone, E: Event>(
        &self,
        of: fn(I, E) -> DomainEvent,
        events: &mut Vec<RecordedEvent>,
    ) -> Result<(), DecodeError>
    where
        I::Err: fmt::Display,
    {
        let id: I = self.id.parse().map_err(|error: I::Err| self.error(&error))?;
        let Metadata { actor } =
            serde_json::from_str(self.metadata).map_err(|error| self.error(&error))?;
        let decoded: Vec<E> = upcast::read(self.event_type, self.version, self.payload)
            .map_err(|error| self.error(&error))?;
        let RawEvent { position, sequence, at, .. } = *self;
        events.extend(decoded.into_iter().map(|event| {
            let (actor, domain_event) = (actor.clone(), of(id.clone(), event));
            RecordedEvent { position, sequence, at, actor, domain_event }
        }));
        Ok(())
    }

    /// Returns an error for this event, with its position, type and version.
    pub fn error(&self, reason: &dyn fmt::Display) -> DecodeError {
        let what = format!("{} version {}: {reason}", self.event_type, self.version);
        DecodeError { position: self.position, what }
    }
}

#[cfg(test)]
mod tests;
