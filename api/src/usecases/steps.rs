//! How a run goes on, step by step.
use domain::{
    artifact::Artifact,
    build::{Build, BuildCommand},
    ids::{BuildId, InstallId, JobId, RunId, StepId},
    install::{Install, InstallCommand, InstallError, Outputs, Resource, StepResult},
    job::{Job, JobCommand, JobEvent, JobKind, Outcome as JobOutcome, State as JobState},
    run::{
        Approval, Cancel, Next, Operation, PlanFacts, Run, RunCommand, Step, StepFailure,
        StepState, Target,
    },
};
use futures::FutureExt as _;

use crate::{
    compose,
    execute::{Call, Done, Unit},
    problem::Problem,
    state::App,
};

/// How long a plan waits for a person's word: seven days.
const APPROVAL_TTL: chrono::TimeDelta = chrono::TimeDelta::days(7);

/// Do what a run wants now. Asking twice is harmless.
pub async fn go_on(app: &App, call: &Call, run: RunId) -> Result<Done<()>, Problem> {
    let app = app.clone();
    let engine = app.engine.clone();
    engine
        .transact(call, move |unit| {
            let app = app.clone();
            async move { advance(&app, unit, run).await }.boxed()
        })
        .await
}

/// Do what the runs of an install want now that something is free, who asked first first.
pub async fn wake(app: &App, call: &Call, install: InstallId) -> Result<Done<()>, Problem> {
    let app = app.clone();
    let engine = app.engine.clone();
    engine
        .transact(call, move |unit| {
            let app = app.clone();
            async move {
                let runs: Vec<RunId> =
                    unit.load::<Install>(install).await?.runs.keys().copied().collect();
                for run in runs {
                    advance(&app, unit, run).await?;
                }
                Ok(())
            }
            .boxed()
        })
        .await
}

/// Let every run that waits for a build go on, now that the build has ended.
pub async fn wake_waiters_of_build(
    app: &App,
    call: &Call,
    build: BuildId,
) -> Result<Done<()>, Problem> {
    let app = app.clone();
    let engine = app.engine.clone();
    engine
        .transact(call, move |unit| {
            let app = app.clone();
            async move {
                let runs = unit.load::<Build>(build).await?.awaited_by.clone();
                for run in runs {
                    advance(&app, unit, run).await?;
                }
                Ok(())
            }
            .boxed()
        })
        .await
}

/// Tell run and install what a step's job came to.
pub async fn settle(app: &App, call: &Call, job: JobId) -> Result<Done<()>, Problem> {
    app.engine.transact(call, move |unit| settle_job(unit, job).boxed()).await
}

async fn advance(app: &App, unit: &mut Unit, run: RunId) -> Result<(), Problem> {
    let state = unit.load::<Run>(run).await?.clone();
    let Some(request) = &state.request else { return Ok(()) };
    for next in state.next() {
        match next {
            Next::Start(step) => {
                if let Some(step) = state.step(step) {
                    start(app, unit, request.install, run, step).await?;
                }
            }
            Next::Apply(step) => {
                if let Some(step) = state.step(step) {
                    apply(app, unit, run, step).await?;
                }
            }
            Next::CancelJob(job) => {
                let Some(Cancel { by, reason, force }) = state.cancel.clone() else { continue };
                // A job that has ended in the meantime says so by its own event.
                let cancel = JobCommand::RequestCancel { by, reason, force };
                let _already_over = unit.ask::<Job>(job, cancel).await?;
            }
        }
    }
    tidy(unit, request.install, run).await
}

/// Queue the first job of a step, if it has its artifact and may hold what it changes.
async fn start(
    app: &App,
    unit: &mut Unit,
    install: InstallId,
    run: RunId,
    step: &Step,
) -> Result<(), Problem> {
    let id = step.spec.step;
    let artifact = match built(unit, &step.spec.target).await? {
        Built::Yes(artifact) => Some(artifact),
        Built::NotNeeded => None,
        Built::NotYet(build) => {
            unit.tell::<Build>(build, BuildCommand::Await { run }).await?;
            return Ok(());
        }
        Built::Failed(build) => {
            let detail = format!("{build} failed; see `stead builds show {build}`");
            return fail(unit, run, id, StepFailure::BuildFailed, detail).await;
        }
    };
    if let Some(resource) = resource(&step.spec.target) {
        let reserve = InstallCommand::Reserve { resource, run, step: id };
        match unit.ask::<Install>(install, reserve).await? {
            Ok(_) => {}
            Err(InstallError::Held { .. }) => return Ok(()),
            Err(refused) => return Err(refused.into()),
        }
    }
    let job = JobId(ulid::Ulid::new());
    match compose::step::first(app, unit, run, step, job, artifact).await? {
        Ok(work) => {
            unit.tell::<Job>(job, JobCommand::Queue(work)).await?;
            unit.tell::<Run>(run, RunCommand::StartStep { step: id, job }).await?;
            Ok(())
        }
        Err(detail) => fail(unit, run, id, StepFailure::NotComposed, detail).await,
    }
}

