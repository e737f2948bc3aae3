//! Installs: made, given inputs, moved between config versions.
use std::collections::{BTreeMap, BTreeSet};

use domain::{
    actor::Actor,
    app::App as AppState,
    enrolment::Purpose,
    ids::{AppId, InstallId, RunId},
    install::{Install, InstallCommand},
    name::{Name, NameCommand, NameError},
    run::{Cause, RunKind, plan::Scope},
};
use futures::FutureExt as _;
use schemas::problem::FieldProblem;

use super::{
    enrolments::{self, Issued},
    runs::{self, Wish},
};
use crate::{
    compose::config::{Config, published},
    execute::{Call, Done},
    problem::{Code, Problem},
    state::App,
};

/// What is asked of a new install.
#[derive(Debug, Clone)]
pub struct NewInstall {
    /// Of which app.
    pub app: AppId,
    /// Its name.
    pub name: String,
    /// The values that are given, by input.
    pub inputs: BTreeMap<String, String>,
    /// Whether plans are applied without a person's word.
    pub auto_approve: bool,
    /// The config version it follows; the newest unless told.
    pub config_version: Option<u32>,
}

/// A new install, and the token for its runner.
#[derive(Debug, Clone)]
pub struct Created {
    /// Its id.
    pub install: InstallId,
    /// The config version it follows.
    pub config_version: u32,
    /// For the one command that the customer runs.
    pub enrolment: Issued,
}

/// Make an install.
pub async fn create(app: &App, call: &Call, new: NewInstall) -> Result<Done<Created>, Problem> {
    if !domain::name::is_valid(&new.name) {
        let detail = format!(
            "{:?} is no install name: lower-case letters, digits, - and _, at most {} characters",
            new.name,
            domain::name::LONGEST
        );
        return Err(Problem::new(Code::Invalid, detail));
    }
    let (owned, engine) = (app.clone(), app.engine.clone());
    engine
        .transact(call, move |unit| {
            let (app, new) = (owned.clone(), new.clone());
            async move {
                let state = unit.load::<AppState>(new.app).await?.clone();
                if state.version() == 0 {
                    return Err(Problem::not_found(format!("a config version of {}", new.app)));
                }
                let config_version = new.config_version.unwrap_or_else(|| state.version());
                let bundle = &published(&state, config_version)?.bundle;
                let config = app.configs.get(&app.pool, bundle).await?;
                resolved(&config, &new.inputs)?;
                let install = InstallId(ulid::Ulid::new());
                let stream = domain::name::stream("install", &new.name);
                let take = NameCommand::Take { by: install.to_string() };
                if let Err(NameError::Taken { by }) = unit.ask::<Name>(stream, take).await? {
                    let said = format!("the name {:?} is taken by {by}; choose another", new.name);
                    return Err(Problem::new(Code::NameTaken, said));
                }
                let create = InstallCommand::Create {
                    app: new.app,
                    name: new.name,
                    config_version,
                    inputs: new.inputs,
                    auto_approve: new.auto_approve,
                };
                unit.tell::<Install>(install, create).await?;
                let enrolment = enrolments::tell(unit, Purpose::Install { install }).await?;
                Ok(Created { install, config_version, enrolment })
            }
            .boxed()
        })
        .await
}

/// What is asked of an install that is there.
#[derive(Debug, Clone, Default)]
pub struct Update {
    /// Inputs that are given.
    pub set: BTreeMap<String, String>,
    /// Inputs that are taken back.
    pub unset: BTreeSet<String>,
    /// The config version that it is to follow.
    pub config_version: Option<u32>,
    /// Whether plans are applied without a person's word.
    pub auto_approve: Option<bool>,
    /// In the words of who asked.
    pub reason: Option<String>,
}

/// Change what an install is given or follows; what that reaches is planned by a run in the same
/// commit. No run: nothing is reached, or nothing was ever brought.
pub async fn update(
    app: &App,
    call: &Call,
    install: InstallId,
    update: Update,
) -> Result<Done<Option<RunId>>, Problem> {
    let (owned, engine) = (app.clone(), app.engine.clone());
    let by = call.meta.actor.clone();
    engine
        .transact(call, move |unit| {
            let (app, update, by) = (owned.clone(), update.clone(), by.clone());
            async move { change(&app, unit, install, update, by).await }.boxed()
        })
        .await
}

async fn change(
    app: &App,
    unit: &mut crate::execute::Unit,
    install: InstallId,
    update: Update,
    by: Actor,
) -> Result<Option<RunId>, Problem> {
    let before = unit.load::<Install>(install).await?.clone();
    let app_id = before.app.ok_or_else(|| Problem::not_found(install))?;
    if let Some(auto_approve) = update.auto_approve {
        let set = InstallCommand::SetAutoApprove { auto_approve, by: by.clone() };
        unit.tell::<Install>(install, set).await?;
    }
    let Update { set, unset, .. } = update;
    let change = InstallCommand::ChangeInputs { set, unset, by: by.clone() };
    let inputs_changed = unit.tell::<Install>(install, change).await? > 0;
    if let Some(config_version) = update.config_version {
        let pin = InstallCommand::PinConfig { config_version, by: by.clone() };
        unit.tell::<Install>(install, pin).await?;
    }
    let after = unit.load::<Install>(install).await?.clone();
    let moved = after.config_version != before.config_version;
    let state = unit.load::<AppState>(app_id).await?.clone();
    let bundle = &published(&state, after.config_version)?.bundle;
    let config = app.configs.get(&app.pool, bundle).await?;
    resolved(&config, &after.inputs)?;
    let is_there = after.sandbox.is_some() || !after.components.is_empty();
    if !(inputs_changed || moved) || !is_there {
        return Ok(None);
    }
    let kind = if !moved {
        RunKind::InputUpdate
    } else if after.config_version < before.config_version {
        RunKind::Rollback
    } else {
        RunKind::Deploy
    };
    let wish = Wish {
        kind,
        scope: Scope::Reached,
        action: None,
        cause: Cause::Asked,
        reason: update.reason,
    };
    runs::tell(app, unit, install, wish, by).await
}

/// Make a new token for the install's runner.
pub async fn enrol(app: &App, call: &Call, install: InstallId) -> Result<Done<Issued>, Problem> {
    let engine = &app.engine;
    engine
        .transact(call, move |unit| {
            async move {
                if unit.load::<Install>(install).await?.app.is_none() {
                    return Err(Problem::not_found(install));
                }
                enrolments::tell(unit, Purpose::Install { install }).await
            }
            .boxed()
        })
        .await
}

/// The install of this name or id.
pub async fn find(app: &App, name: &str) -> Result<InstallId, Problem> {
    if let Ok(id) = name.parse::<InstallId>() {
        return Ok(id);
    }
    let taken = app.engine.load::<Name>(domain::name::stream("install", name)).await?;
    let by = taken.by.and_then(|by| by.parse().ok());
    by.ok_or_else(|| Problem::not_found(format!("the install {name:?}")))
}

/// Every input of a config, given or by default; what is unknown, missing or ill-typed is refused.
pub fn resolved(
    config: &Config,
    given: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, Problem> {
    let given = given.iter().map(|(name, text)| (name.clone(), text.clone().into())).collect();
    app_config::resolve_inputs(&config.app, &given).map_err(|problems| {
        let errors = problems
            .iter()
            .map(|problem| FieldProblem {
                field: Some(format!("inputs.{}", problem.name())),
                file: None,
                line: None,
                column: None,
                message: problem.to_string(),
                remedy: Some(problem.remedy()),
            })
            .collect();
        Problem::invalid("the inputs do not fit the app; nothing was changed", errors)
    })
}
