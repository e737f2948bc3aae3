//! "Why is it waiting?", for everything that waits.
use domain::{
    build::{Build, State as BuildState},
    install::{Holder, Install},
    job::{Contact, Job, Origin, State as JobState},
    run::{Run, Step, StepState, Target},
    runner::{Runner, Side},
};
use schemas::control::Waiting;

use crate::{problem::Problem, state::App};

fn on(what: &str, detail: impl Into<String>) -> Waiting {
    Waiting {
        on: what.into(),
        detail: detail.into(),
        job: None,
        run: None,
        install: None,
        runner: None,
    }
}

/// What a job waits for; nothing while it is worked on or over.
pub async fn job(app: &App, job: &Job) -> Result<Option<Waiting>, Problem> {
    match (&job.state, &job.work) {
        (JobState::OutcomeUnknown(held), _) => {
            let detail = format!(
                "nobody can say what became of {}; look, then `stead jobs resolve`",
                held.id
            );
            Ok(Some(on("verdict", detail)))
        }
        (JobState::Claimed(held) | JobState::Running(held), _) => Ok(match held.contact {
            Contact::Connected => None,
            Contact::Disconnected => {
                let detail =
                    "no word from the runner; the job goes on there, and its report is awaited";
                Some(Waiting { runner: Some(held.runner), ..on("runner", detail) })
            }
        }),
        (JobState::Queued { .. }, Some(work)) => match work.origin {
            Origin::Build { .. } => Ok(Some(on("slot", "a build runner with a free slot"))),
            Origin::Step { install, .. } => {
                let install = app.engine.load::<Install>(install).await?;
                runner(app, &install).await.map(Some)
            }
        },
        (JobState::Queued { .. } | JobState::Unborn | JobState::Ended { .. }, _) => Ok(None),
    }
}

/// What stands between a queued job and the runner of its install.
async fn runner(app: &App, install: &Install) -> Result<Waiting, Problem> {
    let Some(stack) = &install.stack else {
        let detail =
            format!("no runner has enrolled: `stead installs enrol-token {}`", install.name);
        return Ok(on("runner", detail));
    };
    let state = app.engine.load::<Runner>(stack.runner).await?;
    let detail = if state.revoked {
        "the runner was revoked; the install needs a new one".to_owned()
    } else if state.disabled.contains(&Side::Customer) {
        "the customer has disabled the runner".to_owned()
    } else if state.disabled.contains(&Side::Vendor) {
        format!("the runner is disabled: `stead runners enable {}`", stack.runner)
    } else if state.draining {
        format!("the runner is draining: `stead runners resume {}`", stack.runner)
    } else if let Some(since) = state.silent_since {
        format!("no word from the runner since {}", schemas::moment::text(&since))
    } else {
        let waiting = on("slot", "the runner takes it as soon as it has a free slot");
        return Ok(Waiting { runner: Some(stack.runner), ..waiting });
    };
    Ok(Waiting { runner: Some(stack.runner), ..on("runner", detail) })
}

/// What a step waits for; nothing while it is worked on or over.
pub async fn step(
    app: &App,
    run: (&str, &Run),
    step: &Step,
    install: &Install,
) -> Result<Option<Waiting>, Problem> {
    match &step.state {
        StepState::Waiting => not_started(app, run.1, step, install).await,
        StepState::Planning { job: id }
        | StepState::Applying { job: id, .. }
        | StepState::Executing { job: id } => {
            let state = app.engine.load::<Job>(id).await?;
            Ok(job(app, &state).await?.map(|waiting| Waiting { job: Some(*id), ..waiting }))
        }
        StepState::AwaitingApproval { expires_at, .. } => Ok(Some(on(
            "approval",
            format!(
                "somebody who may approve, until {}: `stead runs approve {} --step {}`",
                schemas::moment::text(expires_at),
                run.0,
                super::run::name(&step.spec.target)
            ),
        ))),
        StepState::Approved { .. }
        | StepState::Succeeded { .. }
        | StepState::Failed { .. }
        | StepState::Skipped { .. } => Ok(None),
    }
}

async fn not_started(
    app: &App,
    run: &Run,
    step: &Step,
    install: &Install,
) -> Result<Option<Waiting>, Problem> {
    let open = |id| run.step(id).filter(|needed| !needed.state.is_over());
    let needed: Vec<_> = step.spec.needs.iter().filter_map(|id| open(*id)).collect();
    if !needed.is_empty() {
        let names: Vec<_> = needed.iter().map(|s| super::run::name(&s.spec.target)).collect();
        return Ok(Some(on("dependency", names.join(", "))));
    }
    let (build, holder) = match &step.spec.target {
        Target::Sandbox { build } => {
            let any = install.sandbox_holder.or_else(|| install.holders.values().next().copied());
            (Some(build), any)
        }
        Target::Component { build, name, .. } => {
            (Some(build), install.sandbox_holder.or_else(|| install.holders.get(name).copied()))
        }
        Target::Action { .. } => (None, None),
    };
    if let Some(build) = build
        && let BuildState::Requested | BuildState::Building { .. } =
            app.engine.load::<Build>(build).await?.state
    {
        return Ok(Some(on("build", format!("{build} has not made the artifact yet"))));
    }
    let other = |holder: &Holder| holder.step != step.spec.step;
    Ok(holder.filter(other).map(|holder| {
        let detail = format!("a step of {} holds it", holder.run);
        Waiting { run: Some(holder.run), ..on("reservation", detail) }
    }))
}
