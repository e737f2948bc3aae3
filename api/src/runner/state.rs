//! Encrypted state of a component: stored and read by its running jobs, and by the runner itself.
mod body;
mod permission;

use axum::{
    Json,
    body::Body,
    extract::{FromRequestParts, Request, State},
    http::{
        HeaderMap, HeaderName, StatusCode,
        header::{CONTENT_LENGTH, CONTENT_TYPE, IF_NONE_MATCH},
        request::Parts,
    },
    response::{IntoResponse as _, Response},
};
use domain::{
    actor::Actor,
    ids::{InstallId, RunnerId},
    install::{Install, InstallCommand},
    state_version::StateVersion,
};
use event_log::Meta;
use futures::FutureExt as _;
use schemas::runner::{
    STATE_CIPHERTEXT_BYTES, STATE_RECORDED, STATE_VERSION, StateHead, StateUpload,
};
use serde::Deserialize;

use self::{
    body::{content_length, too_large},
    permission::{check_name, check_not_revoked, check_reader, check_writer},
};
use crate::{
    dispatch::CallKind,
    execute::Call,
    extract::{self, JobCaller, RunnerCaller},
    ids,
    problem::{Code, Problem},
    state::App,
    state_versions::{self, Beginning, Conflict, Named, NewVersion, NotStored, Of, Replaces},
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
        // A job can outlive the token, for example if the clocks of servers differ. Each permission
        // of a job includes that its execution holds the job.
        match JobCaller::of_any_time(parts, app).await {
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
    check_name(&component)?;
    let upload = upload_of(request.headers())?;
    let (install, writer) = check_writer(&app, &caller, &component, &upload).await?;
    let of = Of { install, component: &component };
    let length = content_length(request.headers());
    if length.is_some_and(|length| length > STATE_CIPHERTEXT_BYTES) {
        return Err(too_large());
    }
    let transfer = app.state_uploads.upload(install).ok_or_else(busy)?;
    let ciphertext = body::read(request, length, &transfer).await?;
    let (head, quota) = (&upload.head, app.config.state_quota);
    let bytes = ciphertext.len() as u64;
    transfer.check_day(bytes, quota).map_err(over_daily_limit)?;
    let connections = app.pool.options().get_max_connections();
    let statement = transfer.statement(ciphertext.len(), connections).await.ok_or_else(busy)?;
    // After the body, which may arrive slowly: the writer may have been replaced, and former versions
    // are deleted by this state of the log.
    check_not_revoked(&app, caller.runner()).await?;
    let known = app.log().reload::<Install>(&install.to_string()).await?.state;
    let named = named(&known);
    let replaces = replaces(&known, &component, &upload);
    let new = NewVersion { head, ciphertext, replaces, writer, named: &named, quota };
    let permits = (transfer, statement);
    match state_versions::put(&app.pool, app.now(), of, new, permits).await? {
        Ok(newest) => {
            app.state_uploads.spend(install, bytes);
            if let StateCaller::Runner(_) = &caller {
                record_arrival(&app, install, component, &upload).await?;
            }
            Ok(Json(newest))
        }
        Err(NotStored::Conflict(conflict)) => Err(conflict_problem(&component, conflict)),
        Err(NotStored::Erased) => Err(Problem::new(
            Code::Fenced,
            "cannot store the state: the data of this install was erased",
        )),
        Err(NotStored::Busy) => Err(busy()),
        Err(NotStored::OverQuota) => Err(over_quota(quota)),
    }
}

/// Read the newest encrypted version of the state of a component, or another stored one. 204 if
/// there is none, and 304 if the caller has the newest one.
#[utoipa::path(get, path = "/runner/v1/state/{component}", tag = "work", operation_id = "get_state",
    params(("component" = String, Path), ("lineage" = Option<String>, Query),
        ("serial" = Option<u64>, Query),
        ("If-None-Match" = Option<String>, Header, description = "digest of a StateHead")),
    responses((status = 200, body = Vec<u8>, content_type = "application/octet-stream",
            headers(("State-Version" = String, description = "StateHead as JSON"),
                ("State-Recorded" = String, description = "newest StateVersion in the log as JSON, if there is one"))),
        (status = 204), (status = 304), (status = "4XX", body = schemas::problem::Problem)))]
