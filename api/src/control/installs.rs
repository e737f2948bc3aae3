//! `/v1/installs`: copies of an app in customers' accounts.
use std::collections::{BTreeMap, BTreeSet};

use axum::{Json, extract::State};
use domain::{
    app::App as AppState,
    erasure::ERASED,
    install::Install as InstallOf,
    run::{Cause, RunKind, plan::Scope},
    state_version::StateVersion,
};
use projections::views::installs as views;
use schemas::control::{
    Done, Page,
    installs::{
        AcceptState, CreateInstall, EnrolmentIssued, Install, InstallCreated, InstallState,
        InstallUpdated, InstallsQuery, StateQuery, UpdateInstall,
    },
    runs::{RequestRun, RequestedKind, RunRequested},
};

use super::{
    ask::{Ask, done, field, optional, required},
    filter,
    lookup::Lookup,
    part::Part,
    show,
};
use crate::{
    compose::{config::published, state as templates},
    extract::{self, Path, Query},
    problem::{Answer, Code, Problem},
    state::App,
    usecases::{apps, installs, runs},
};

/// List installs, oldest first
#[utoipa::path(
    get, path = "/v1/installs", tag = "installs", params(InstallsQuery),
    responses((status = 200, body = Page<Install>)),
)]
pub async fn list(
    State(app): State<App>,
    Query(which): Query<InstallsQuery>,
) -> Answer<Page<Install>> {
    let of = match &which.app {
        Some(name) => Some(filter::app(&app, name).await?),
        None => None,
    };
    let part = Part::of(which.limit, which.cursor)?;
    let rows = views::page(&app.pool, of, part.after, part.rows()).await?;
    let (rows, next) = part.cut(rows, |row| row.install);
    let (mut look, mut items) = (Lookup::new(&app), Vec::new());
    look.for_installs(&rows).await?;
    for row in &rows {
        items.extend(show::install(&app, &mut look, row).await?);
    }
    Ok(Json(Page { items, next }))
}

/// Create an install
///
/// The response has the command that the customer runs. Only this response contains the enrolment token.
#[utoipa::path(
    post, path = "/v1/installs", tag = "installs", request_body = CreateInstall,
    responses((status = 200, body = InstallCreated)),
)]
pub async fn create(
    State(app): State<App>,
    Ask { call, .. }: Ask,
    extract::Json(ask): extract::Json<CreateInstall>,
) -> Answer<InstallCreated> {
    let CreateInstall {
        app: of,
        name,
        inputs,
        auto_approve,
        auto_approve_first,
        config_version,
        stack_outputs,
    } = ask;
    if auto_approve && auto_approve_first {
        let detail =
            "auto_approve includes the first provision: send auto_approve or auto_approve_first";
        return Err(Problem::new(Code::BadRequest, detail));
    }
    let of = apps::find(&app, &of).await?;
    let stack_outputs = stack_outputs.into();
    let new = installs::NewInstall {
        app: of,
        name,
        inputs,
        auto_approve,
        auto_approve_first,
        config_version,
        stack_outputs,
    };
    let name = new.name.clone();
    let done = installs::create(&app, &call, new).await?;
    let installs::Created { install: id, config_version, enrolment } = done.answer;
    let enrolment = Some(show::enrolment(&app, enrolment, "install"));
    let position = done.position;
    Ok(Json(InstallCreated { id, name, app: of, config_version, enrolment, position }))
}

/// Get an install
#[utoipa::path(
    get, path = "/v1/installs/{install}", tag = "installs",
    params(("install" = String, Path, description = "The install's name or id")),
    responses((status = 200, body = Install)),
)]
pub async fn show(State(app): State<App>, Path(name): Path<String>) -> Answer<Install> {
    let id = installs::find(&app, &name).await?;
    let missing = || Problem::not_found(format!("the install {name:?}"));
    let row = views::install(&app.pool, id).await?.ok_or_else(missing)?;
    let mut look = Lookup::new(&app);
    look.for_installs(std::slice::from_ref(&row)).await?;
    let mut shown = show::install(&app, &mut look, &row).await?.ok_or_else(missing)?;
    shown.not_acted_on = show::not_acted_on(&mut look, &row).await?;
    Ok(Json(shown))
}

