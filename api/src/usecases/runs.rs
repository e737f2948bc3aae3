//! Runs: request, approve, deny, cancel and retry.
use std::collections::BTreeSet;

use app_config::model::TriggerKind;
use domain::{
    actor::Actor,
    app::App as AppState,
    ids::{InstallId, RunId, StepId},
    install::{Install, InstallCommand},
    run::{
        Cause, PlanDecision, Request, Run, RunCommand, RunKind, StepSpec, StepState, Target,
        plan::{self, Scope},
    },
};
use futures::FutureExt as _;
use schemas::problem::FieldProblem;

use super::{
    artifacts,
    installs::{is_unprovisioned, release_name},
    stack, steps, toggles,
};
use crate::{
    configs::{Config, awaited_inputs, published, resolved_inputs},
    execute::{Call, Done, UnitOfWork},
    ids,
    problem::{Code, Problem},
    render::desired,
    state::App,
};

/// Parameters of a run.
#[derive(Debug, Clone)]
pub(crate) struct RunRequest {
    pub kind: RunKind,
    pub scope: Scope,
    /// Name of the action, for a run of the kind action.
    pub action: Option<String>,
    pub cause: Cause,
    /// Reason given by the caller.
    pub reason: Option<String>,
    /// True if the run makes all plans that it can before its first change.
    pub plan_all: bool,
}

/// Requests a run. Rejects a run without changes, except for a deprovision: if nothing is left to
/// destroy, deprovisions the install without a run.
pub(crate) async fn request(
    app: &App,
    call: &Call,
    install: InstallId,
    request: RunRequest,
) -> Result<Done<Option<RunId>>, Problem> {
    let (owned, engine) = (app.clone(), app.engine.clone());
    let by = call.meta.actor.clone();
    engine
        .transact(call, move |unit| {
            let (app, request, by) = (owned.clone(), request.clone(), by.clone());
            async move {
                let request_kind = request.kind;
                let is_last = request_kind == RunKind::Deprovision;
                let run = plan_and_admit(&app, unit, install, request, by).await?;
                if run.is_none() && !is_last {
                    let detail = match request_kind {
                        RunKind::Drift => {
                            format!("cannot check {install}: it has no sandbox and no components")
                        }
                        RunKind::Provision
                        | RunKind::Reprovision
                        | RunKind::Deploy
                        | RunKind::InputUpdate
                        | RunKind::Upgrade
                        | RunKind::Rollback
                        | RunKind::Teardown
                        | RunKind::Deprovision
                        | RunKind::Action => {
                            format!("no changes for {install}: it already has the requested state")
                        }
                    };
                    return Err(Problem::new(Code::NoChanges, detail));
                }
                if run.is_none() {
                    unit.handle::<Install>(install, InstallCommand::Deprovision).await?;
                    release_name(unit, install).await?;
                }
                Ok(run)
            }
            .boxed()
        })
        .await
}

/// Provisions an install once, when its first runner enrols. A replacement runner starts no run,
/// so an install that was torn down stays empty.
pub(crate) async fn provision(
    app: &App,
    call: &Call,
    install: InstallId,
) -> Result<Done<()>, Problem> {
    let (owned, engine) = (app.clone(), app.engine.clone());
    let by = call.meta.actor.clone();
    engine
        .transact(call, move |unit| {
            let (app, by) = (owned.clone(), by.clone());
            async move {
                let state = unit.load::<Install>(install).await?.clone();
                if is_unprovisioned(&state) && !waits(&app, unit, &state).await? {
                    let request = RunRequest {
                        kind: RunKind::Provision,
                        scope: Scope::Everything,
                        action: None,
                        cause: Cause::RunnerEnrolled,
                        reason: None,
                        plan_all: false,
                    };
                    plan_and_admit(&app, unit, install, request, by).await?;
                }
                Ok(())
            }
            .boxed()
        })
        .await
}

/// Returns true if the install waits for sensitive inputs. Their change then requests the run.
async fn waits(app: &App, unit: &mut UnitOfWork, install: &Install) -> Result<bool, Problem> {
    let Some(of) = install.app else { return Ok(false) };
    let version = published(unit.load::<AppState>(of).await?, install.config_version)?;
    let config = app.configs.get(&app.pool, version).await?;
    Ok(!awaited_inputs(&config, &install.inputs).is_empty())
}

