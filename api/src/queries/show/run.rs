//! Converts rows of runs, with their steps, to the API types.
use std::collections::{BTreeMap, HashMap};

use domain::{
    ids::{JobId, StepId},
    run::{
        Cause, Operation, Preflight as StateOf, RunKind, Step as StepOf, StepFailure, StepPlan,
        StepState, Target,
    },
};
use projections::views::{
    installs, jobs, runs,
    waiting::{self, WaitContext},
};
use schemas::control::runs::{Decision, Plan, Preflight, Run, RunSummary, Step, WaitingPlans};

use super::{variant_name, waiting};
use crate::queries::lookup::Lookup;

/// Converts a run without its steps. Returns `None` for a run without a request.
pub(crate) async fn summary(
    lookup: &mut Lookup<'_>,
    row: &runs::Row,
) -> Result<Option<RunSummary>, sqlx::Error> {
    let Some(request) = &row.state.request else { return Ok(None) };
    let install = lookup.install(request.install).await?;
    Ok(Some(RunSummary {
        id: row.run,
        install: request.install,
        install_name: install.map(|install| install.state.name.clone()).unwrap_or_default(),
        kind: variant_name(&request.kind),
        action: action(row).filter(|_| request.kind == RunKind::Action),
        state: row.state_name().into(),
        requested_by: request.by.to_string(),
        requested_by_name: lookup.name(&request.by),
        reason: request.reason.clone(),
        config_version: Some(request.config_version),
        steps: row.state.steps.len() as u64,
        steps_ended: row.state.steps.iter().filter(|step| step.state.is_over()).count() as u64,
        requested_at: row.requested_at,
        ended_at: row.ended_at,
        waiting_plans: waiting_plans(row),
    }))
}

/// Adds up the plans that wait for an approval. Returns `None` if none can be approved now.
fn waiting_plans(row: &runs::Row) -> Option<WaitingPlans> {
    if row.state_name() != "waiting_for_approval" {
        return None;
    }
    let mut sum: Option<WaitingPlans> = None;
    for step in &row.state.steps {
        if let StepState::AwaitingApproval { plan, .. } = &step.state {
            let planned_at = row.times.get(&step.spec.step).and_then(|times| times.planned_at);
            let since = planned_at.unwrap_or(row.requested_at);
            let none = WaitingPlans { plans: 0, add: 0, change: 0, destroy: 0, since };
            let sum = sum.get_or_insert(none);
            sum.plans += 1;
            sum.add += plan.add;
            sum.change += plan.change;
            sum.destroy += plan.destroy;
            sum.since = sum.since.min(since);
        }
    }
    sum
}

/// Converts a run with its steps. Returns `None` for a run without a request.
pub(crate) async fn run(
    lookup: &mut Lookup<'_>,
    row: &runs::Row,
    position: u64,
) -> Result<Option<Run>, sqlx::Error> {
    lookup.for_run(row).await?;
    let Some(head) = summary(lookup, row).await? else { return Ok(None) };
    let install = lookup.install(head.install).await?;
    let jobs = lookup.jobs_of(row.run).await?;
    let (preflight_waits, waits) = match &install {
        Some(install) => waiting_of(lookup, row, (install, &jobs)).await?,
        None => (None, HashMap::new()),
    };
    let resolved = jobs.values().filter_map(|job| Some(&job.resolution.as_ref()?.by));
    lookup.for_actors(resolved).await?;
    let resolution = |at: &StepOf| {
        let resolved = jobs.get(at.jobs.last()?)?.resolution.as_ref()?;
        Some(super::job::resolution(lookup, resolved))
    };
    let mut layers: HashMap<StepId, u32> = HashMap::new();
    let mut dag = Vec::new();
    for at in &row.state.steps {
        let spec = &at.spec;
        let deepest = spec.depends_on.iter().filter_map(|id| layers.get(id)).max();
        let layer = deepest.map_or(0, |layer| layer + 1);
        layers.insert(spec.step, layer);
        dag.push(Step {
            id: spec.step,
            kind: kind(at).into(),
            name: waiting::name(&spec.target).to_owned(),
            depends_on: spec.depends_on.clone(),
            layer,
            state: step_state(&at.state).into(),
            job: at.jobs.last().copied(),
            plan: row.plans.get(&spec.step).map(plan),
            decision: row.decisions.get(&spec.step).map(|recorded| decision(lookup, recorded)),
            resolution: resolution(at),
            approval_later: row.state.is_approved_later(at),
            waiting: waits.get(&spec.step).cloned(),
            reason: reason(at),
        });
    }
    let retry_of = row.state.request.as_ref().and_then(|request| match request.cause {
        Cause::Retry { run } => Some(run),
        Cause::Requested | Cause::RunnerEnrolled => None,
    });
    let preflight = preflight(row, preflight_waits);
    let plan_all = row.state.request.as_ref().is_some_and(|request| request.plan_all);
    let awaits_plans = row.state.awaits_plans();
    Ok(Some(Run { run: head, preflight, plan_all, awaits_plans, dag, retry_of, position }))
}