/// Change inputs, stack outputs, config version or approval of an install
///
/// A run plans the affected components. Without a run in the response there are no changes.
#[utoipa::path(
    patch, path = "/v1/installs/{install}", tag = "installs", request_body = UpdateInstall,
    params(("install" = String, Path, description = "The install's name or id")),
    responses((status = 200, body = InstallUpdated)),
)]
pub async fn update(
    State(app): State<App>,
    Path(name): Path<String>,
    Ask { call, .. }: Ask,
    extract::Json(ask): extract::Json<UpdateInstall>,
) -> Answer<InstallUpdated> {
    let id = installs::find(&app, &name).await?;
    let UpdateInstall {
        inputs,
        stack_outputs,
        config_version,
        inputs_of,
        components,
        auto_approve,
        reason,
    } = ask;
    let is_about_nothing =
        inputs.is_none() && stack_outputs.is_none() && inputs_of.is_none() && components.is_empty();
    if is_about_nothing && config_version.is_none() && auto_approve.is_none() {
        let detail = "send at least one of inputs, inputs_of, stack_outputs, config_version, \
                      components and auto_approve";
        return Err(Problem::new(Code::Invalid, detail));
    }
    let (mut set, mut unset) = (BTreeMap::new(), BTreeSet::new());
    for (name, value) in inputs.unwrap_or_default() {
        match value {
            Some(value) => drop(set.insert(name, value)),
            None => drop(unset.insert(name)),
        }
    }
    let reason = optional(reason)?;
    let stack_outputs = stack_outputs.unwrap_or_default();
    let update = installs::Update {
        set,
        unset,
        stack_outputs,
        config_version,
        components,
        inputs_of,
        auto_approve,
        reason,
    };
    let before = app.engine.load::<InstallOf>(id).await?.config_version;
    let back = config_version.filter(|version| inputs_of.is_none() && *version < before);
    let then = match back {
        // An install that was never at that version keeps what it has, too.
        Some(version) => installs::of_version(&app, id, version).await.ok(),
        None => None,
    };
    let done = installs::update(&app, &call, id, update).await?;
    let now = app.engine.load::<InstallOf>(id).await?.inputs.clone();
    let kept_inputs = then.map(|then| installs::differences(&then, &now)).unwrap_or_default();
    let (changed, run, position) = (done.events > 0, done.answer, done.position);
    Ok(Json(InstallUpdated { id, changed, run, kept_inputs, position }))
}

/// Get the state that templates of an install read, now or at an earlier time
#[utoipa::path(
    get, path = "/v1/installs/{install}/state", tag = "installs",
    params(("install" = String, Path, description = "The install's name or id"), StateQuery),
    responses((status = 200, body = InstallState)),
)]
pub async fn state(
    State(app): State<App>,
    Path(name): Path<String>,
    Query(when): Query<StateQuery>,
) -> Answer<InstallState> {
    let id = installs::find(&app, &name).await?;
    let position = super::audit::position(&app, when.position, when.time).await?;
    let log = app.engine.log();
    let install = log.load_as_of::<InstallOf>(&id.to_string(), position).await?.state;
    let app_id = install.app.ok_or_else(|| Problem::not_found(&name))?;
    let of = app.engine.load::<AppState>(app_id).await?;
    let bundle = &published(&of, install.config_version)?.bundle;
    let config = app.configs.get(&app.pool, bundle).await?;
    let inputs = match installs::passed(&config, &install.inputs) {
        // What is erased is no number any more, and is shown as what it is.
        Err(_) if install.inputs.values().any(|value| value == ERASED) => install.inputs.clone(),
        passed => passed?,
    };
    let state = templates::nuon((app_id, &of), (id, &install), &config, &inputs);
    Ok(Json(InstallState { id, position, state }))
}

