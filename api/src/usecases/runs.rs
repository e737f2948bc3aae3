//! Runs: asked for, approved, denied, cancelled, tried again.
use std::collections::BTreeSet;

use app_config::model::TriggerKind;
use domain::{
    actor::Actor,
    app::App as AppState,
    ids::{InstallId, RunId, StepId},
    install::{Install, InstallCommand},
    run::{
        Cause, Request, Run, RunCommand, RunKind, StepSpec, StepState, Target, Word,
        plan::{self, Scope},
    },
};
use futures::FutureExt as _;
use schemas::problem::FieldProblem;

use super::{
    installs::{passed, release_name},
    stack, steps, toggles,
};
use crate::{
    compose::{
        config::{Config, published},
        wanted,
    },
    execute::{Call, Done, Unit},
    problem::{Code, Problem},
    state::App,
};

/// What is wished of an install.
#[derive(Debug, Clone)]
pub struct Wish {
    /// What is to be done.
    pub kind: RunKind,
    /// Which components it is about.
    pub scope: Scope,
    /// The script, where the wish is one.
    pub action: Option<String>,
    /// Why.
    pub cause: Cause,
    /// In the words of who asked.
    pub reason: Option<String>,
}

/// Ask for a run. Nothing to do is refused; only where nothing is left of an install, it is deprovisioned
/// without one.
pub async fn request(
    app: &App,
    call: &Call,
    install: InstallId,
    wish: Wish,
) -> Result<Done<Option<RunId>>, Problem> {
    let (owned, engine) = (app.clone(), app.engine.clone());
    let by = call.meta.actor.clone();
    engine
        .transact(call, move |unit| {
            let (app, wish, by) = (owned.clone(), wish.clone(), by.clone());
            async move {
                let is_last = wish.kind == RunKind::Deprovision;
                let run = tell(&app, unit, install, wish, by).await?;
                if run.is_none() && !is_last {
                    let detail = format!("there is nothing to do for {install}");
                    return Err(Problem::new(Code::NothingToDo, detail));
                }
                if run.is_none() {
                    unit.tell::<Install>(install, InstallCommand::Deprovision).await?;
                    release_name(unit, install).await?;
                }
                Ok(run)
            }
            .boxed()
        })
        .await
}

/// The install provisions itself when its runner has enrolled, once. A runner that takes the place of
/// another changes nothing of what people decided: an install that was torn down stays empty.
pub async fn provision(app: &App, call: &Call, install: InstallId) -> Result<Done<()>, Problem> {
    let (owned, engine) = (app.clone(), app.engine.clone());
    let by = call.meta.actor.clone();
    engine
        .transact(call, move |unit| {
            let (app, by) = (owned.clone(), by.clone());
            async move {
                let state = unit.load::<Install>(install).await?;
                if !state.was_begun && state.runs.is_empty() && !state.deprovisioned {
                    let wish = Wish {
                        kind: RunKind::Provision,
                        scope: Scope::Everything,
                        action: None,
                        cause: Cause::RunnerEnrolled,
                        reason: None,
                    };
                    tell(&app, unit, install, wish, by).await?;
                }
                Ok(())
            }
            .boxed()
        })
        .await
}

/// Plan a run at what is true now, and have the install admit it, in one commit.
pub async fn tell(
    app: &App,
    unit: &mut Unit,
    install: InstallId,
    wish: Wish,
    by: Actor,
) -> Result<Option<RunId>, Problem> {
    let state = unit.load::<Install>(install).await?.clone();
    let app_id = state.app.ok_or_else(|| Problem::not_found(install))?;
    let mut steps = steps_of(app, unit, app_id, &state, &wish).await?;
    if steps.is_empty() {
        return Ok(None);
    }
    set_options(app, unit, app_id, state.config_version, &mut steps).await?;
    let run = RunId(ulid::Ulid::new());
    let position = unit.log().position();
    let named = |step: &StepSpec| match &step.target {
        Target::Component { name, .. } => Some(name.clone()),
        Target::Sandbox { .. } | Target::Action { .. } => None,
    };
    let names: BTreeSet<String> = steps.iter().filter_map(named).collect();
    let admit = InstallCommand::AdmitRun { run, kind: wish.kind, components: names };
    unit.tell::<Install>(install, admit).await?;
    let request = Request {
        install,
        kind: wish.kind,
        cause: wish.cause,
        by,
        config_version: state.config_version,
        reason: wish.reason,
    };
    unit.begin::<Run>(run, RunCommand::Request { request, steps, position }).await?;
    Ok(Some(run))
}

