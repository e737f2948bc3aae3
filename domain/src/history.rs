//! History of an install between two positions, grouped by run: requests, interventions, jobs, and
//! changed components. It is derived from recorded events only.
mod builder;
mod components;
mod jobs;
mod model;
mod references;
#[cfg(test)]
mod tests;

use crate::{
    install::Install,
    recorded::{DomainEvent, RecordedEvent},
};

pub use builder::{admitted_run, build_history, started_job, summary};
pub use model::{
    ComponentHistory, EventSummary, History, Intervention, InterventionKind, JobHistory,
    RunHistory, Version,
};
pub use references::references;

/// Builds the history from all events of an install, its runs and jobs, ordered by position.
pub fn of_events(events: &[RecordedEvent]) -> History {
    let until = events.last().map_or(0, |event| event.position);
    History { complete_through: until, ..build_history(&Install::default(), 0, events) }
}

fn reason(domain_event: &DomainEvent) -> Option<String> {
    let payload = match domain_event {
        DomainEvent::Access(_, event) => serde_json::to_value(event),
        DomainEvent::App(_, event) => serde_json::to_value(event),
        DomainEvent::Build(_, event) => serde_json::to_value(event),
        DomainEvent::Component(_, event) => serde_json::to_value(event),
        DomainEvent::Enrolment(_, event) => serde_json::to_value(event),
        DomainEvent::Install(_, event) => serde_json::to_value(event),
        DomainEvent::Job(_, event) => serde_json::to_value(event),
        DomainEvent::Name(_, event) => serde_json::to_value(event),
        DomainEvent::Plugin(_, event) => serde_json::to_value(event),
        DomainEvent::Run(_, event) => serde_json::to_value(event),
        DomainEvent::Runner(_, event) => serde_json::to_value(event),
        DomainEvent::Subject(_, event) => serde_json::to_value(event),
        DomainEvent::Webhook(_, event) => serde_json::to_value(event),
    };
    payload.ok()?.get("reason")?.as_str().map(str::to_owned)
}
