//! Encrypted state of a component: stored and read by its running jobs, and by the runner itself.
use axum::{
    Json,
    body::Bytes,
    extract::{DefaultBodyLimit, FromRequest as _, FromRequestParts, Request, State},
    http::{
        HeaderMap, HeaderName, StatusCode,
        header::{CONTENT_LENGTH, IF_NONE_MATCH},
        request::Parts,
    },
    response::{IntoResponse as _, Response},
};
use domain::{
    ids::{ExecutionId, InstallId, JobId, RunnerId},
    install::Install,
    job::{Job, Origin},
    state_version::StateVersion,
};
use schemas::{
    manifest::Fence,
    runner::{STATE_CIPHERTEXT_BYTES, STATE_VERSION, StateHead, StateUpload},
};
use serde::Deserialize;

use super::{execution, grant};
use crate::{
    dispatch::CallKind,
    extract::{self, JobCaller, RunnerCaller},
    problem::{Code, Problem},
    state::App,
    state_versions::{self, Conflict, NewVersion, NotStored, Of, Replaces},
};

/// Party that stores or reads states.
pub(crate) enum StateCaller {
    /// Execution of a job, which may access the state of its component only.
    Job(JobCaller),
    /// Runner, for an upload that arrives late and for its customer.
    Runner(RunnerCaller),
}

impl FromRequestParts<App> for StateCaller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        match JobCaller::from_request_parts(parts, app).await {
            Err(problem) if problem.code == Code::TokenTypeMismatch => {
                RunnerCaller::from_request_parts(parts, app).await.map(StateCaller::Runner)
            }
            job => job.map(StateCaller::Job),
        }
    }
}

impl StateCaller {
    fn runner(&self) -> RunnerId {
        match self {
            StateCaller::Job(job) => job.runner,
            StateCaller::Runner(runner) => runner.id,
        }
    }
}

/// Version to read. Absent for the newest one.
#[derive(Debug, Deserialize)]
pub(crate) struct Wanted {
    lineage: Option<String>,
    serial: Option<u64>,
}

/// Store an encrypted version of the state of a component. Repeating the newest version changes
/// nothing. Returns the newest version.
#[utoipa::path(put, path = "/runner/v1/state/{component}", tag = "work", operation_id = "put_state",
    params(("component" = String, Path),
        ("State-Version" = String, Header, description = "StateUpload as JSON")),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 200, body = StateHead), (status = "4XX", body = schemas::problem::Problem)))]
pub(crate) async fn put(
    State(app): State<App>,
    caller: StateCaller,
    extract::Path(component): extract::Path<String>,
    request: Request,
) -> Result<Json<StateHead>, Problem> {
    allow(&app, &caller)?;
    let upload = upload_of(request.headers())?;
    let install = check_writer(&app, &caller, &component, &upload).await?;
    let of = Of { install, component: &component };
    let known = app.engine.load::<Install>(install).await?.states.get(&component).cloned();
    let known = known.unwrap_or_default();
    let is_accepted =
        known.accepted.as_ref().is_some_and(|accepted| accepted.lineage == upload.head.lineage);
    let replaces = match upload.is_decided || is_accepted {
        true => Replaces::AnyState,
        false => Replaces::EmptyState,
    };
    let named: Vec<StateVersion> = known.newest.into_iter().chain(known.accepted).collect();
    let length = content_length(request.headers());
    let transfer = app.state_uploads.begin(caller.runner(), length.min(STATE_CIPHERTEXT_BYTES));
    let _transfer = transfer.ok_or_else(busy)?;
    let bytes = read_body(&app, request).await?;
    let (head, ciphertext) = (&upload.head, bytes.as_ref());
    let new = NewVersion { head, ciphertext, replaces, named: &named };
    match state_versions::put(&app.pool, app.now(), of, new).await? {
        Ok(newest) => Ok(Json(newest)),
        Err(NotStored::Conflict(conflict)) => Err(conflict_problem(&component, conflict)),
        Err(NotStored::Erased) => Err(Problem::new(
            Code::Fenced,
            "cannot store the state: the data of this install was erased",
        )),
        Err(NotStored::Busy) => Err(busy()),
    }
}