/// Converts the preflight of a run. Returns `None` if the run needs none.
fn preflight(row: &runs::Row, waiting: Option<schemas::control::Waiting>) -> Option<Preflight> {
    let result = row.preflight.clone().unwrap_or_default();
    let (state, reason) = match &row.state.preflight {
        StateOf::NotRequired => return None,
        StateOf::Waiting => ("pending", None),
        StateOf::Running { .. } => ("running", None),
        StateOf::Passed { .. } => ("passed", None),
        StateOf::Failed { reason, .. } => {
            let detail = result.detail.unwrap_or_default();
            ("failed", Some(format!("{}: {detail}", reason.text())))
        }
    };
    Some(Preflight {
        state: state.into(),
        job: row.state.preflight.job(),
        checks: result.checks,
        reason,
        waiting,
        started_at: result.times.started_at,
        ended_at: result.times.ended_at,
    })
}

/// Returns the conditions that the preflight and each step wait for.
async fn waiting_of(
    lookup: &mut Lookup<'_>,
    row: &runs::Row,
    (install, jobs): (&installs::Row, &BTreeMap<JobId, jobs::Row>),
) -> Result<
    (Option<schemas::control::Waiting>, HashMap<StepId, schemas::control::Waiting>),
    sqlx::Error,
> {
    if row.state.outcome.is_some() {
        return Ok((None, HashMap::new()));
    }
    let mut builds = BTreeMap::new();
    for at in &row.state.steps {
        if let Target::Sandbox { build } | Target::Component { build, .. } = &at.spec.target
            && let Some(row) = lookup.build(*build).await?
        {
            builds.insert(*build, (*row).clone());
        }
    }
    let runner = match install.runner() {
        Some(runner) => lookup.runner(runner).await?,
        None => None,
    };
    let runner = runner.as_deref().map(|row| lookup.with_contact(row));
    let around = WaitContext { run: row, install, jobs, builds: &builds, runner };
    let step = |at: &StepOf| Some((at.spec.step, waiting(waiting::of_step(at, around)?)));
    let preflight = waiting::of_running_preflight(around).map(waiting);
    Ok((preflight, row.state.steps.iter().filter_map(step).collect()))
}

/// Name of the action in the first step. A run of kind action has only that step.
fn action(row: &runs::Row) -> Option<String> {
    match &row.state.steps.first()?.spec.target {
        Target::Action { name } => Some(name.clone()),
        Target::Sandbox { .. } | Target::Component { .. } => None,
    }
}

fn kind(step: &StepOf) -> &'static str {
    match (&step.spec.target, step.spec.operation) {
        (Target::Sandbox { .. }, Operation::Apply | Operation::Execute) => "sandbox",
        (Target::Component { .. }, Operation::Apply | Operation::Execute) => "deploy",
        (Target::Sandbox { .. } | Target::Component { .. }, Operation::Destroy) => "destroy",
        (Target::Sandbox { .. } | Target::Component { .. }, Operation::Check) => "check",
        (Target::Action { .. }, _) => "action",
    }
}

fn step_state(state: &StepState) -> &'static str {
    match state {
        StepState::Waiting => "pending",
        StepState::Planning { .. } => "planning",
        StepState::AwaitingApproval { .. } => "waiting_for_approval",
        StepState::Approved { .. } => "approved",
        StepState::Applying { .. } => "applying",
        StepState::Executing { .. } => "running",
        StepState::RetryScheduled { .. } => "retry_scheduled",
        StepState::Succeeded { .. } => "succeeded",
        StepState::Failed { reason: StepFailure::JobCancelled, .. } => "cancelled",
        StepState::Failed { .. } => "failed",
        StepState::Skipped { .. } => "skipped",
    }
}

fn reason(step: &StepOf) -> Option<String> {
    match &step.state {
        StepState::Failed { reason, detail } => {
            Some(format!("{}: {detail}", reason.text(step.spec.operation)))
        }
        StepState::Skipped { reason } => Some(variant_name(reason)),
        StepState::Waiting
        | StepState::Planning { .. }
        | StepState::AwaitingApproval { .. }
        | StepState::Approved { .. }
        | StepState::Applying { .. }
        | StepState::Executing { .. }
        | StepState::RetryScheduled { .. }
        | StepState::Succeeded { .. } => None,
    }
}

fn plan(plan: &StepPlan) -> Plan {
    Plan {
        digest: plan.digest.clone(),
        noop: plan.noop,
        add: plan.add,
        change: plan.change,
        destroy: plan.destroy,
        tool: None,
        summary: plan.summary.clone(),
        has_details: plan.details.is_some(),
    }
}

fn decision(lookup: &Lookup<'_>, recorded: &runs::Decision) -> Decision {
    Decision {
        decision: recorded.verdict.as_str().into(),
        by: recorded.by.to_string(),
        by_name: lookup.name(&recorded.by),
        reason: recorded.reason.clone(),
        at: recorded.at,
    }
}