/// Queue the job that applies exactly the plan that was approved.
async fn apply(app: &App, unit: &mut Unit, run: RunId, step: &Step) -> Result<(), Problem> {
    let StepState::Approved { plan } = &step.state else { return Ok(()) };
    let id = step.spec.step;
    let artifact = match built(unit, &step.spec.target).await? {
        Built::Yes(artifact) => Some(artifact),
        Built::NotNeeded | Built::NotYet(_) | Built::Failed(_) => None,
    };
    let job = JobId(ulid::Ulid::new());
    match compose::step::apply(app, unit, run, step, job, artifact, plan).await? {
        Ok(work) => {
            unit.tell::<Job>(job, JobCommand::Queue(work)).await?;
            unit.tell::<Run>(run, RunCommand::StartApply { step: id, job }).await?;
            Ok(())
        }
        Err(detail) => fail(unit, run, id, StepFailure::NotComposed, detail).await,
    }
}

async fn fail(
    unit: &mut Unit,
    run: RunId,
    step: StepId,
    reason: StepFailure,
    detail: String,
) -> Result<(), Problem> {
    let fail = RunCommand::FailStep { step, job: None, reason, detail };
    unit.tell::<Run>(run, fail).await?;
    Ok(())
}

/// Let go of what steps that are over held, and close the run when it has ended.
pub(super) async fn tidy(unit: &mut Unit, install: InstallId, run: RunId) -> Result<(), Problem> {
    let state = unit.load::<Run>(run).await?;
    let outcome = state.outcome;
    let over: Vec<StepId> =
        state.steps.iter().filter(|step| step.state.is_over()).map(|step| step.spec.step).collect();
    for step in over {
        if unit.load::<Install>(install).await?.is_holding(run, step) {
            unit.tell::<Install>(install, InstallCommand::Release { run, step }).await?;
        }
    }
    if let Some(outcome) = outcome {
        unit.tell::<Install>(install, InstallCommand::CloseRun { run, outcome }).await?;
        super::installs::release_name(unit, install).await?;
    }
    Ok(())
}

async fn settle_job(unit: &mut Unit, id: JobId) -> Result<(), Problem> {
    let job = unit.load::<Job>(id).await?.clone();
    let Some(domain::job::Work { kind, origin, .. }) = job.work.clone() else { return Ok(()) };
    let domain::job::Origin::Step { install, run, step } = origin else { return Ok(()) };
    let JobState::Ended { outcome, .. } = &job.state else { return Ok(()) };
    let is_current = unit.load::<Run>(run).await?.step_of(id).is_some();
    if !is_current {
        return Ok(());
    }
    match outcome {
        JobOutcome::Succeeded => match kind {
            JobKind::Plan => planned(unit, install, run, step, id, &job).await?,
            JobKind::Apply | JobKind::Action => {
                record(unit, install, run, step, &job).await?;
                unit.tell::<Run>(run, RunCommand::CompleteStep { job: id }).await?;
            }
            // Builds have no step.
            JobKind::Build => {}
        },
        JobOutcome::Failed | JobOutcome::Cancelled | JobOutcome::Lost => {
            let (stale, detail) = why(&job);
            let told = if stale && kind == JobKind::Apply {
                RunCommand::VoidPlan { job: id, reason: detail }
            } else {
                let reason = match outcome {
                    JobOutcome::Cancelled => StepFailure::JobCancelled,
                    JobOutcome::Lost => StepFailure::JobLost,
                    JobOutcome::Failed | JobOutcome::Succeeded => StepFailure::JobFailed,
                };
                RunCommand::FailStep { step, job: Some(id), reason, detail }
            };
            unit.tell::<Run>(run, told).await?;
        }
    }
    tidy(unit, install, run).await
}