pub(crate) async fn get(
    State(app): State<App>,
    caller: StateCaller,
    extract::Path(component): extract::Path<String>,
    extract::Query(wanted): extract::Query<Wanted>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    allow(&app, &caller)?;
    check_name(&component)?;
    let version = wanted.version()?;
    let (install, begun) = check_reader(&app, &caller, &component).await?;
    let of = Of { install, component: &component };
    if let Some(begun) = begun {
        check_not_revoked(&app, caller.runner()).await?;
        match state_versions::begin(&app.pool, of, begun).await? {
            Beginning::Begun => {}
            Beginning::Busy => return Err(busy()),
            Beginning::Later => return Err(conflict_problem(&component, Conflict::OlderFence)),
        }
    }
    let recorded = recorded_header(&app, of).await?;
    let known = headers.get(IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let stored = state_versions::find(&app.pool, of, version).await?;
    let Some(stored) = stored else {
        return Ok((StatusCode::NO_CONTENT, recorded).into_response());
    };
    let (head, size) = (version_header(&stored.head)?, stored.size);
    if let (Some(known), None) = (known, version)
        && stored.head.digest == known.trim_matches('"')
    {
        return Ok((StatusCode::NOT_MODIFIED, recorded, [head]).into_response());
    }
    let transfer = app.state_uploads.download(install, size).ok_or_else(busy)?;
    // Deleted meanwhile, so there is a newer one.
    let Some(parts) = stored.parts(&app.pool, transfer).await? else { return Err(busy()) };
    let kind = (CONTENT_TYPE, "application/octet-stream".to_owned());
    let length = (CONTENT_LENGTH, size.to_string());
    Ok((recorded, [head, kind, length], Body::from_stream(parts)).into_response())
}

impl Wanted {
    /// Returns lineage and serial of the version, if the caller named one.
    fn version(&self) -> Result<Option<(&str, u64)>, Problem> {
        match (&self.lineage, self.serial) {
            (Some(lineage), Some(serial)) => {
                let version = StateVersion { lineage: lineage.clone(), serial, digest: None };
                if !version.is_valid() {
                    let detail = "cannot read the state: its lineage or serial is invalid; send those of a state";
                    return Err(Problem::new(Code::BadRequest, detail));
                }
                Ok(Some((lineage, serial)))
            }
            (None, None) => Ok(None),
            (Some(_), None) | (None, Some(_)) => {
                let detail = "cannot read the state: send lineage and serial together, or neither";
                Err(Problem::new(Code::BadRequest, detail))
            }
        }
    }
}

/// Current versions of all components in the log.
fn named(install: &Install) -> Vec<Named> {
    let versions = install.states.iter().flat_map(|(name, known)| {
        let versions = known.newest.iter().chain(&known.accepted);
        versions.map(|version| (name.clone(), version.clone()))
    });
    versions.collect()
}

/// Returns which lineages the upload may replace. An accepted lineage may replace another one until
/// the log has a state of a third one, or the component was destroyed.
fn replaces(install: &Install, component: &str, upload: &StateUpload) -> Replaces {
    let is_accepted = || {
        let known = install.states.get(component)?;
        let (newest, accepted) = (known.newest.as_ref()?, known.accepted.as_ref()?);
        Some(newest.lineage == accepted.lineage && accepted.lineage == upload.head.lineage)
    };
    match upload.is_decided || is_accepted() == Some(true) {
        true => Replaces::AnyState,
        false => Replaces::EmptyState,
    }
}

/// Header with the newest version in the log, if the log has one.
async fn recorded_header(app: &App, of: Of<'_>) -> Result<HeaderMap, Problem> {
    let mut headers = HeaderMap::new();
    let install = app.log().reload::<Install>(&of.install.to_string()).await?.state;
    let newest = install.states.get(of.component).and_then(|known| known.newest.as_ref());
    if let Some(newest) = newest {
        let json = serde_json::to_string(newest).map_err(Problem::internal)?;
        headers.insert(STATE_RECORDED, json.parse().map_err(Problem::internal)?);
    }
    Ok(headers)
}

/// Continues the component if the install awaits this state.
async fn record_arrival(
    app: &App,
    install: InstallId,
    name: String,
    upload: &StateUpload,
) -> Result<(), Problem> {
    // The cache may be outdated, and the runner does not send the state again.
    let fresh = app.log().reload::<Install>(&install.to_string()).await?.state;
    if !fresh.awaited_states.contains_key(&name) {
        return Ok(());
    }
    let (state, is_decided) = (upload.head.version(), upload.is_decided);
    let arrived = InstallCommand::RecordStateArrival { name, state, is_decided };
    let call = Call::of(Meta::new(Actor::System, ids::new_ulid().to_string()));
    let record = app.engine.transact(&call, move |unit| {
        let arrived = arrived.clone();
        async move { unit.handle::<Install>(install, arrived).await }.boxed()
    });
    record.await.map(|_| ())
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

fn over_daily_limit(retry_after: u64) -> Problem {
    let detail = "cannot store the state: the install has uploaded ten times its state quota within 24 hours; try again later";
    Problem::new(Code::RateLimited, detail).retry_after(retry_after)
}

fn over_quota(quota: u64) -> Problem {
    let detail = format!(
        "cannot store the state: the states of an install may have {quota} bytes together; ask the server's operator to increase \
         --max-install-states"
    );
    Problem::new(Code::StateQuotaExceeded, detail).with("limit_bytes", quota)
}

fn conflict_problem(component: &str, conflict: Conflict) -> Problem {
    let (code, why) = match conflict {
        Conflict::OlderFence => {
            let why = "a later execution has begun or stored a state, or a user has chosen one; keep this state and let a user \
                       decide: stead-runner state resolve";
            (Code::StateFenced, why.to_owned())
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
