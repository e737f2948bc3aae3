//! `/v1/installs`: installs of an app in customers' accounts.
use std::collections::{BTreeMap, BTreeSet};

use axum::{Json, extract::State};
use domain::{install::Install as InstallOf, state_version::StateVersion};
use schemas::control::{
    ChangeResult, Page,
    installs::{
        AcceptState, CreateEnrolmentToken, CreateInstall, EnrolmentIssued, Install, InstallCreated,
        InstallState, InstallUpdated, InstallsQuery, SensitiveInputs, SensitiveInputsQuery,
        StateQuery, UpdateInstall,
    },
    runs::{RequestRun, RunRequested},
};

use super::change_request::{ChangeRequest, change_result, optional_reason, required_reason};
use crate::{
    extract::{self, Caller, Path, Query},
    problem::{ApiResult, Code, Problem},
    queries::{installs as queries, show},
    state::App,
    usecases::{apps, installs, run_request::run_request, runs},
};

/// List installs, oldest first
#[utoipa::path(
    get, path = "/v1/installs", tag = "installs", params(InstallsQuery),
    responses((status = 200, body = Page<Install>)),
)]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<InstallsQuery>,
) -> ApiResult<Page<Install>> {
    queries::list(&app, &caller, query).await.map(Json)
}

/// Create an install
///
/// The response contains an enrolment token, which is shown only once, and the command with which
/// the customer starts the runner.
#[utoipa::path(
    post, path = "/v1/installs", tag = "installs", request_body = CreateInstall,
    responses((status = 200, body = InstallCreated)),
)]
pub(super) async fn create(
    State(app): State<App>,
    ChangeRequest { call, .. }: ChangeRequest,
    extract::Json(body): extract::Json<CreateInstall>,
) -> ApiResult<InstallCreated> {
    let CreateInstall {
        app: of,
        name,
        inputs,
        auto_approve,
        auto_approve_first,
        config_version,
        stack_outputs,
    } = body;
    if auto_approve && auto_approve_first {
        let detail = "invalid request: it has auto_approve and auto_approve_first, but auto_approve includes the first \
                      provision; send only one";
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
    let installs::Created { install: id, config_version, enrolment } = done.value;
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
pub(super) async fn show(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
) -> ApiResult<Install> {
    queries::get(&app, &caller, &name).await.map(Json)
}

/// Change inputs, stack outputs, components, config version or auto-approval of an install
///
/// A run plans the impact of the change. If the change has no impact, the response names no run.
#[utoipa::path(
    patch, path = "/v1/installs/{install}", tag = "installs", request_body = UpdateInstall,
    params(("install" = String, Path, description = "The install's name or id")),
    responses((status = 200, body = InstallUpdated)),
)]
pub(super) async fn update(
    State(app): State<App>,
    Path(name): Path<String>,
    ChangeRequest { call, .. }: ChangeRequest,
    extract::Json(body): extract::Json<UpdateInstall>,
) -> ApiResult<InstallUpdated> {
    let id = installs::find(&app, &name).await?;
    let UpdateInstall {
        inputs,
        encrypted,
        stack_outputs,
        config_version,
        inputs_of,
        components,
        auto_approve,
        reason,
        plan_all,
    } = body;
    let is_about_nothing =
        inputs.is_none() && stack_outputs.is_none() && inputs_of.is_none() && components.is_empty();
    if is_about_nothing
        && encrypted.is_empty()
        && config_version.is_none()
        && auto_approve.is_none()
    {
        let detail = "invalid request: it changes nothing; send at least one of inputs, inputs_of, stack_outputs, \
                      config_version, components and auto_approve";
        return Err(Problem::new(Code::Invalid, detail));
    }
    let (mut set, mut unset) = (BTreeMap::new(), BTreeSet::new());
    for (name, value) in inputs.unwrap_or_default() {
        match value {
            Some(value) => drop(set.insert(name, value)),
            None => drop(unset.insert(name)),
        }
    }
    let reason = optional_reason(reason)?;
    let stack_outputs = stack_outputs.unwrap_or_default();
    let update = installs::Update {
        encrypted,
        set,
        unset,
        stack_outputs,
        config_version,
        compared_version: None,
        components,
        inputs_of,
        auto_approve,
        reason,
        plan_all,
    };
    let before = app.engine.load::<InstallOf>(id).await?.config_version;
    let back = config_version.filter(|version| inputs_of.is_none() && *version < before);
    let then = match back {
        // If the install never had that version, the response lists no kept inputs.
        Some(version) => installs::of_version(&app, id, version).await.ok(),
        None => None,
    };
    let done = installs::update(&app, &call, id, update).await?;
    let now = app.engine.load::<InstallOf>(id).await?.inputs.clone();
    let kept_inputs = then.map(|then| installs::differences(&then, &now)).unwrap_or_default();
    let (changed, run, position) = (done.events > 0, done.value, done.position);
    Ok(Json(InstallUpdated { id, changed, run, kept_inputs, position }))
}

