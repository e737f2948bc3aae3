//! `/v1/jobs`: units of work for runners.
use axum::{Json, extract::State};
use domain::{ids::JobId, job::Resolution};
use schemas::control::{
    ChangeResult, Page,
    jobs::{Cancel, Job, JobsQuery, Resolve, ResolveAs},
};

use super::change_request::{ChangeRequest, change_result, required_reason};
use crate::{
    extract::{self, Caller, Path, Query},
    problem::ApiResult,
    queries::jobs as queries,
    state::App,
    usecases::jobs,
};

/// List jobs, newest first
#[utoipa::path(
    get, path = "/v1/jobs", tag = "jobs", params(JobsQuery),
    responses((status = 200, body = Page<Job>)),
)]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<JobsQuery>,
) -> ApiResult<Page<Job>> {
    queries::list(&app, &caller, query).await.map(Json)
}

/// Get a job, its attempts, and the condition that it waits for
#[utoipa::path(
    get, path = "/v1/jobs/{job}", tag = "jobs",
    params(("job" = String, Path, description = "The job's id")),
    responses((status = 200, body = Job)),
)]
pub(super) async fn show(
    State(app): State<App>,
    caller: Caller,
    Path(job): Path<JobId>,
) -> ApiResult<Job> {
    queries::get(&app, &caller, job).await.map(Json)
}

/// Request the cancellation of a job
///
/// A queued job is cancelled immediately. Any other job is cancelled when its runner confirms the
/// request.
#[utoipa::path(
    post, path = "/v1/jobs/{job}/cancel", tag = "jobs", request_body = Cancel,
    params(("job" = String, Path, description = "The job's id")),
    responses((status = 200, body = ChangeResult)),
)]
pub(super) async fn cancel(
    State(app): State<App>,
    Path(job): Path<JobId>,
    ChangeRequest { call, .. }: ChangeRequest,
    extract::Json(body): extract::Json<Cancel>,
) -> ApiResult<ChangeResult> {
    let reason = required_reason(&body.reason)?;
    Ok(Json(change_result(&jobs::cancel(&app, &call, job, reason, body.force).await?)))
}

/// Resolve an execution with an unknown outcome
#[utoipa::path(
    post, path = "/v1/jobs/{job}/resolve", tag = "jobs", request_body = Resolve,
    params(("job" = String, Path, description = "The job's id")),
    responses((status = 200, body = ChangeResult)),
)]
pub(super) async fn resolve(
    State(app): State<App>,
    Path(job): Path<JobId>,
    ChangeRequest { call, .. }: ChangeRequest,
    extract::Json(body): extract::Json<Resolve>,
) -> ApiResult<ChangeResult> {
    let Resolve { execution, resolution, reason } = body;
    let verdict = match resolution {
        ResolveAs::Succeeded => Resolution::Succeeded,
        ResolveAs::Failed => Resolution::Failed,
        ResolveAs::Retry => Resolution::Retry,
    };
    let reason = required_reason(&reason)?;
    Ok(Json(change_result(&jobs::resolve(&app, &call, job, execution, verdict, reason).await?)))
}
