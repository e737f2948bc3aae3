//! Converts recorded history to the wire format, and adds the names of principals.
use std::collections::HashMap;

use domain::{
    actor::Actor,
    history::{self as recorded, ComponentHistory, JobHistory, RunHistory, Version},
    ids::PrincipalId,
    run::RunKind,
};
use serde_json::Value;

use super::{
    ComponentChange, DeployedVersion, EventSummary, Intervention, JobActivity, RunActivity,
};

/// Converter that knows the names of the principals.
pub struct HistoryConverter<'a> {
    /// Current names of principals, by id.
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
            kind: request.as_ref().map(|request| run_kind(request.kind)).unwrap_or_default(),
            config_version: request.as_ref().map(|request| request.config_version),
            reason: request.and_then(|request| request.reason),
            requested_at: run.requested_at,
            outcome: run.outcome.map(|outcome| outcome.to_string()),
            ended_at: run.ended_at,
            interventions: run
                .interventions
                .into_iter()
                .map(|recorded| self.intervention(recorded))
                .collect(),
            jobs: run.jobs.into_iter().map(job).collect(),
            components: run.components.into_iter().map(component).collect(),
            events: run.events.into_iter().map(|event| self.event(event)).collect(),
        }
    }

    /// Converts one event.
    pub fn event(&self, event: recorded::EventSummary) -> EventSummary {
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

    fn intervention(&self, recorded: recorded::Intervention) -> Intervention {
        Intervention {
            kind: recorded.kind.as_str().into(),
            step_name: recorded.target,
            digest: recorded.digest,
            by_name: self.name(&recorded.by),
            by: recorded.by.to_string(),
            reason: recorded.reason,
            at: recorded.at,
            position: recorded.position,
        }
    }

    fn name(&self, actor: &Actor) -> Option<String> {
        match actor {
            Actor::Principal(id) => self.names.get(id).cloned(),
            Actor::Runner(_) | Actor::Policy(_) | Actor::Timer(_) | Actor::System => None,
        }
    }
}

/// Name of the kind in events, which differs from the text for users: `input_update`.
fn run_kind(kind: RunKind) -> String {
    match serde_json::to_value(kind) {
        Ok(Value::String(name)) => name,
        Ok(_) | Err(_) => String::new(),
    }
}

fn job(history: JobHistory) -> JobActivity {
    JobActivity {
        job: history.job,
        kind: history.kind.map(|kind| kind.as_str().to_owned()).unwrap_or_default(),
        name: history.target,
        runner: history.runner,
        attempts: history.attempts,
        outcome: history.outcome.map(|outcome| outcome.to_string()),
        detail: history.detail,
        queued_at: history.queued_at,
        ended_at: history.ended_at,
    }
}

fn component(history: ComponentHistory) -> ComponentChange {
    let version = |Version { config_version, build }| DeployedVersion { config_version, build };
    ComponentChange {
        name: history.name,
        before: history.before.map(version),
        after: history.after.map(version),
        incomplete: history.incomplete,
    }
}
