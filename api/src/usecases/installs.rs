//! Installs: creation, inputs, config versions and enrolment.
use std::collections::{BTreeMap, BTreeSet};

use domain::{
    actor::Actor,
    app::App as AppState,
    enrolment::Purpose,
    ids::{AppId, InstallId, RunId, RunnerId},
    install::{Install, InstallCommand, InstallError, Outputs},
    name::{Name, NameCommand, NameError},
    run::{Cause, RunKind, plan::Scope},
    runner::Runner,
    state_version::StateVersion,
};
use futures::FutureExt as _;
use schemas::secret::EncryptedValue;
use serde_json::Value;

mod inputs;

use inputs::{check_changes, check_new, check_stored};
pub(crate) use inputs::{differences, of_version};

use super::{
    artifacts,
    enrolments::{self, NewEnrolment},
    runs::{self, RunRequest},
    stack, states, toggles,
};
use crate::{
    configs::{Config, awaited_inputs, published, resolved_inputs},
    execute::{Call, Done, UnitOfWork},
    ids,
    problem::{Code, Problem},
    sensitive,
    state::App,
    state_versions::Of,
};

/// Parameters of a new install.
#[derive(Debug, Clone)]
pub(crate) struct NewInstall {
    pub app: AppId,
    pub name: String,
    pub inputs: BTreeMap<String, String>,
    /// True if plans are applied without an approval.
    pub auto_approve: bool,
    /// True if only the plans of the first provision are applied without an approval.
    pub auto_approve_first: bool,
    /// Config version to deploy. `None` selects the newest version.
    pub config_version: Option<u32>,
    /// Outputs of the customer's stack that the vendor already knows.
    pub stack_outputs: Outputs,
}

/// New install with the enrolment token for its runner.
#[derive(Debug, Clone)]
pub(crate) struct Created {
    pub install: InstallId,
    /// Config version that the install follows.
    pub config_version: u32,
    /// Enrolment token for the command that the customer runs.
    pub enrolment: NewEnrolment,
}

/// Creates an install with an enrolment token for its runner.
pub(crate) async fn create(
    app: &App,
    call: &Call,
    new: NewInstall,
) -> Result<Done<Created>, Problem> {
    if !domain::name::is_valid(&new.name) {
        let detail = format!(
            "{:?} is not a valid install name: use lower-case letters, digits, - and _, at most \
             {} characters",
            new.name,
            domain::name::MAX_LENGTH
        );
        return Err(Problem::new(Code::Invalid, detail));
    }
    stack::check_limits(&new.stack_outputs)?;
    let (owned, engine) = (app.clone(), app.engine.clone());
    let by = call.meta.actor.clone();
    engine
        .transact(call, move |unit| {
            let (app, new, by) = (owned.clone(), new.clone(), by.clone());
            async move {
                let state = unit.load::<AppState>(new.app).await?.clone();
                if state.version() == 0 {
                    let detail = format!(
                        "cannot create the install: {} has no config version; run `stead apps sync`",
                        new.app
                    );
                    return Err(Problem::new(Code::NotFound, detail));
                }
                let config_version = new.config_version.unwrap_or_else(|| state.version());
                let version = published(&state, config_version)?;
                // The retention keeps the newest version.
                if new.config_version.is_some() {
                    artifacts::check_version(&app, version).await?;
                }
                let config = app.configs.get(&app.pool, version).await?;
                check_new(&config, &new.inputs)?;
                if let Some(problem) = toggles::problem(&config, &BTreeMap::new()) {
                    return Err(Problem::new(Code::Invalid, problem));
                }
                let install = InstallId(ids::new_ulid());
                let stream = domain::name::stream("install", &new.name);
                let take = NameCommand::Take { owner: install.to_string() };
                if let Err(NameError::Taken { owner }) =
                    unit.try_handle::<Name>(stream, take).await?
                {
                    let message =
                        format!("cannot create the install: the name {:?} is taken by {owner}; choose another name", new.name);
                    return Err(Problem::new(Code::NameTaken, message));
                }
                let create = InstallCommand::Create {
                    app: new.app,
                    name: new.name,
                    config_version,
                    inputs: new.inputs,
                    auto_approve: new.auto_approve,
                };
                unit.create::<Install>(install, create).await?;
                if new.auto_approve_first {
                    let first = InstallCommand::AutoApproveFirst { by: by.clone() };
                    unit.handle::<Install>(install, first).await?;
                }
                let outputs = new.stack_outputs;
                let give = InstallCommand::SetStackOutputs { outputs, by, reason: None };
                unit.handle::<Install>(install, give).await?;
                let enrolment = enrolments::issue_in(unit, Purpose::Install { install }, None).await?;
                Ok(Created { install, config_version, enrolment })
            }
            .boxed()
        })
        .await
}