/// Read the newest encrypted version of the state of a component, or another stored one. 204 if
/// there is none, and 304 if the caller has the newest one.
#[utoipa::path(get, path = "/runner/v1/state/{component}", tag = "work", operation_id = "get_state",
    params(("component" = String, Path), ("lineage" = Option<String>, Query),
        ("serial" = Option<u64>, Query),
        ("If-None-Match" = Option<String>, Header, description = "digest of a StateHead")),
    responses((status = 200, body = Vec<u8>, content_type = "application/octet-stream",
            headers(("State-Version" = String, description = "StateHead as JSON"))),
        (status = 204), (status = 304), (status = "4XX", body = schemas::problem::Problem)))]
pub(crate) async fn get(
    State(app): State<App>,
    caller: StateCaller,
    extract::Path(component): extract::Path<String>,
    extract::Query(wanted): extract::Query<Wanted>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    allow(&app, &caller)?;
    let install = check_reader(&app, &caller, &component).await?;
    let of = Of { install, component: &component };
    let version = match (wanted.lineage.as_deref(), wanted.serial) {
        (Some(lineage), Some(serial)) => Some((lineage, serial)),
        (None, None) => None,
        (Some(_), None) | (None, Some(_)) => {
            let detail = "cannot read the state: send lineage and serial together, or neither";
            return Err(Problem::new(Code::BadRequest, detail));
        }
    };
    let known = headers.get(IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    if let (Some(known), None) = (known, version) {
        let newest = state_versions::newest(&app.pool, of).await?;
        if let Some(newest) = newest.filter(|newest| newest.digest == known.trim_matches('"')) {
            return Ok((StatusCode::NOT_MODIFIED, [version_header(&newest)?]).into_response());
        }
    }
    let transfer = app.state_uploads.begin(caller.runner(), STATE_CIPHERTEXT_BYTES);
    let _transfer = transfer.ok_or_else(busy)?;
    match state_versions::read(&app.pool, of, version).await? {
        Some((head, ciphertext)) => Ok(([version_header(&head)?], ciphertext).into_response()),
        None => Ok(StatusCode::NO_CONTENT.into_response()),
    }
}

fn allow(app: &App, caller: &StateCaller) -> Result<(), Problem> {
    app.dispatch.allow(caller.runner(), CallKind::Report).map_err(|seconds| {
        let detail = "request rejected: the runner exceeds its rate limit; retry later";
        Problem::new(Code::RateLimited, detail).retry_after(seconds)
    })
}

fn busy() -> Problem {
    let detail = "cannot transfer the state: other states are being transferred; try again";
    Problem::new(Code::Busy, detail).retry_after(1)
}

fn version_header(head: &StateHead) -> Result<(HeaderName, String), Problem> {
    let json = serde_json::to_string(head).map_err(Problem::internal)?;
    Ok((HeaderName::from_static(STATE_VERSION), json))
}

fn upload_of(headers: &HeaderMap) -> Result<StateUpload, Problem> {
    let header = headers.get(STATE_VERSION).and_then(|value| value.to_str().ok());
    let upload = header.and_then(|json| serde_json::from_str::<StateUpload>(json).ok());
    upload.filter(|upload| upload.head.is_valid()).ok_or_else(|| {
        let detail = "cannot read the header `State-Version`: it is missing or invalid; send the version as JSON";
        Problem::new(Code::BadRequest, detail)
    })
}

/// Length of the body. A body of unknown length counts as the largest one.
fn content_length(headers: &HeaderMap) -> u64 {
    let length = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    length.unwrap_or(STATE_CIPHERTEXT_BYTES)
}

async fn read_body(app: &App, mut request: Request) -> Result<Bytes, Problem> {
    let too_large = || {
        let detail = "cannot store the state: it is larger than 100 MiB; split the component";
        Problem::new(Code::TooLarge, detail)
    };
    if content_length(request.headers()) > STATE_CIPHERTEXT_BYTES {
        return Err(too_large());
    }
    DefaultBodyLimit::max(usize::try_from(STATE_CIPHERTEXT_BYTES).unwrap_or(usize::MAX))
        .apply(&mut request);
    Bytes::from_request(request, app).await.map_err(|rejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => too_large(),
        _ => Problem::new(
            Code::BadRequest,
            "cannot store the state: the request body is incomplete; send the state again",
        ),
    })
}

/// Checks that the caller may read the state of the component. Returns the install.
async fn check_reader(
    app: &App,
    caller: &StateCaller,
    component: &str,
) -> Result<InstallId, Problem> {
    match caller {
        StateCaller::Job(call) => held_component(app, call, component).await,
        StateCaller::Runner(runner) => install_of(runner),
    }
}