async fn planned(
    unit: &mut Unit,
    install: InstallId,
    run: RunId,
    step: StepId,
    id: JobId,
    job: &Job,
) -> Result<(), Problem> {
    let found = job.heard.iter().find_map(|event| {
        let JobEvent::PlanProduced { plan, .. } = event else { return None };
        Some(plan.clone())
    });
    let Some(report) = found else {
        let (reason, detail) = (StepFailure::JobFailed, "the plan job reported no plan".into());
        let fail = RunCommand::FailStep { step, job: Some(id), reason, detail };
        unit.tell::<Run>(run, fail).await?;
        return Ok(());
    };
    let noop = report.noop;
    let plan = PlanFacts {
        digest: report.digest,
        summary: report.summary,
        noop,
        add: report.add,
        change: report.change,
        destroy: report.destroy,
    };
    if noop {
        record(unit, install, run, step, job).await?;
    }
    let approval = if unit.load::<Install>(install).await?.auto_approve {
        Approval::Automatic
    } else {
        Approval::Principal { expires_at: unit.now() + APPROVAL_TTL }
    };
    unit.tell::<Run>(run, RunCommand::RecordPlan { job: id, plan, approval }).await?;
    Ok(())
}

/// Tell the install what is there now, or gone.
async fn record(
    unit: &mut Unit,
    install: InstallId,
    run: RunId,
    step: StepId,
    job: &Job,
) -> Result<(), Problem> {
    let reported = job.heard.iter().find_map(|event| {
        let JobEvent::OutputsReported { outputs, .. } = event else { return None };
        Some(outputs.clone())
    });
    let state = unit.load::<Run>(run).await?;
    let config_version = state.request.as_ref().map_or(0, |request| request.config_version);
    let Some(spec) = state.step(step).map(|step| step.spec.clone()) else { return Ok(()) };
    let has = unit.load::<Install>(install).await?.clone();
    let fingerprint = spec.fingerprint.clone();
    let result = match (spec.target, spec.operation) {
        (Target::Sandbox { .. }, Operation::Destroy) => StepResult::SandboxDestroyed,
        (Target::Component { name, .. }, Operation::Destroy) => {
            StepResult::ComponentDestroyed { name }
        }
        (Target::Sandbox { build }, Operation::Apply | Operation::Execute) => {
            let kept = || has.sandbox.as_ref().map(|sandbox| sandbox.outputs.clone());
            let outputs = reported.or_else(kept).unwrap_or_default();
            let fingerprint = fingerprint.ok_or_else(without_fingerprint)?;
            StepResult::SandboxProvisioned { build, config_version, fingerprint, outputs }
        }
        (
            Target::Component { component, name, build, needs },
            Operation::Apply | Operation::Execute,
        ) => {
            let kept = || has.components.get(&name).map(|component| component.outputs.clone());
            let outputs: Outputs = reported.or_else(kept).unwrap_or_default();
            let fingerprint = fingerprint.ok_or_else(without_fingerprint)?;
            StepResult::ComponentDeployed {
                name,
                component,
                build,
                config_version,
                fingerprint,
                needs,
                outputs,
            }
        }
        (Target::Action { name }, _) => {
            StepResult::ActionCompleted { name, outputs: reported.unwrap_or_default() }
        }
    };
    unit.tell::<Install>(install, InstallCommand::Record { run, step, result }).await?;
    Ok(())
}

fn without_fingerprint() -> Problem {
    Problem::internal("a step that brings something has no fingerprint")
}

/// Whether the plan under an apply went stale, and what the job says became of it.
fn why(job: &Job) -> (bool, String) {
    let said = job.heard.iter().rev().find_map(|event| {
        let JobEvent::Failed { reason, detail, .. } = event else { return None };
        Some((*reason == domain::job::FailureReason::PlanIsStale, detail.clone()))
    });
    said.unwrap_or_else(|| match &job.state {
        JobState::Ended { outcome, .. } => (false, format!("the job was {outcome}")),
        JobState::Unborn
        | JobState::Queued { .. }
        | JobState::Claimed(_)
        | JobState::Running(_)
        | JobState::OutcomeUnknown(_) => (false, "the job has not ended".into()),
    })
}

enum Built {
    Yes(Artifact),
    NotNeeded,
    NotYet(BuildId),
    Failed(BuildId),
}

async fn built(unit: &mut Unit, target: &Target) -> Result<Built, Problem> {
    let id = match target {
        Target::Sandbox { build } | Target::Component { build, .. } => *build,
        Target::Action { .. } => return Ok(Built::NotNeeded),
    };
    Ok(match &unit.load::<Build>(id).await?.state {
        domain::build::State::Succeeded { artifact } => Built::Yes(artifact.clone()),
        domain::build::State::Failed { .. } => Built::Failed(id),
        domain::build::State::Unborn
        | domain::build::State::Requested
        | domain::build::State::Building { .. } => Built::NotYet(id),
    })
}

fn resource(target: &Target) -> Option<Resource> {
    match target {
        Target::Sandbox { .. } => Some(Resource::Sandbox),
        Target::Component { name, .. } => Some(Resource::Component(name.clone())),
        Target::Action { .. } => None,
    }
}
