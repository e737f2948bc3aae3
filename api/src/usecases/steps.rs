//! Advances runs step by step.
use domain::{
    build::{Build, BuildCommand},
    ids::{BuildId, InstallId, JobId, RunId, StepId},
    install::{Install, InstallCommand, InstallError, Resource, ResourceChange},
    job::{Job, JobCommand},
    run::{Cancel, Effect, Operation, Run, RunCommand, Step, StepFailure, StepState, Target},
};
use futures::FutureExt as _;

use super::preflight;
use crate::{
    execute::{Call, Done, UnitOfWork},
    ids,
    problem::{Code, Problem},
    render::{self, step::Artifacts},
    state::App,
    state_versions::{self, Of},
};

pub(crate) mod complete;

/// Maximum length of a failure detail, in bytes. Longer text might exceed the size of an event.
const MAX_DETAIL_BYTES: usize = 4096;

/// Executes the effects that a run requires now. Idempotent.
pub(crate) async fn go_on(app: &App, call: &Call, run: RunId) -> Result<Done<()>, Problem> {
    let (owned, engine) = (app.clone(), app.engine.clone());
    engine
        .transact(call, move |unit| {
            let app = owned.clone();
            async move {
                for next in unit.load::<Run>(run).await?.effects() {
                    advance(&app, unit, run, next).await?;
                    // A preflight that fails at once ends the run.
                    if unit.load::<Run>(run).await?.outcome.is_some() {
                        break;
                    }
                }
                release_finished(unit, run).await
            }
            .boxed()
        })
        .await
}

/// Executes one effect of a run, if the run still requires it.
pub(crate) async fn go_on_with(
    app: &App,
    call: &Call,
    run: RunId,
    next: Effect,
) -> Result<Done<()>, Problem> {
    let (owned, engine) = (app.clone(), app.engine.clone());
    engine
        .transact(call, move |unit| {
            let app = owned.clone();
            async move {
                if unit.load::<Run>(run).await?.effects().contains(&next) {
                    advance(&app, unit, run, next).await?;
                }
                release_finished(unit, run).await
            }
            .boxed()
        })
        .await
}

/// Fails the step whose effect cannot be executed, so that the run does not stall.
pub(crate) async fn give_up(
    app: &App,
    call: &Call,
    run: RunId,
    next: Effect,
    detail: &str,
) -> Result<Done<()>, Problem> {
    let detail = truncated(detail);
    app.engine
        .transact(call, move |unit| {
            let detail = detail.clone();
            async move {
                let is_wanted = unit.load::<Run>(run).await?.effects().contains(&next);
                match next {
                    Effect::StartPreflight if is_wanted => {
                        preflight::give_up(unit, run, None, detail).await?;
                    }
                    Effect::Start(step) | Effect::Apply(step) if is_wanted => {
                        fail(unit, run, step, StepFailure::RenderFailed, detail).await?;
                    }
                    // A job whose cancellation failed is cancelled later, or ends without a
                    // cancellation.
                    Effect::StartPreflight
                    | Effect::Start(_)
                    | Effect::Apply(_)
                    | Effect::CancelJob(_) => {}
                }
                release_finished(unit, run).await
            }
            .boxed()
        })
        .await
}

async fn advance(
    app: &App,
    unit: &mut UnitOfWork,
    run: RunId,
    next: Effect,
) -> Result<(), Problem> {
    let state = unit.load::<Run>(run).await?.clone();
    let Some(request) = &state.request else { return Ok(()) };
    match next {
        Effect::StartPreflight => preflight::start(app, unit, run).await,
        Effect::Start(step) => match state.step(step) {
            Some(step) => start(app, unit, request.install, run, step).await,
            None => Ok(()),
        },
        Effect::Apply(step) => match state.step(step) {
            Some(step) => apply(app, unit, request.install, run, step).await,
            None => Ok(()),
        },
        Effect::CancelJob(job) => {
            let Some(Cancel { by, reason, force }) = state.stop_request() else { return Ok(()) };
            // A job that has ended in the meantime rejects the cancellation. The event of its end
            // completes the step.
            let cancel = JobCommand::RequestCancel { by, reason, force };
            let _already_over = unit.try_handle::<Job>(job, cancel).await?;
            Ok(())
        }
    }
}