/// Plans a run from the current state and admits it to the install, in one commit.
pub(crate) async fn plan_and_admit(
    app: &App,
    unit: &mut UnitOfWork,
    install: InstallId,
    requested: RunRequest,
    by: Actor,
) -> Result<Option<RunId>, Problem> {
    let state = unit.load::<Install>(install).await?.clone();
    let app_id = state.app.ok_or_else(|| Problem::not_found(install))?;
    let mut steps = plan_steps(app, unit, app_id, &state, &requested).await?;
    if steps.is_empty() {
        return Ok(None);
    }
    // A provision after an enrolment has no caller to reject, and uses a version that is retained.
    if requested.cause != Cause::RunnerEnrolled {
        artifacts::check_steps(app, state.config_version, &steps).await?;
    }
    set_options(app, unit, app_id, state.config_version, &mut steps).await?;
    let run = RunId(ids::new_ulid());
    let position = unit.log().position();
    let component_name = |step: &StepSpec| match &step.target {
        Target::Component { name, .. } => Some(name.clone()),
        Target::Sandbox { .. } | Target::Action { .. } => None,
    };
    let names: BTreeSet<String> = steps.iter().filter_map(component_name).collect();
    let admit = InstallCommand::AdmitRun { run, kind: requested.kind, components: names };
    unit.handle::<Install>(install, admit).await?;
    let request = Request {
        install,
        kind: requested.kind,
        cause: requested.cause,
        by,
        config_version: state.config_version,
        reason: requested.reason,
        plan_all: requested.plan_all,
    };
    unit.create::<Run>(run, RunCommand::Request { request, steps, position }).await?;
    Ok(Some(run))
}

/// Adds the settings of the config version to each step. Steps without settings use the defaults.
async fn set_options(
    app: &App,
    unit: &mut UnitOfWork,
    app_id: domain::ids::AppId,
    config_version: u32,
    steps: &mut [StepSpec],
) -> Result<(), Problem> {
    let version = published(unit.load::<AppState>(app_id).await?, config_version)?;
    let config = app.configs.get(&app.pool, version).await?;
    for step in steps {
        step.options = desired::options(&config, &step.target);
    }
    Ok(())
}

async fn plan_steps(
    app: &App,
    unit: &mut UnitOfWork,
    app_id: domain::ids::AppId,
    install: &Install,
    request: &RunRequest,
) -> Result<Vec<StepSpec>, Problem> {
    let fresh = || StepId(ids::new_ulid());
    let present = install.actual_state();
    let after = match (request.kind, desired::trigger(request.kind)) {
        (_, Some(after)) => after,
        // A drift check reads the desired state and no actions.
        (RunKind::Drift, None) => TriggerKind::Manual,
        (RunKind::Deprovision, None) => return Ok(plan::deprovision(&present, fresh)),
        (
            RunKind::Provision
            | RunKind::Reprovision
            | RunKind::Deploy
            | RunKind::InputUpdate
            | RunKind::Upgrade
            | RunKind::Rollback
            | RunKind::Teardown
            | RunKind::Action,
            None,
        ) => return Ok(plan::teardown(&present, &request.scope, fresh)),
    };
    let state = unit.load::<AppState>(app_id).await?.clone();
    let published = published(&state, install.config_version)?;
    let config = app.configs.get(&app.pool, published).await?;
    if request.kind == RunKind::Action {
        let name = request.action.clone().unwrap_or_default();
        if config.app.action(&name).is_none() {
            let known: Vec<&str> = config.app.actions.iter().map(|a| a.name.as_str()).collect();
            let detail = format!(
                "cannot run the action: the app has no action {name:?}; its actions are: {}",
                known.join(", ")
            );
            return Err(Problem::new(Code::NotFound, detail));
        }
        let steps = vec![plan::action(fresh(), name, vec![])];
        stack::check_available(&config, install, &steps)?;
        return Ok(steps);
    }
    if let Scope::Named { names, .. } = &request.scope {
        check_plugins(&config, names)?;
    }
    let inputs = resolved_inputs(&config, &install.inputs)?;
    let (stack, toggles) = (install.stack_outputs(), &install.component_choices());
    if let Some(problem) = toggles::problem(&config, toggles) {
        return Err(Problem::new(Code::Rejected, problem));
    }
    let values = desired::InstallValues { inputs: &inputs, stack: &stack, toggles };
    let desired_steps = desired::desired_state(&config, published, values, after)?;
    if request.kind == RunKind::Drift {
        let steps = plan::drift(&desired_steps, &present, &request.scope, fresh);
        stack::check_available(&config, install, &steps)?;
        return Ok(steps);
    }
    let scope = toggles::scope(&config, toggles, request.scope.clone())?;
    let steps = plan::plan_deploy(&desired_steps, &present, &scope, fresh)?;
    stack::check_available(&config, install, &steps)?;
    Ok(steps)
}

