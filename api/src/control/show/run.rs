//! Runs and their steps.
use std::collections::HashMap;

use domain::{
    ids::StepId,
    install::Install,
    run::{
        Cause, Operation, Outcome, Run as RunState, RunEvent, Step as StepOf, StepState, Target,
    },
};
use schemas::control::runs::{Decision, Plan, Run, RunSummary, Step};

use super::{waiting, word};
use crate::{control::read::History, problem::Problem, state::App};

/// A run in a list; nothing when the stream has no request yet.
pub async fn summary(
    app: &App,
    history: &History<RunState>,
) -> Result<Option<RunSummary>, Problem> {
    let run = &history.state;
    let Some(request) = &run.request else { return Ok(None) };
    let install = app.engine.load::<Install>(request.install).await?;
    Ok(Some(RunSummary {
        id: history.id.parse().map_err(Problem::internal)?,
        install: request.install,
        install_name: install.name,
        kind: word(&request.kind),
        state: state(run).into(),
        requested_by: request.by.to_string(),
        reason: request.reason.clone(),
        config_version: Some(request.config_version),
        steps: run.steps.len() as u64,
        steps_ended: run.steps.iter().filter(|step| step.state.is_over()).count() as u64,
        requested_at: history.began(),
        ended_at: history.last(|event| matches!(event, RunEvent::Finished { .. })),
    }))
}

/// A run with its steps.
pub async fn run(app: &App, history: &History<RunState>) -> Result<Run, Problem> {
    let position = app.engine.log().position();
    let head = summary(app, history).await?;
    let head = head.ok_or_else(|| Problem::not_found(&history.id))?;
    let install = app.engine.load::<Install>(head.install).await?;
    let mut layers: HashMap<StepId, u32> = HashMap::new();
    let mut dag = Vec::new();
    for step in &history.state.steps {
        let spec = &step.spec;
        let deepest = spec.needs.iter().filter_map(|id| layers.get(id)).max();
        let layer = deepest.map_or(0, |layer| layer + 1);
        layers.insert(spec.step, layer);
        let waiting = match history.state.outcome {
            None => waiting::step(app, (&history.id, &history.state), step, &install).await?,
            Some(_) => None,
        };
        dag.push(Step {
            id: spec.step,
            kind: kind(step),
            name: name(&spec.target),
            depends_on: spec.needs.clone(),
            layer,
            state: step_state(&step.state).into(),
            job: step.jobs.last().copied(),
            plan: plan(history, spec.step),
            decision: decision(history, spec.step),
            waiting,
            reason: reason(&step.state),
        });
    }
    let retry_of = history.state.request.as_ref().and_then(|request| match request.cause {
        Cause::Retry { of } => Some(of),
        Cause::Asked | Cause::RunnerEnrolled => None,
    });
    Ok(Run { run: head, dag, retry_of, position })
}

fn state(run: &RunState) -> &'static str {
    let asks = |step: &StepOf| matches!(step.state, StepState::AwaitingApproval { .. });
    match (&run.outcome, &run.cancel) {
        (Some(Outcome::Succeeded), _) => "succeeded",
        (Some(Outcome::Failed), _) => "failed",
        (Some(Outcome::Cancelled), _) => "cancelled",
        (Some(Outcome::Denied), _) => "denied",
        (None, Some(_)) => "cancelling",
        (None, None) if run.steps.iter().any(asks) => "waiting_for_approval",
        (None, None) => "running",
    }
}

/// What a step is about, by name.
pub fn name(target: &Target) -> String {
    match target {
        Target::Sandbox { .. } => "sandbox".into(),
        Target::Component { name, .. } | Target::Action { name } => name.clone(),
    }
}

fn kind(step: &StepOf) -> String {
    match (&step.spec.target, step.spec.operation) {
        (Target::Sandbox { .. }, Operation::Apply | Operation::Execute) => "sandbox",
        (Target::Component { .. }, Operation::Apply | Operation::Execute) => "deploy",
        (Target::Sandbox { .. } | Target::Component { .. }, Operation::Destroy) => "destroy",
        (Target::Action { .. }, _) => "action",
    }
    .into()
}

fn step_state(state: &StepState) -> &'static str {
    match state {
        StepState::Waiting => "pending",
        StepState::Planning { .. } => "planning",
        StepState::AwaitingApproval { .. } => "waiting_for_approval",
        StepState::Approved { .. } => "approved",
        StepState::Applying { .. } => "applying",
        StepState::Executing { .. } => "running",
        StepState::Succeeded { .. } => "succeeded",
        StepState::Failed { .. } => "failed",
        StepState::Skipped { .. } => "skipped",
    }
}

fn reason(state: &StepState) -> Option<String> {
    match state {
        StepState::Failed { reason, detail } => {
            Some(format!("{}: {detail}", word(reason).replace('_', " ")))
        }
        StepState::Skipped { reason } => Some(word(reason)),
        StepState::Waiting
        | StepState::Planning { .. }
        | StepState::AwaitingApproval { .. }
        | StepState::Approved { .. }
        | StepState::Applying { .. }
        | StepState::Executing { .. }
        | StepState::Succeeded { .. } => None,
    }
}

/// The newest plan of a step that was not voided.
fn plan(history: &History<RunState>, of: StepId) -> Option<Plan> {
    let mut newest = None;
    for (_, event) in &history.events {
        match event {
            RunEvent::PlanProduced { step, plan, .. } if *step == of => {
                newest = Some(Plan {
                    digest: plan.digest.clone(),
                    noop: plan.noop,
                    add: plan.add,
                    change: plan.change,
                    destroy: plan.destroy,
                    tool: None,
                    summary: plan.summary.clone(),
                });
            }
            RunEvent::PlanVoided { step, .. } | RunEvent::StepRetried { step, .. }
                if *step == of =>
            {
                newest = None;
            }
            _ => {}
        }
    }
    newest
}

/// The last word on a step's plan.
fn decision(history: &History<RunState>, of: StepId) -> Option<Decision> {
    history.events.iter().rev().find_map(|(stored, event)| {
        let (verdict, by, reason) = match event {
            RunEvent::Approved { step, by, reason, .. } if *step == of => ("approved", by, reason),
            RunEvent::Denied { step, by, reason, .. } if *step == of => ("denied", by, reason),
            _ => return None,
        };
        let (by, reason) = (by.to_string(), Some(reason.clone()).filter(|r| !r.is_empty()));
        Some(Decision { verdict: verdict.into(), by, reason, at: stored.recorded_at })
    })
}