/// Queues the first job of a step, if its artifact is built and its resource can be reserved.
async fn start(
    app: &App,
    unit: &mut UnitOfWork,
    install: InstallId,
    run: RunId,
    step: &Step,
) -> Result<(), Problem> {
    let id = step.spec.step;
    if step.spec.operation == Operation::Check {
        // Another run can have removed the component since the request.
        let has = unit.load::<Install>(install).await?.has(&step.spec.target);
        if !has {
            let detail = "the install no longer has it".into();
            return fail(unit, run, id, StepFailure::RenderFailed, detail).await;
        }
    }
    if let Some(detail) = render::step::missing_plugin(app, unit, run, step).await? {
        return fail(unit, run, id, StepFailure::RenderFailed, detail).await;
    }
    let artifacts = match artifacts_of(app, unit, run, step).await? {
        ArtifactState::Available(artifacts) => artifacts,
        ArtifactState::Pending(build) => {
            unit.handle::<Build>(build, BuildCommand::AddWaiter { run }).await?;
            return Ok(());
        }
        ArtifactState::Failed(build) => {
            let detail = format!("{build} failed; see `stead builds show {build}`");
            return fail(unit, run, id, StepFailure::BuildFailed, detail).await;
        }
    };
    if let Some(resource) = resource(&step.spec.target) {
        let reserve = InstallCommand::Reserve { resource, run, step: id };
        if !has_state(app, unit, install, &step.spec.target).await?
            || !reserved(unit, install, reserve).await?
        {
            return Ok(());
        }
    }
    let job = JobId(ids::new_ulid());
    match as_message(render::step::render_first_job(app, unit, run, step, job, &artifacts).await)? {
        Ok(work) => {
            unit.create::<Job>(job, JobCommand::Queue(work)).await?;
            unit.handle::<Run>(run, RunCommand::StartStep { step: id, job }).await?;
            Ok(())
        }
        Err(detail) => fail(unit, run, id, StepFailure::RenderFailed, detail).await,
    }
}

/// Reserves a resource. Returns false if the step must wait for another step.
async fn reserved(
    unit: &mut UnitOfWork,
    install: InstallId,
    reserve: InstallCommand,
) -> Result<bool, Problem> {
    match unit.try_handle::<Install>(install, reserve).await? {
        Ok(_) => Ok(true),
        Err(InstallError::Held { .. }) => Ok(false),
        Err(refused) => Err(refused.into()),
    }
}

/// Returns false if the step must wait for a state that only the runner's host has.
async fn has_state(
    app: &App,
    unit: &mut UnitOfWork,
    install: InstallId,
    target: &Target,
) -> Result<bool, Problem> {
    let Some(name) = render::step::component_of(target).map(str::to_owned) else { return Ok(true) };
    let awaited = unit.load::<Install>(install).await?.awaited_states.get(&name).cloned();
    let Some(state) = awaited else { return Ok(true) };
    // It may have arrived while the event that awaits it was committed.
    if !state_versions::has(&app.pool, Of { install, component: &name }, &state).await? {
        return Ok(false);
    }
    let arrived = InstallCommand::RecordStateArrival { name, state, is_decided: false };
    unit.handle::<Install>(install, arrived).await?;
    Ok(true)
}

/// Queues the job that applies exactly the approved plan.
async fn apply(
    app: &App,
    unit: &mut UnitOfWork,
    install: InstallId,
    run: RunId,
    step: &Step,
) -> Result<(), Problem> {
    let StepState::Approved { plan } = &step.state else { return Ok(()) };
    // The job that planned may have ended before its state arrived.
    if !has_state(app, unit, install, &step.spec.target).await? {
        return Ok(());
    }
    let id = step.spec.step;
    let artifacts = match artifacts_of(app, unit, run, step).await? {
        ArtifactState::Available(artifacts) => artifacts,
        ArtifactState::Pending(_) | ArtifactState::Failed(_) => Artifacts::new(),
    };
    let job = JobId(ids::new_ulid());
    match as_message(
        render::step::render_apply_job(app, unit, run, step, job, &artifacts, plan).await,
    )? {
        Ok(work) => {
            unit.create::<Job>(job, JobCommand::Queue(work)).await?;
            unit.handle::<Run>(run, RunCommand::StartApply { step: id, job }).await?;
            let config_version = render::step::version(unit, run, step).await?;
            if let Some(changing) = changing(&step.spec.target, config_version) {
                let begin = InstallCommand::StartApply { run, step: id, change: changing };
                unit.handle::<Install>(install, begin).await?;
            }
            Ok(())
        }
        Err(detail) => fail(unit, run, id, StepFailure::RenderFailed, detail).await,
    }
}