/// Get the state of an install that templates can read, now or as of a position or a time
#[utoipa::path(
    get, path = "/v1/installs/{install}/state", tag = "installs",
    params(("install" = String, Path, description = "The install's name or id"), StateQuery),
    responses((status = 200, body = InstallState)),
)]
pub(super) async fn state(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
    Query(query): Query<StateQuery>,
) -> ApiResult<InstallState> {
    queries::state(&app, &caller, &name, query).await.map(Json)
}

/// List the sensitive inputs of an install, and the jobs that read them
///
/// A client encrypts a value of such an input to the keys of the install, for the jobs that read the
/// input. The server does not know the values.
#[utoipa::path(
    get, path = "/v1/installs/{install}/sensitive-inputs", tag = "installs",
    params(
        ("install" = String, Path, description = "The install's name or id"), SensitiveInputsQuery,
    ),
    responses((status = 200, body = SensitiveInputs)),
)]
pub(super) async fn sensitive_inputs(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
    Query(query): Query<SensitiveInputsQuery>,
) -> ApiResult<SensitiveInputs> {
    queries::sensitive_inputs(&app, &caller, &name, query).await.map(Json)
}

/// Accept a state of a component
///
/// The runner refuses a state that is older than the newest one or has another lineage. After this
/// call, the runner accepts the given state and its successors. States that earlier executions wrote
/// are no longer stored. Rejected with 409 if the server does not have the state, unless `force` is
/// true, and while a job can write the state (`state_in_use`).
#[utoipa::path(
    post, path = "/v1/installs/{install}/components/{component}/accepted-state", tag = "installs",
    request_body = AcceptState,
    params(
        ("install" = String, Path, description = "The install's name or id"),
        ("component" = String, Path, description = "Component name, or `sandbox`"),
    ),
    responses((status = 200, body = ChangeResult)),
)]
pub(super) async fn accept_state(
    State(app): State<App>,
    Path((name, component)): Path<(String, String)>,
    ChangeRequest { call, .. }: ChangeRequest,
    extract::Json(body): extract::Json<AcceptState>,
) -> ApiResult<ChangeResult> {
    let id = installs::find(&app, &name).await?;
    let AcceptState { lineage, serial, force, reason } = body;
    let (state, reason) =
        (StateVersion { lineage, serial, digest: None }, required_reason(&reason)?);
    let accepted = installs::accept_state(&app, &call, id, component, state, reason, force).await?;
    Ok(Json(change_result(&accepted)))
}

/// Create an enrolment token for the install's runner
///
/// Rejected with 409 while the install has a runner that is not revoked. Revoke that runner first.
#[utoipa::path(
    post, path = "/v1/installs/{install}/enrolment-tokens", tag = "installs",
    request_body = CreateEnrolmentToken,
    params(("install" = String, Path, description = "The install's name or id")),
    responses((status = 200, body = EnrolmentIssued)),
)]
pub(super) async fn enrol(
    State(app): State<App>,
    Path(name): Path<String>,
    ChangeRequest { call, .. }: ChangeRequest,
    extract::Json(body): extract::Json<CreateEnrolmentToken>,
) -> ApiResult<EnrolmentIssued> {
    let id = installs::find(&app, &name).await?;
    let done = installs::enrol(&app, &call, id, body.recover_from).await?;
    let enrolment = Some(show::enrolment(&app, done.value, "install"));
    Ok(Json(EnrolmentIssued { enrolment, position: done.position }))
}

/// Request an operation on an install
///
/// Rejected with 409 while a conflicting run is in progress. The problem names that run. If nothing
/// remains to deprovision, the response names no run.
#[utoipa::path(
    post, path = "/v1/installs/{install}/runs", tag = "installs", request_body = RequestRun,
    params(("install" = String, Path, description = "The install's name or id")),
    responses((status = 200, body = RunRequested)),
)]
pub(super) async fn request(
    State(app): State<App>,
    Path(name): Path<String>,
    ChangeRequest { call, .. }: ChangeRequest,
    extract::Json(body): extract::Json<RequestRun>,
) -> ApiResult<RunRequested> {
    let id = installs::find(&app, &name).await?;
    let done = runs::request(&app, &call, id, run_request(body)?).await?;
    Ok(Json(RunRequested { run: done.value, position: done.position }))
}