/// Changes of an existing install.
#[derive(Debug, Clone, Default)]
pub(crate) struct Update {
    /// Encrypted values of sensitive inputs.
    pub encrypted: Vec<EncryptedValue>,
    pub set: BTreeMap<String, String>,
    /// Inputs to reset to their defaults.
    pub unset: BTreeSet<String>,
    /// Stack outputs to set, or to remove if `None`.
    pub stack_outputs: BTreeMap<String, Option<Value>>,
    /// Config version to follow. `None` keeps the current version.
    pub config_version: Option<u32>,
    /// Config version with which the caller compared the change. If the install follows another one,
    /// the change is rejected.
    pub compared_version: Option<u32>,
    /// Config version whose earlier inputs the install gets again. `set` and `unset` have
    /// precedence.
    pub inputs_of: Option<u32>,
    /// Components to enable (`true`) or to disable (`false`).
    pub components: BTreeMap<String, bool>,
    /// New setting of automatic approval. `None` keeps the current setting.
    pub auto_approve: Option<bool>,
    /// Reason given by the caller.
    pub reason: Option<String>,
    /// True if the run makes all plans that it can before its first change.
    pub plan_all: bool,
}

/// Changes an install. If the change requires a run, plans the run in the same commit and returns
/// its id.
pub(crate) async fn update(
    app: &App,
    call: &Call,
    install: InstallId,
    update: Update,
) -> Result<Done<Option<RunId>>, Problem> {
    let (owned, engine) = (app.clone(), app.engine.clone());
    let by = call.meta.actor.clone();
    let mut update = update;
    let values = inputs::take_encrypted(&mut update.set, std::mem::take(&mut update.encrypted))?;
    sensitive::put(&app.pool, install, &values, app.now()).await?;
    engine
        .transact(call, move |unit| {
            let (app, update, by) = (owned.clone(), update.clone(), by.clone());
            async move { change(&app, unit, install, update, by).await }.boxed()
        })
        .await
}

