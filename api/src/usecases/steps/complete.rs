//! Completes a step with the result of its job, on its run and its install.
mod retry;

use domain::{
    ids::{InstallId, JobId, RunId, StepId},
    install::{Install, InstallCommand, Outputs, StepResult},
    job::{Job, JobEvent, JobKind, JobProduct, Origin, Outcome as JobOutcome, State as JobState},
    run::{Approval, Operation, Run, RunCommand, StepFailure, StepPlan, Target},
};
use futures::FutureExt as _;
use sqlx::PgPool;

use self::retry::may_retry;
use super::{super::preflight, release_finished, resource, truncated};
use crate::{
    execute::{Call, Done, UnitOfWork},
    problem::Problem,
    render,
    state::App,
    state_versions::{self, Of},
};

/// Time limit for the approval of a plan: seven days.
pub(crate) const APPROVAL_TTL: chrono::TimeDelta = chrono::TimeDelta::days(7);

/// Completes a step or a preflight with the result of its job. Idempotent.
pub(crate) async fn complete(app: &App, call: &Call, job: JobId) -> Result<Done<()>, Problem> {
    let pool = app.pool.clone();
    app.engine
        .transact(call, move |unit| {
            let pool = pool.clone();
            async move { complete_step(&pool, unit, job).await }.boxed()
        })
        .await
}

/// Fails a step or a preflight whose job result cannot be applied, so that the run does not stall.
pub(crate) async fn give_up(
    app: &App,
    call: &Call,
    id: JobId,
    detail: &str,
) -> Result<Done<()>, Problem> {
    let detail = truncated(detail);
    app.engine
        .transact(call, move |unit| {
            let detail = detail.clone();
            async move {
                let job = unit.load::<Job>(id).await?;
                let run = match job.work.as_ref().map(|work| work.origin.clone()) {
                    Some(Origin::Step { run, step, .. }) => (run, Some(step)),
                    Some(Origin::Preflight { run, .. }) => (run, None),
                    Some(Origin::Build { .. } | Origin::Source { .. }) | None => return Ok(()),
                };
                let (run, Some(step)) = run else {
                    preflight::give_up(unit, run.0, Some(id), detail).await?;
                    return release_finished(unit, run.0).await;
                };
                if unit.load::<Run>(run).await?.step_of(id).is_some() {
                    let reason = StepFailure::RenderFailed;
                    let job = Some(id);
                    let fail = RunCommand::FailStep { step, job, reason, detail, may_retry: false };
                    unit.handle::<Run>(run, fail).await?;
                }
                release_finished(unit, run).await
            }
            .boxed()
        })
        .await
}

async fn complete_step(pool: &PgPool, unit: &mut UnitOfWork, id: JobId) -> Result<(), Problem> {
    let job = unit.load::<Job>(id).await?.clone();
    let Some(domain::job::Work { kind, origin, .. }) = job.work.clone() else { return Ok(()) };
    let JobState::Ended { outcome, .. } = &job.state else { return Ok(()) };
    let (install, run, step) = match origin {
        Origin::Step { install, run, step } => (install, run, step),
        Origin::Preflight { run, .. } => {
            preflight::complete(unit, run, id, (&job, *outcome)).await?;
            return release_finished(unit, run).await;
        }
        Origin::Build { .. } | Origin::Source { .. } => return Ok(()),
    };
    let is_current = unit.load::<Run>(run).await?.step_of(id).is_some();
    record_state(pool, unit, (install, run, step), (id, &job), is_current).await?;
    if !is_current {
        return Ok(());
    }
    match outcome {
        JobOutcome::Succeeded => match kind.product() {
            JobProduct::Plan => record_plan(unit, install, run, step, id, &job).await?,
            JobProduct::Outputs => {
                record(unit, install, run, step, &job).await?;
                unit.handle::<Run>(run, RunCommand::CompleteStep { job: id }).await?;
            }
            // Jobs of a build, a source or a preflight belong to no step.
            JobProduct::Artifact | JobProduct::Commit | JobProduct::Checks => {}
        },
        JobOutcome::Failed | JobOutcome::Cancelled | JobOutcome::Lost => {
            let applies = matches!(kind, JobKind::Apply | JobKind::Sync);
            if applies && job.changed_nothing() {
                record_not_applied(unit, install, run, step).await?;
            }
            let (stale, detail) = failure_of(&job);
            let command = if stale && applies {
                RunCommand::InvalidatePlan { job: id, reason: detail }
            } else {
                let reason = match outcome {
                    JobOutcome::Cancelled => StepFailure::JobCancelled,
                    JobOutcome::Lost => StepFailure::JobLost,
                    JobOutcome::Failed | JobOutcome::Succeeded => StepFailure::JobFailed,
                };
                let may_retry = may_retry(&job);
                RunCommand::FailStep { step, job: Some(id), reason, detail, may_retry }
            };
            unit.handle::<Run>(run, command).await?;
        }
    }
    release_finished(unit, run).await
}