/// Which actions run at the end of a run of this kind; none at the end of what takes things down.
pub fn trigger(kind: RunKind) -> Option<TriggerKind> {
    match kind {
        RunKind::Provision => Some(TriggerKind::PostProvision),
        RunKind::Reprovision => Some(TriggerKind::PostReprovision),
        RunKind::Deploy | RunKind::Upgrade | RunKind::Rollback => {
            Some(TriggerKind::PostDeployAllComponents)
        }
        RunKind::InputUpdate => Some(TriggerKind::PostUpdateInputs),
        RunKind::Action => Some(TriggerKind::Manual),
        RunKind::Teardown | RunKind::Deprovision => None,
    }
}

/// Settings of the config version for each step. Steps without settings use the defaults.
async fn set_options(
    app: &App,
    unit: &mut Unit,
    app_id: domain::ids::AppId,
    config_version: u32,
    steps: &mut [StepSpec],
) -> Result<(), Problem> {
    let bundle = &published(unit.load::<AppState>(app_id).await?, config_version)?.bundle;
    let config = app.configs.get(&app.pool, bundle).await?;
    for step in steps {
        step.options = wanted::options(&config, &step.target);
    }
    Ok(())
}

async fn steps_of(
    app: &App,
    unit: &mut Unit,
    app_id: domain::ids::AppId,
    install: &Install,
    wish: &Wish,
) -> Result<Vec<StepSpec>, Problem> {
    let fresh = || StepId(ulid::Ulid::new());
    let present = install.present();
    let after = match trigger(wish.kind) {
        Some(after) => after,
        None if wish.kind == RunKind::Deprovision => return Ok(plan::deprovision(&present, fresh)),
        None => return Ok(plan::teardown(&present, &wish.scope, fresh)),
    };
    let state = unit.load::<AppState>(app_id).await?.clone();
    let published = published(&state, install.config_version)?;
    let config = app.configs.get(&app.pool, &published.bundle).await?;
    if wish.kind == RunKind::Action {
        let name = wish.action.clone().unwrap_or_default();
        if config.app.action(&name).is_none() {
            let known: Vec<&str> = config.app.actions.iter().map(|a| a.name.as_str()).collect();
            let detail =
                format!("the app has no action {name:?}; its actions are: {}", known.join(", "));
            return Err(Problem::new(Code::NotFound, detail));
        }
        let steps = vec![plan::action(fresh(), name, vec![])];
        stack::suffices(&config, install, &steps)?;
        return Ok(steps);
    }
    if let Scope::Named { names, .. } = &wish.scope {
        have_plugins(&config, names)?;
    }
    let inputs = passed(&config, &install.inputs)?;
    let (stack, toggles) = (install.stack_outputs(), &install.component_choices());
    if let Some(problem) = toggles::problem(&config, toggles) {
        return Err(Problem::new(Code::Refused, problem));
    }
    let given = wanted::Given { inputs: &inputs, stack: &stack, toggles };
    let wanted = wanted::wanted(&config, published, given, after)?;
    let scope = toggles::scope(&config, toggles, wish.scope.clone())?;
    let steps = plan::bring(&wanted, &present, &scope, fresh)?;
    stack::suffices(&config, install, &steps)?;
    Ok(steps)
}

/// Whoever names a component that nothing can deploy is told at once, before anything is planned.
fn have_plugins(config: &Config, names: &BTreeSet<String>) -> Result<(), Problem> {
    let lacking = names.iter().filter_map(|name| config.app.lacks_plugin(name));
    let errors: Vec<FieldProblem> = lacking
        .map(|message| {
            let field = Some("components".to_owned());
            FieldProblem { field, message, ..FieldProblem::default() }
        })
        .collect();
    if errors.is_empty() {
        return Ok(());
    }
    Err(Problem::invalid("these components cannot be deployed; nothing was changed", errors))
}