/// Converts a rejected config or input into a message for the vendor, as for a template that cannot
/// be rendered. Only the vendor can fix such errors. Errors of the database or the server are retried.
pub(super) fn as_message<T>(
    composed: Result<Result<T, String>, Problem>,
) -> Result<Result<T, String>, Problem> {
    match composed {
        Err(problem) if matches!(problem.code, Code::Invalid | Code::NotFound | Code::TooLarge) => {
            let field_messages = problem.errors.iter().map(|error| error.message.clone());
            let messages: Vec<String> =
                [problem.detail.clone()].into_iter().chain(field_messages).collect();
            Ok(Err(messages.join("; ")))
        }
        composed => composed,
    }
}

async fn fail(
    unit: &mut UnitOfWork,
    run: RunId,
    step: StepId,
    reason: StepFailure,
    detail: String,
) -> Result<(), Problem> {
    let detail = truncated(&detail);
    let fail = RunCommand::FailStep { step, job: None, reason, detail, may_retry: false };
    unit.handle::<Run>(run, fail).await?;
    Ok(())
}

/// Releases the resources of finished steps. If the run has ended, also records the end on its
/// install.
pub(super) async fn release_finished(unit: &mut UnitOfWork, run: RunId) -> Result<(), Problem> {
    let state = unit.load::<Run>(run).await?;
    let Some(install) = state.request.as_ref().map(|request| request.install) else {
        return Ok(());
    };
    let outcome = state.outcome;
    let finished: Vec<StepId> =
        state.steps.iter().filter(|step| step.state.is_over()).map(|step| step.spec.step).collect();
    for step in finished {
        if unit.load::<Install>(install).await?.is_holding(run, step) {
            unit.handle::<Install>(install, InstallCommand::Release { run, step }).await?;
        }
    }
    if let Some(outcome) = outcome {
        unit.handle::<Install>(install, InstallCommand::FinishRun { run, outcome }).await?;
        super::installs::release_name(unit, install).await?;
    }
    Ok(())
}

/// Truncates a string so that it fits into an event with the other fields.
pub(crate) fn truncated(text: &str) -> String {
    if text.len() <= MAX_DETAIL_BYTES {
        return text.to_owned();
    }
    format!("{} …", &text[..text.floor_char_boundary(MAX_DETAIL_BYTES)])
}

enum ArtifactState {
    Available(Artifacts),
    Pending(BuildId),
    Failed(BuildId),
}

/// Returns the artifacts of a step, if all their builds have succeeded.
async fn artifacts_of(
    app: &App,
    unit: &mut UnitOfWork,
    run: RunId,
    step: &Step,
) -> Result<ArtifactState, Problem> {
    let (mut artifacts, mut pending) = (Artifacts::new(), None);
    for (name, id) in render::step::builds(app, unit, run, step).await? {
        match &unit.load::<Build>(id).await?.state {
            domain::build::State::Succeeded { artifact } => {
                artifacts.insert(name, artifact.clone());
            }
            domain::build::State::Failed { .. } => return Ok(ArtifactState::Failed(id)),
            domain::build::State::NotCreated
            | domain::build::State::Requested
            | domain::build::State::Building { .. } => pending = Some(id),
        }
    }
    Ok(pending.map_or(ArtifactState::Available(artifacts), ArtifactState::Pending))
}

/// Sandbox or component that an apply of this step may leave incomplete. `None` for an action.
fn changing(target: &Target, config_version: u32) -> Option<ResourceChange> {
    match target.clone() {
        Target::Sandbox { build } => Some(ResourceChange::Sandbox { build, config_version }),
        Target::Component { component, name, build, depends_on } => {
            Some(ResourceChange::Component { name, component, build, config_version, depends_on })
        }
        Target::Action { .. } => None,
    }
}

fn resource(target: &Target) -> Option<Resource> {
    match target {
        Target::Sandbox { .. } => Some(Resource::Sandbox),
        Target::Component { name, .. } => Some(Resource::Component(name.clone())),
        Target::Action { .. } => None,
    }
}