/// Rejects named components that have no plugin, before anything is planned.
fn check_plugins(config: &Config, names: &BTreeSet<String>) -> Result<(), Problem> {
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
    Err(Problem::invalid("cannot deploy the components; nothing was changed", errors))
}

/// Approves the plan with this digest.
pub(crate) async fn approve(
    app: &App,
    call: &Call,
    run: RunId,
    decision: PlanDecision,
) -> Result<Done<()>, Problem> {
    handle_command(app, call, run, RunCommand::Approve(decision)).await
}

/// Denies the plan with this digest.
pub(crate) async fn deny(
    app: &App,
    call: &Call,
    run: RunId,
    decision: PlanDecision,
) -> Result<Done<()>, Problem> {
    handle_command(app, call, run, RunCommand::Deny(decision)).await
}

/// Cancels a run: skips steps that have not started, and requests the cancellation of steps in
/// progress.
pub(crate) async fn cancel(
    app: &App,
    call: &Call,
    run: RunId,
    reason: String,
    force: bool,
) -> Result<Done<()>, Problem> {
    let by = call.meta.actor.clone();
    handle_command(app, call, run, RunCommand::RequestCancel { by, reason, force }).await
}

/// Records that an approval timed out.
pub(crate) async fn expire_approval(
    app: &App,
    call: &Call,
    run: RunId,
    step: StepId,
    digest: domain::digest::Digest,
) -> Result<Done<()>, Problem> {
    handle_command(app, call, run, RunCommand::ExpireApproval { step, digest }).await
}

/// Starts an automatic retry after its back-off.
pub(crate) async fn start_retry(
    app: &App,
    call: &Call,
    run: RunId,
    step: StepId,
    attempt: u32,
) -> Result<Done<()>, Problem> {
    handle_command(app, call, run, RunCommand::StartRetry { step, attempt }).await
}

/// Retries failed steps. While the run is in progress, the run itself repeats the steps. Otherwise
/// a new run does the remaining work.
pub(crate) async fn retry(
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
                    // A step that waits for its automatic retry starts immediately.
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
                        unit.handle::<Run>(run, retry).await?;
                    }
                    return Ok(run);
                }
                retry_remaining(&app, unit, (run, &state), request, by, reason).await
            }
            .boxed()
        })
        .await
}

async fn retry_remaining(
    app: &App,
    unit: &mut UnitOfWork,
    (run, state): (RunId, &Run),
    request: Request,
    by: Actor,
    reason: Option<String>,
) -> Result<RunId, Problem> {
    let work = state.remaining_work();
    let done = || Problem::new(Code::NoChanges, "cannot retry the run: it has no remaining work");
    if work.is_empty() {
        return Err(done());
    }
    let now = unit.load::<Install>(request.install).await?.config_version;
    if desired::trigger(request.kind).is_some() && now != request.config_version {
        let then = request.config_version;
        let detail = format!(
            "cannot retry {run}: it used version {then}, but the install now follows version {now}; use `stead \
                 installs upgrade` or `rollback` instead"
        );
        return Err(Problem::new(Code::Rejected, detail));
    }
    let (cause, kind) = (Cause::Retry { run }, request.kind);
    let action = work.actions.first().cloned();
    let (scope, plan_all) = (Scope::Remaining(work), request.plan_all);
    let remaining = RunRequest { kind, scope, action, cause, reason, plan_all };
    plan_and_admit(app, unit, request.install, remaining, by).await?.ok_or_else(done)
}

async fn handle_command(
    app: &App,
    call: &Call,
    run: RunId,
    command: RunCommand,
) -> Result<Done<()>, Problem> {
    let engine = app.engine.clone();
    engine
        .transact(call, move |unit| {
            let command = command.clone();
            async move {
                unit.handle::<Run>(run, command).await?;
                steps::release_finished(unit, run).await
            }
            .boxed()
        })
        .await
}