/// Accept a state of a component
///
/// Runners refuse a state that is older than the newest one or has another lineage. This accepts the named state and
/// its successors.
#[utoipa::path(
    post, path = "/v1/installs/{install}/components/{component}/accepted-state", tag = "installs",
    request_body = AcceptState,
    params(
        ("install" = String, Path, description = "The install's name or id"),
        ("component" = String, Path, description = "Name of the component, or `sandbox`"),
    ),
    responses((status = 200, body = Done)),
)]
pub async fn accept_state(
    State(app): State<App>,
    Path((name, component)): Path<(String, String)>,
    Ask { call, .. }: Ask,
    extract::Json(ask): extract::Json<AcceptState>,
) -> Answer<Done> {
    let id = installs::find(&app, &name).await?;
    let AcceptState { lineage, serial, reason } = ask;
    let (state, reason) = (StateVersion { lineage, serial }, required(&reason)?);
    let accepted = installs::accept_state(&app, &call, id, component, state, reason).await?;
    Ok(Json(done(&accepted)))
}

/// Create an enrolment token for the runner of an install
///
/// 409 while the install has a runner that is not revoked: revoke it first.
#[utoipa::path(
    post, path = "/v1/installs/{install}/enrolment-tokens", tag = "installs",
    params(("install" = String, Path, description = "The install's name or id")),
    responses((status = 200, body = EnrolmentIssued)),
)]
pub async fn enrol(
    State(app): State<App>,
    Path(name): Path<String>,
    Ask { call, .. }: Ask,
) -> Answer<EnrolmentIssued> {
    let id = installs::find(&app, &name).await?;
    let done = installs::enrol(&app, &call, id).await?;
    let enrolment = Some(show::enrolment(&app, done.answer, "install"));
    Ok(Json(EnrolmentIssued { enrolment, position: done.position }))
}

/// Start a run on an install
///
/// 409 `run_in_progress` names a run that must finish first. A deprovision of an install without deployed components
/// needs no run: the response has none.
#[utoipa::path(
    post, path = "/v1/installs/{install}/runs", tag = "installs", request_body = RequestRun,
    params(("install" = String, Path, description = "The install's name or id")),
    responses((status = 200, body = RunRequested)),
)]
pub async fn request(
    State(app): State<App>,
    Path(name): Path<String>,
    Ask { call, .. }: Ask,
    extract::Json(ask): extract::Json<RequestRun>,
) -> Answer<RunRequested> {
    let id = installs::find(&app, &name).await?;
    let done = runs::request(&app, &call, id, wish(ask)?).await?;
    Ok(Json(RunRequested { run: done.answer, position: done.position }))
}

fn wish(ask: RequestRun) -> Result<runs::Wish, Problem> {
    let RequestRun { kind, components, action, reason } = ask;
    if !components.is_empty() && kind != RequestedKind::Deploy {
        return Err(field("components", "are only for a deploy", "leave them out"));
    }
    if action.is_some() != (kind == RequestedKind::Action) {
        return Err(field("action", "is for an action, and needed there", "name the action"));
    }
    let (kind, scope) = match kind {
        RequestedKind::Provision => (RunKind::Provision, Scope::Everything),
        RequestedKind::Reprovision => (RunKind::Reprovision, Scope::Everything),
        RequestedKind::Deploy if components.is_empty() => (RunKind::Deploy, Scope::Everything),
        RequestedKind::Deploy => {
            let names = components.into_iter().collect();
            (RunKind::Deploy, Scope::Named { names, dependents: true })
        }
        RequestedKind::Teardown => (RunKind::Teardown, Scope::Everything),
        RequestedKind::Deprovision => (RunKind::Deprovision, Scope::Everything),
        RequestedKind::Action => (RunKind::Action, Scope::Reached),
    };
    Ok(runs::Wish { kind, scope, action, cause: Cause::Asked, reason: optional(reason)? })
}
