//! Converts the history between two points, with the names of principals.
use std::collections::HashMap;

use domain::{actor::Actor, ids::PrincipalId};
use projections::history::{
    ComponentHistory, EventSummary, Intervention, JobHistory, RunHistory, Version,
};
use schemas::control::history::{
    ComponentChange, DeployedVersion, EventSummary, Intervention, JobActivity, RunActivity,
};

use super::word;

/// Converter that knows the names of the principals.
pub struct HistoryConverter<'a> {
    /// Current names.
    pub names: &'a HashMap<PrincipalId, String>,
}

impl HistoryConverter<'_> {
    /// Converts the history of a run.
    pub fn run(&self, run: RunHistory) -> RunActivity {
        let request = run.request;
        let by = request.as_ref().map_or(&Actor::System, |request| &request.by);
        RunActivity {
            run: run.run,
            requested_by: by.to_string(),
            requested_by_name: self.name(by),
            kind: request.as_ref().map(|request| word(&request.kind)).unwrap_or_default(),
            config_version: request.as_ref().map(|request| request.config_version),
            reason: request.and_then(|request| request.reason),
            requested_at: run.requested_at,
            outcome: run.outcome.as_ref().map(word),
            ended_at: run.ended_at,
            interventions: run.interventions.into_iter().map(|said| self.word(said)).collect(),
            jobs: run.jobs.into_iter().map(job).collect(),
            components: run.components.into_iter().map(component).collect(),
            events: run.events.into_iter().map(|event| self.event(event)).collect(),
        }
    }

    /// Converts one event.
    pub fn event(&self, event: EventSummary) -> EventSummary {
        EventSummary {
            position: event.position,
            recorded_at: event.at,
            event_type: event.event_type.into(),
            stream: event.stream,
            actor_name: self.name(&event.actor),
            actor: event.actor.to_string(),
            reason: event.reason,
        }
    }

    fn word(&self, said: Intervention) -> Intervention {
        Intervention {
            kind: said.said.as_str().into(),
            step_name: said.of,
            digest: said.digest,
            by_name: self.name(&said.by),
            by: said.by.to_string(),
            reason: said.reason,
            at: said.at,
            position: said.position,
        }
    }

    fn name(&self, actor: &Actor) -> Option<String> {
        match actor {
            Actor::Principal(id) => self.names.get(id).cloned(),
            Actor::Runner(_) | Actor::Policy(_) | Actor::Timer(_) | Actor::System => None,
        }
    }
}

fn job(told: JobHistory) -> JobActivity {
    JobActivity {
        job: told.job,
        kind: told.kind.map(|kind| kind.as_str().to_owned()).unwrap_or_default(),
        name: told.target,
        runner: told.runner,
        attempts: told.attempts,
        outcome: told.outcome.map(|outcome| outcome.to_string()),
        detail: told.detail,
        queued_at: told.queued_at,
        ended_at: told.ended_at,
    }
}

fn component(told: ComponentHistory) -> ComponentChange {
    let version = |Version { config_version, build }| DeployedVersion { config_version, build };
    ComponentChange {
        name: told.name,
        before: told.before.map(version),
        after: told.after.map(version),
        incomplete: told.incomplete,
    }
}
