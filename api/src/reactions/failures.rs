//! Reports failed runs and steps to the operator: a log line with the ids and the reason, and a
//! counter. Only the server that runs the policies reports failures. After a takeover, the new
//! server may report the most recent failures again.
use domain::{
    decider::Decider as _,
    ids::{RunId, StepId},
    run::{Outcome, Run, RunEvent, RunKind, StepFailure, Target},
};
use event_log::StoredEvent;
use serde::Serialize;

use crate::{metrics::RunLabels, state::App};

/// Kinds of runs, each a value of the label `kind`.
const KINDS: [RunKind; 10] = [
    RunKind::Provision,
    RunKind::Reprovision,
    RunKind::Deploy,
    RunKind::InputUpdate,
    RunKind::Upgrade,
    RunKind::Rollback,
    RunKind::Teardown,
    RunKind::Deprovision,
    RunKind::Action,
    RunKind::Drift,
];

/// Exposes the counter of each kind before the first failure, so that an alert on its increase sees
/// that failure.
pub(super) fn expose(app: &App) {
    for kind in KINDS {
        drop(app.metrics.runs_failed.get_or_create(&RunLabels { kind: json_name(&kind) }));
    }
}

/// Reports the failures among these events.
pub(super) async fn report(app: &App, events: &[StoredEvent]) {
    for event in events {
        let of_run = event.stream.aggregate_type == Run::NAME;
        if of_run && matches!(&*event.event_type, "run.finished" | "run.step_failed") {
            report_failure(app, event).await;
        }
    }
}

async fn report_failure(app: &App, event: &StoredEvent) {
    // The policies report events that cannot be read.
    let Ok(run) = event.stream.aggregate_id.parse::<RunId>() else { return };
    let Ok(domain_events) = event.decode::<RunEvent>() else { return };
    let Ok(state) = app.engine.load::<Run>(run).await else { return };
    for domain_event in domain_events {
        if let RunEvent::StepFailed { step, reason, .. } = &domain_event {
            step_failed((run, &state), *step, reason);
        }
        if let RunEvent::Finished { outcome: Outcome::Failed } = &domain_event {
            run_failed(app, run, &state);
        }
    }
}

/// The detail of a failure is customer data and encrypted in the event log, so it is not logged
/// here.
fn step_failed((run, state): (RunId, &Run), step: StepId, reason: &StepFailure) {
    let at = state.step(step);
    let name = at.map_or("", |at| name(&at.spec.target));
    let job = at.and_then(|at| at.jobs.last()).map(ToString::to_string).unwrap_or_default();
    let install = state.request.as_ref().map(|request| request.install.to_string());
    tracing::warn!(
        run.id = %run,
        install.id = install.unwrap_or_default(),
        step.id = %step,
        step.name = name,
        job.id = job,
        reason = json_name(reason),
        "Step failed"
    );
}

fn run_failed(app: &App, run: RunId, state: &Run) {
    let Some(request) = &state.request else { return };
    let kind = json_name(&request.kind);
    app.metrics.runs_failed.get_or_create(&RunLabels { kind: kind.clone() }).inc();
    tracing::warn!(run.id = %run, install.id = %request.install, run.kind = kind, "Run failed");
}

fn name(target: &Target) -> &str {
    match target {
        Target::Sandbox { .. } => "sandbox",
        Target::Component { name, .. } | Target::Action { name } => name,
    }
}

/// Name of an enum value in JSON.
fn json_name(of: &impl Serialize) -> String {
    let value = serde_json::to_value(of).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}