async fn record_plan(
    unit: &mut UnitOfWork,
    install: InstallId,
    run: RunId,
    step: StepId,
    id: JobId,
    job: &Job,
) -> Result<(), Problem> {
    let plan_report = job.reports.iter().find_map(|event| {
        let JobEvent::PlanProduced { plan, .. } = event else { return None };
        Some(plan.clone())
    });
    let Some(report) = plan_report else {
        let (reason, detail) = (StepFailure::JobFailed, "the plan job reported no plan".into());
        let may_retry = false;
        let fail = RunCommand::FailStep { step, job: Some(id), reason, detail, may_retry };
        unit.handle::<Run>(run, fail).await?;
        return Ok(());
    };
    let noop = report.noop;
    let plan = StepPlan {
        digest: report.digest,
        summary: report.summary,
        details: report.v2.and_then(|v2| v2.details),
        noop,
        add: report.add,
        change: report.change,
        destroy: report.destroy,
    };
    let spec = unit.load::<Run>(run).await?.step(step).map(|step| step.spec.clone());
    let is_recorded = spec.is_none_or(|spec| match spec.operation {
        Operation::Apply | Operation::Destroy | Operation::Execute => !spec.options.applies_noops,
        // A check does not change what is known of the install.
        Operation::Check => false,
    });
    if noop && is_recorded {
        record(unit, install, run, step, job).await?;
    }
    let state = unit.load::<Install>(install).await?;
    let approval = if state.auto_approve {
        Approval::Automatic
    } else if state.approves_first(run) {
        Approval::FirstProvision
    } else {
        Approval::Principal { expires_at: unit.now() + APPROVAL_TTL }
    };
    unit.handle::<Run>(run, RunCommand::RecordPlan { job: id, plan, approval }).await?;
    Ok(())
}

/// Records the state that the job reported, also for a failed job, and for a job whose step has ended
/// without it: its host has the state. Such a job can be completed late, so nothing is recorded if
/// another job has begun to write the state since, or if a user has chosen one.
async fn record_state(
    pool: &PgPool,
    unit: &mut UnitOfWork,
    (install, run, step): (InstallId, RunId, StepId),
    (id, job): (JobId, &Job),
    is_current: bool,
) -> Result<(), Problem> {
    let reported = job.reports.iter().find_map(|event| {
        let JobEvent::StateReported { state, .. } = event else { return None };
        // Neither the log nor the database accepts another one.
        state.is_valid().then(|| state.clone())
    });
    let target = unit.load::<Run>(run).await?.step(step).map(|step| step.spec.target.clone());
    let name = target.as_ref().and_then(render::step::component_of).map(str::to_owned);
    if let (Some(state), Some(name)) = (reported, name) {
        let of = Of { install, component: &name };
        let begun = state_versions::begun(pool, of).await?;
        if !is_current && begun.is_some_and(|begun| begun.job != Some(id)) {
            return Ok(());
        }
        state_versions::mark_named(pool, of, std::slice::from_ref(&state)).await?;
        if !state_versions::has(pool, of, &state).await? {
            let (name, state) = (name.clone(), state.clone());
            let wait = InstallCommand::AwaitState { name, run, step, state };
            unit.handle::<Install>(install, wait).await?;
        }
        let record = InstallCommand::RecordState { name, run, step, state };
        unit.handle::<Install>(install, record).await?;
    }
    Ok(())
}