/// Say yes to exactly the plan of this digest.
pub async fn approve(app: &App, call: &Call, run: RunId, word: Word) -> Result<Done<()>, Problem> {
    say(app, call, run, RunCommand::Approve(word)).await
}

/// Say no to exactly the plan of this digest.
pub async fn deny(app: &App, call: &Call, run: RunId, word: Word) -> Result<Done<()>, Problem> {
    say(app, call, run, RunCommand::Deny(word)).await
}

/// End a run: what has not begun is skipped, what has is asked to stop.
pub async fn cancel(
    app: &App,
    call: &Call,
    run: RunId,
    reason: String,
    force: bool,
) -> Result<Done<()>, Problem> {
    let by = call.meta.actor.clone();
    say(app, call, run, RunCommand::RequestCancel { by, reason, force }).await
}

/// Nobody answered in time.
pub async fn expire_approval(
    app: &App,
    call: &Call,
    run: RunId,
    step: StepId,
    digest: domain::digest::Digest,
) -> Result<Done<()>, Problem> {
    say(app, call, run, RunCommand::ExpireApproval { step, digest }).await
}

/// Start an automatic retry whose back-off is over.
pub async fn start_retry(
    app: &App,
    call: &Call,
    run: RunId,
    step: StepId,
    attempt: u32,
) -> Result<Done<()>, Problem> {
    say(app, call, run, RunCommand::StartRetry { step, attempt }).await
}

/// Try again what failed: each step while the run goes on, else what the run left undone, as a run
/// of its own.
pub async fn retry(
    app: &App,
    call: &Call,
    run: RunId,
    reason: Option<String>,
) -> Result<Done<RunId>, Problem> {
    let (owned, engine) = (app.clone(), app.engine.clone());
    let by = call.meta.actor.clone();
    engine
        .transact(call, move |unit| {
            let (app, by, reason) = (owned.clone(), by.clone(), reason.clone());
            async move {
                let state = unit.load::<Run>(run).await?.clone();
                let request = state.request.clone().ok_or_else(|| Problem::not_found(run))?;
                if state.outcome.is_none() {
                    // A step that waits for its automatic retry starts at once.
                    let failed = |at: &&domain::run::Step| {
                        matches!(
                            at.state,
                            StepState::Failed { .. } | StepState::RetryScheduled { .. }
                        )
                    };
                    let steps: Vec<StepId> =
                        state.steps.iter().filter(failed).map(|at| at.spec.step).collect();
                    if steps.is_empty() {
                        return Err(domain::run::RunError::NotFailed.into());
                    }
                    for step in steps {
                        let retry =
                            RunCommand::RetryStep { step, by: by.clone(), reason: reason.clone() };
                        unit.tell::<Run>(run, retry).await?;
                    }
                    return Ok(run);
                }
                again(&app, unit, (run, &state), request, by, reason).await
            }
            .boxed()
        })
        .await
}

async fn again(
    app: &App,
    unit: &mut Unit,
    (run, state): (RunId, &Run),
    request: Request,
    by: Actor,
    reason: Option<String>,
) -> Result<RunId, Problem> {
    let undone = state.undone();
    let done =
        || Problem::new(Code::NothingToDo, "everything that the run was to do is done by now");
    if undone.is_empty() {
        return Err(done());
    }
    let now = unit.load::<Install>(request.install).await?.config_version;
    if trigger(request.kind).is_some() && now != request.config_version {
        let then = request.config_version;
        let detail = format!(
            "{run} was about version {then} and the install follows version {now} by now; \
             `stead installs upgrade` and `rollback` bring what differs"
        );
        return Err(Problem::new(Code::Refused, detail));
    }
    let (cause, kind) = (Cause::Retry { run }, request.kind);
    let action = undone.actions.first().cloned();
    let wish = Wish { kind, scope: Scope::Undone(undone), action, cause, reason };
    tell(app, unit, request.install, wish, by).await?.ok_or_else(done)
}

async fn say(app: &App, call: &Call, run: RunId, command: RunCommand) -> Result<Done<()>, Problem> {
    let engine = app.engine.clone();
    engine
        .transact(call, move |unit| {
            let command = command.clone();
            async move {
                unit.tell::<Run>(run, command).await?;
                steps::tidy(unit, run).await
            }
            .boxed()
        })
        .await
}