/// Checks that the caller may store this version of the component. Returns the install.
async fn check_writer(
    app: &App,
    caller: &StateCaller,
    component: &str,
    upload: &StateUpload,
) -> Result<InstallId, Problem> {
    match (caller, upload.written_by, upload.is_decided) {
        (StateCaller::Job(call), None, false) => {
            check_fence(call.fence, upload.head.fence)?;
            held_component(app, call, component).await
        }
        (StateCaller::Runner(runner), Some(written_by), false) => {
            let install = install_of(runner)?;
            check_late(app, runner, written_by, (component, upload.head.fence)).await?;
            Ok(install)
        }
        (StateCaller::Runner(runner), None, true) => {
            let install = install_of(runner)?;
            let newest = state_versions::newest(&app.pool, Of { install, component }).await?;
            // The user chose a state on this host, so the host must know the newest execution.
            if let Some(newest) = newest {
                check_fence(newest.fence, upload.head.fence)?;
            }
            Ok(install)
        }
        (StateCaller::Job(_), Some(_), _)
        | (StateCaller::Job(_), None, true)
        | (StateCaller::Runner(_), Some(_), true)
        | (StateCaller::Runner(_), None, false) => {
            let detail = "cannot store the state: a job sends neither `written_by` nor `is_decided`, and a runner sends one of them";
            Err(Problem::new(Code::BadRequest, detail))
        }
    }
}

fn install_of(runner: &RunnerCaller) -> Result<InstallId, Problem> {
    runner.install.ok_or_else(|| Problem::not_found("state of a build runner"))
}

/// Checks that the execution holds its job, and that the job is about the component.
async fn held_component(
    app: &App,
    call: &JobCaller,
    component: &str,
) -> Result<InstallId, Problem> {
    // The cache may be outdated, and an execution that lost the job must not write.
    let job = app.log().reload::<Job>(&call.job.to_string()).await?.state;
    let held = job.execution();
    if held.is_none_or(|held| held.id != call.execution || held.runner != call.runner) {
        return Err(execution::stale_execution(&job));
    }
    check_component(app, &job, component).await
}

/// Checks an upload that arrives after its job ended, or while the shim cannot reach the server.
async fn check_late(
    app: &App,
    runner: &RunnerCaller,
    (job, id): (JobId, ExecutionId),
    (component, fence): (&str, Fence),
) -> Result<(), Problem> {
    execution::check_may_report(app, runner, job, id).await?;
    let loaded = app.log().reload::<Job>(&job.to_string()).await?.state;
    check_component(app, &loaded, component).await?;
    let position = grant::claim_position(app, job, id).await?;
    check_fence(Fence { epoch: fence.epoch.min(app.log().epoch()), position }, fence)
}

/// Checks that the job uses the state of the component. Returns the install.
async fn check_component(app: &App, job: &Job, component: &str) -> Result<InstallId, Problem> {
    let other = || {
        let detail = format!("request rejected: the job does not use the state of {component}");
        Problem::new(Code::Forbidden, detail)
    };
    let work = job.work.as_ref().ok_or_else(other)?;
    let Origin::Step { install, .. } = work.origin else { return Err(other()) };
    let manifest = app.manifests.get(&app.pool, &work.manifest).await?;
    let own = manifest.inputs.get(work.kind.subject()).and_then(|name| name.as_str());
    if !work.kind.uses_state() || own != Some(component) {
        return Err(other());
    }
    Ok(install)
}

fn check_fence(expected: Fence, fence: Fence) -> Result<(), Problem> {
    if expected == fence {
        return Ok(());
    }
    let detail = "cannot store the state: its fence is not the one of its execution";
    Err(Problem::new(Code::Fenced, detail))
}

fn conflict_problem(component: &str, conflict: Conflict) -> Problem {
    let (code, why) = match conflict {
        Conflict::OlderFence => {
            (Code::Fenced, "a later execution has stored a state of this component".to_owned())
        }
        Conflict::OlderSerial { newest } => {
            (Code::StateConflict, format!("the stored state has the later serial {newest}"))
        }
        Conflict::OtherContent { serial } => {
            (Code::StateConflict, format!("another state with serial {serial} is stored"))
        }
        Conflict::OtherLineage { newest } => (
            Code::StateConflict,
            format!(
                "the stored state has lineage {newest} and is not empty; a user must decide which one is current"
            ),
        ),
    };
    Problem::new(code, format!("cannot store the state of {component}: {why}"))
}