/// Records the result on the install: deployed or destroyed.
async fn record(
    unit: &mut UnitOfWork,
    install: InstallId,
    run: RunId,
    step: StepId,
    job: &Job,
) -> Result<(), Problem> {
    let reported = job.reports.iter().find_map(|event| {
        let JobEvent::OutputsReported { outputs, .. } = event else { return None };
        Some(outputs.clone())
    });
    let state = unit.load::<Run>(run).await?;
    let config_version = state.request.as_ref().map_or(0, |request| request.config_version);
    let Some(spec) = state.step(step).map(|step| step.spec.clone()) else { return Ok(()) };
    let install_state = unit.load::<Install>(install).await?.clone();
    let fingerprint = spec.fingerprint.clone();
    let result = match (spec.target, spec.operation) {
        (Target::Sandbox { .. }, Operation::Destroy) => StepResult::SandboxDestroyed,
        (Target::Component { name, component, .. }, Operation::Destroy) => {
            StepResult::ComponentDestroyed { name, component }
        }
        (Target::Sandbox { .. } | Target::Component { .. }, Operation::Check) => return Ok(()),
        (Target::Sandbox { build }, Operation::Apply | Operation::Execute) => {
            let former = || install_state.sandbox.as_ref().map(|sandbox| sandbox.outputs.clone());
            let outputs = reported.or_else(former).unwrap_or_default();
            let fingerprint = fingerprint.ok_or_else(missing_fingerprint)?;
            StepResult::SandboxProvisioned { build, config_version, fingerprint, outputs }
        }
        (
            Target::Component { component, name, build, depends_on },
            Operation::Apply | Operation::Execute,
        ) => {
            let former =
                || install_state.components.get(&name).map(|component| component.outputs.clone());
            let outputs: Outputs = reported.or_else(former).unwrap_or_default();
            let fingerprint = fingerprint.ok_or_else(missing_fingerprint)?;
            StepResult::ComponentDeployed {
                name,
                component,
                build,
                config_version,
                fingerprint,
                depends_on,
                outputs,
            }
        }
        (Target::Action { name }, _) => {
            StepResult::ActionCompleted { name, outputs: reported.unwrap_or_default() }
        }
    };
    unit.handle::<Install>(install, InstallCommand::RecordResult { run, step, result }).await?;
    Ok(())
}

/// Records on the install that the apply changed nothing.
async fn record_not_applied(
    unit: &mut UnitOfWork,
    install: InstallId,
    run: RunId,
    step: StepId,
) -> Result<(), Problem> {
    let target = unit.load::<Run>(run).await?.step(step).map(|step| step.spec.target.clone());
    let Some(resource) = target.as_ref().and_then(resource) else { return Ok(()) };
    unit.handle::<Install>(install, InstallCommand::RecordApplyNotRun { run, step, resource })
        .await?;
    Ok(())
}

fn missing_fingerprint() -> Problem {
    Problem::internal("a step that deploys has no fingerprint")
}

/// Returns true if the plan was stale, and the failure detail of the job.
fn failure_of(job: &Job) -> (bool, String) {
    let reported = job.reports.iter().rev().find_map(|event| {
        let JobEvent::Failed { reason, detail, .. } = event else { return None };
        Some((*reason == domain::job::FailureReason::PlanStale, truncated(detail)))
    });
    reported.unwrap_or_else(|| match &job.state {
        JobState::Ended { outcome, .. } => (false, format!("the outcome of the job is {outcome}")),
        JobState::NotCreated
        | JobState::Queued { .. }
        | JobState::Claimed(_)
        | JobState::Running(_)
        | JobState::OutcomeUnknown(_) => (false, "the job has not ended".into()),
    })
}