async fn change(
    app: &App,
    unit: &mut UnitOfWork,
    install: InstallId,
    update: Update,
    by: Actor,
) -> Result<Option<RunId>, Problem> {
    let before = unit.load::<Install>(install).await?.clone();
    let app_id = before.app.ok_or_else(|| Problem::not_found(install))?;
    let state = unit.load::<AppState>(app_id).await?.clone();
    let Update {
        encrypted: _,
        set,
        unset,
        stack_outputs,
        config_version,
        compared_version,
        inputs_of,
        components,
        auto_approve,
        reason,
        plan_all,
    } = update;
    if let Some(compared) = compared_version.filter(|compared| *compared != before.config_version) {
        let detail = format!(
            "cannot move the install: it moved from version {compared} to {} after the versions were compared; compare \
             them again",
            before.config_version
        );
        return Err(Problem::new(Code::Rejected, detail));
    }
    let (set, unset) = match inputs_of {
        Some(version) => {
            let then = inputs::of_version(app, install, version).await?;
            let undeclared = before.inputs.keys().filter(|name| !then.contains_key(*name)).cloned();
            let unset: BTreeSet<_> =
                undeclared.filter(|name| !set.contains_key(name)).chain(unset).collect();
            let mut restored = then;
            restored.retain(|name, value| {
                !unset.contains(name) && before.inputs.get(name) != Some(value)
            });
            restored.extend(set);
            (restored, unset)
        }
        None => (set, unset),
    };
    let version = published(&state, config_version.unwrap_or(before.config_version))?;
    let config = app.configs.get(&app.pool, version).await?;
    check_changes(&config, &before.inputs, &set, &unset)?;
    inputs::check_placeholders(app, install, &config, &before.inputs, &set).await?;
    if let Some(auto_approve) = auto_approve {
        let (by, reason) = (by.clone(), reason.clone());
        let set = InstallCommand::SetAutoApprove { auto_approve, by, reason };
        unit.handle::<Install>(install, set).await?;
    }
    let is_about_what_is_there = config_version.is_some()
        || inputs_of.is_some()
        || !(set.is_empty() && unset.is_empty() && stack_outputs.is_empty())
        || !components.is_empty();
    let is_deploy = !components.is_empty() && set.is_empty() && unset.is_empty();
    let is_deploy = is_deploy && stack_outputs.is_empty() && inputs_of.is_none();
    let change =
        InstallCommand::ChangeInputs { set, unset, by: by.clone(), reason: reason.clone() };
    unit.handle::<Install>(install, change).await?;
    stack::check_changes(&before, &stack_outputs)?;
    let outputs = stack::apply_changes(&before.vendor_outputs, &stack_outputs);
    stack::check_limits(&outputs)?;
    let give = InstallCommand::SetStackOutputs { outputs, by: by.clone(), reason: reason.clone() };
    unit.handle::<Install>(install, give).await?;
    if let Some(config_version) = config_version {
        artifacts::check_version(app, version).await?;
        let (by, reason) = (by.clone(), reason.clone());
        let pin = InstallCommand::PinConfig { config_version, by, reason };
        unit.handle::<Install>(install, pin).await?;
    }
    toggles::set(unit, install, &config, &components, (&by, reason.as_ref())).await?;
    let after = unit.load::<Install>(install).await?.clone();
    check_stored(&config, &after.inputs)?;
    check_removed_components(app, &state, &config, &after).await?;
    let is_there = after.sandbox.is_some() || !after.components.is_empty();
    // The first provision waited for sensitive inputs.
    let waited = !awaited_inputs(&config, &before.inputs).is_empty()
        && awaited_inputs(&config, &after.inputs).is_empty();
    if waited && is_unprovisioned(&after) && after.stack.is_some() {
        let request = RunRequest {
            kind: RunKind::Provision,
            scope: Scope::Everything,
            action: None,
            cause: Cause::RunnerEnrolled,
            reason,
            plan_all,
        };
        return runs::plan_and_admit(app, unit, install, request, by).await;
    }
    // Plans from the actual state, because the run of an earlier change may have been denied.
    // During a deploy, the commands above reject every change that requires a run.
    if !is_about_what_is_there || !is_there || after.has_active_deploy() {
        return Ok(None);
    }
    let is_newer = |version: u32| version > after.config_version;
    let goes_back = is_newer(before.config_version)
        || after.components.values().any(|has| is_newer(has.config_version));
    let kind = match config_version {
        None if is_deploy => RunKind::Deploy,
        None => RunKind::InputUpdate,
        Some(_) if goes_back => RunKind::Rollback,
        Some(_) => RunKind::Upgrade,
    };
    let (scope, cause) = (Scope::Changed, Cause::Requested);
    let request = RunRequest { kind, scope, action: None, cause, reason, plan_all };
    runs::plan_and_admit(app, unit, install, request, by).await
}

/// Returns true if no run has deployed anything, and none is in progress.
pub(super) fn is_unprovisioned(install: &Install) -> bool {
    !install.had_deploy && install.runs.is_empty() && !install.deprovisioned
}

