//! How a run goes on, step by step.
use domain::{
    artifact::Artifact,
    build::{Build, BuildCommand},
    ids::{BuildId, InstallId, JobId, RunId, StepId},
    install::{Changing, Install, InstallCommand, InstallError, Resource},
    job::{Job, JobCommand},
    run::{Cancel, Next, Run, RunCommand, Step, StepFailure, StepState, Target},
};
use futures::FutureExt as _;

use crate::{
    compose::{self, step::Composed},
    execute::{Call, Done, Unit},
    problem::{Code, Problem},
    state::App,
};

pub mod settle;

/// The longest text that a failure takes with it: what is longer might not fit into an event.
const DETAIL_BYTES: usize = 4096;

/// Do what a run wants now. Asking twice is harmless.
pub async fn go_on(app: &App, call: &Call, run: RunId) -> Result<Done<()>, Problem> {
    let (owned, engine) = (app.clone(), app.engine.clone());
    engine
        .transact(call, move |unit| {
            let app = owned.clone();
            async move {
                for next in unit.load::<Run>(run).await?.next() {
                    advance(&app, unit, run, next).await?;
                }
                tidy(unit, run).await
            }
            .boxed()
        })
        .await
}

/// Do one thing that a run wants, if it still does.
pub async fn go_on_with(
    app: &App,
    call: &Call,
    run: RunId,
    next: Next,
) -> Result<Done<()>, Problem> {
    let (owned, engine) = (app.clone(), app.engine.clone());
    engine
        .transact(call, move |unit| {
            let app = owned.clone();
            async move {
                if unit.load::<Run>(run).await?.next().contains(&next) {
                    advance(&app, unit, run, next).await?;
                }
                tidy(unit, run).await
            }
            .boxed()
        })
        .await
}

/// What a run wants cannot be done: its step fails and says why, instead of standing still.
pub async fn give_up(
    app: &App,
    call: &Call,
    run: RunId,
    next: Next,
    detail: &str,
) -> Result<Done<()>, Problem> {
    let detail = shortened(detail);
    app.engine
        .transact(call, move |unit| {
            let detail = detail.clone();
            async move {
                let is_wanted = unit.load::<Run>(run).await?.next().contains(&next);
                match next {
                    Next::Start(step) | Next::Apply(step) if is_wanted => {
                        fail(unit, run, step, StepFailure::RenderFailed, detail).await?;
                    }
                    // The job hears of the cancel with its next chance, or ends by itself.
                    Next::Start(_) | Next::Apply(_) | Next::CancelJob(_) => {}
                }
                tidy(unit, run).await
            }
            .boxed()
        })
        .await
}

async fn advance(app: &App, unit: &mut Unit, run: RunId, next: Next) -> Result<(), Problem> {
    let state = unit.load::<Run>(run).await?.clone();
    let Some(request) = &state.request else { return Ok(()) };
    match next {
        Next::Start(step) => match state.step(step) {
            Some(step) => start(app, unit, request.install, run, step).await,
            None => Ok(()),
        },
        Next::Apply(step) => match state.step(step) {
            Some(step) => apply(app, unit, request.install, run, step).await,
            None => Ok(()),
        },
        Next::CancelJob(job) => {
            let Some(Cancel { by, reason, force }) = state.cancel.clone() else { return Ok(()) };
            // A job that has ended in the meantime says so by its own event.
            let cancel = JobCommand::RequestCancel { by, reason, force };
            let _already_over = unit.ask::<Job>(job, cancel).await?;
            Ok(())
        }
    }
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
    if let Some(detail) = compose::step::lacks_plugin(app, unit, run, step).await? {
        return fail(unit, run, id, StepFailure::RenderFailed, detail).await;
    }
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
    match theirs(compose::step::first(app, unit, run, step, job, artifact).await)? {
        Ok(work) => {
            unit.begin::<Job>(job, JobCommand::Queue(work)).await?;
            unit.tell::<Run>(run, RunCommand::StartStep { step: id, job }).await?;
            Ok(())
        }
        Err(detail) => fail(unit, run, id, StepFailure::RenderFailed, detail).await,
    }
}

/// Queue the job that applies exactly the plan that was approved.
async fn apply(
    app: &App,
    unit: &mut Unit,
    install: InstallId,
    run: RunId,
    step: &Step,
) -> Result<(), Problem> {
    let StepState::Approved { plan } = &step.state else { return Ok(()) };
    let id = step.spec.step;
    let artifact = match built(unit, &step.spec.target).await? {
        Built::Yes(artifact) => Some(artifact),
        Built::NotNeeded | Built::NotYet(_) | Built::Failed(_) => None,
    };
    let job = JobId(ulid::Ulid::new());
    match theirs(compose::step::apply(app, unit, run, step, job, artifact, plan).await)? {
        Ok(work) => {
            unit.begin::<Job>(job, JobCommand::Queue(work)).await?;
            unit.tell::<Run>(run, RunCommand::StartApply { step: id, job }).await?;
            let config_version = compose::step::version(unit, run, step).await?;
            if let Some(changing) = changing(&step.spec.target, config_version) {
                let begin = InstallCommand::Begin { run, step: id, changing };
                unit.tell::<Install>(install, begin).await?;
            }
            Ok(())
        }
        Err(detail) => fail(unit, run, id, StepFailure::RenderFailed, detail).await,
    }
}

/// A config or inputs that are refused are the vendor's to mend, like a template that cannot be
/// rendered: the step says so. What the database or the server did wrong is tried again.
fn theirs(composed: Result<Composed, Problem>) -> Result<Composed, Problem> {
    match composed {
        Err(problem) if matches!(problem.code, Code::Invalid | Code::NotFound | Code::TooLarge) => {
            let wrong = problem.errors.iter().map(|error| error.message.clone());
            let told: Vec<String> = [problem.detail.clone()].into_iter().chain(wrong).collect();
            Ok(Err(told.join("; ")))
        }
        composed => composed,
    }
}

async fn fail(
    unit: &mut Unit,
    run: RunId,
    step: StepId,
    reason: StepFailure,
    detail: String,
) -> Result<(), Problem> {
    let detail = shortened(&detail);
    let fail = RunCommand::FailStep { step, job: None, reason, detail, may_retry: false };
    unit.tell::<Run>(run, fail).await?;
    Ok(())
}

/// Let go of what steps that are over held, and close the run when it has ended.
pub(super) async fn tidy(unit: &mut Unit, run: RunId) -> Result<(), Problem> {
    let state = unit.load::<Run>(run).await?;
    let Some(install) = state.request.as_ref().map(|request| request.install) else {
        return Ok(());
    };
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

/// A text that fits into an event beside everything else, cut where it is too long.
pub(crate) fn shortened(text: &str) -> String {
    if text.len() <= DETAIL_BYTES {
        return text.to_owned();
    }
    format!("{} …", &text[..text.floor_char_boundary(DETAIL_BYTES)])
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

/// What an apply of this step may leave half done.
fn changing(target: &Target, config_version: u32) -> Option<Changing> {
    match target.clone() {
        Target::Sandbox { build } => Some(Changing::Sandbox { build, config_version }),
        Target::Component { component, name, build, needs } => {
            Some(Changing::Component { name, component, build, config_version, needs })
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