/// Checks the inputs for components that the config no longer has. The version that deployed such a
/// component also destroys it, and requires its own inputs.
async fn check_removed_components(
    app: &App,
    state: &AppState,
    config: &Config,
    after: &Install,
) -> Result<(), Problem> {
    let removed = after.components.iter().filter(|(name, _)| config.app.component(name).is_none());
    let mut removed_parts: Vec<_> =
        removed.map(|(name, component)| (name.to_string(), component.config_version)).collect();
    let sandbox = after.sandbox.as_ref().filter(|_| config.app.sandbox.is_none());
    removed_parts.extend(sandbox.map(|component| ("sandbox".to_owned(), component.config_version)));
    for (name, version) in removed_parts {
        let next_config = app.configs.get(&app.pool, published(state, version)?).await?;
        resolved_inputs(&next_config, &after.inputs).map_err(|mut why| {
            why.detail = format!(
                "cannot remove the inputs: {name} was deployed by version {version}, which requires them to destroy {name}; \
                 keep these inputs until {name} is destroyed"
            );
            why
        })?;
    }
    Ok(())
}

/// Creates an enrolment token for the first runner of an install, or for the successor of a revoked
/// runner. `recover_from` is a former runner whose keys the new one may recover, although those of
/// another runner replaced them.
pub(crate) async fn enrol(
    app: &App,
    call: &Call,
    install: InstallId,
    recover_from: Option<RunnerId>,
) -> Result<Done<NewEnrolment>, Problem> {
    let engine = &app.engine;
    engine
        .transact(call, move |unit| {
            async move {
                let state = unit.load::<Install>(install).await?;
                if state.app.is_none() {
                    return Err(Problem::not_found(install));
                }
                if state.deprovisioned {
                    return Err(InstallError::Deprovisioned.into());
                }
                if let Some(runner) = state.stack.as_ref().map(|has| has.runner)
                    && !unit.load::<Runner>(runner).await?.revoked
                {
                    return Err(InstallError::HasRunner { runner }.into());
                }
                if let Some(former) = recover_from {
                    unit.load::<Runner>(former).await?.recoverable_keys(install)?;
                }
                enrolments::issue_in(unit, Purpose::Install { install }, recover_from).await
            }
            .boxed()
        })
        .await
}

/// Accepts a state of a component, even if a newer state or another lineage is known.
pub(crate) async fn accept_state(
    app: &App,
    call: &Call,
    install: InstallId,
    name: String,
    state: StateVersion,
    reason: String,
    force: bool,
) -> Result<Done<()>, Problem> {
    let by = call.meta.actor.clone();
    let owned = app.clone();
    app.engine
        .transact(call, move |unit| {
            let (app, name, state) = (owned.clone(), name.clone(), state.clone());
            let (by, reason) = (by.clone(), reason.clone());
            async move {
                let accept = InstallCommand::AcceptState {
                    name: name.clone(),
                    state: state.clone(),
                    by,
                    reason,
                };
                unit.handle::<Install>(install, accept).await?;
                states::accept(&app, Of { install, component: &name }, &state, force).await
            }
            .boxed()
        })
        .await
}

/// Resolves the name or id of an install.
pub(crate) async fn find(app: &App, name: &str) -> Result<InstallId, Problem> {
    if let Ok(id) = name.parse::<InstallId>() {
        return Ok(id);
    }
    let reservation = app.engine.load::<Name>(domain::name::stream("install", name)).await?;
    let owner = reservation.owner.or(reservation.last_owner).and_then(|owner| owner.parse().ok());
    owner.ok_or_else(|| Problem::not_found(format!("the install {name:?}")))
}

/// Releases the name of an install that is deprovisioned.
pub(super) async fn release_name(unit: &mut UnitOfWork, install: InstallId) -> Result<(), Problem> {
    let state = unit.load::<Install>(install).await?;
    if state.deprovisioned {
        let stream = domain::name::stream("install", &state.name);
        let release = NameCommand::Release { owner: install.to_string() };
        // Another install may have taken the name after an earlier release.
        let _another_has_it = unit.try_handle::<Name>(stream, release).await?;
    }
    Ok(())
}
