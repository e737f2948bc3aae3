//! `/v1/jobs`: units of work for runners.
use axum::{Json, extract::State};
use domain::{ids::JobId, job::Resolution};
use projections::views::jobs as views;
use schemas::control::{
    ChangeResult, Page,
    jobs::{Cancel, Job, JobsQuery, Resolve, ResolveAs},
};

use super::{
    change_request::{ChangeRequest, change_result, required_reason},
    filter,
    lookup::Lookup,
    pagination::PageRequest,
    show,
};
use crate::{
    extract::{self, Path, Query},
    problem::{ApiResult, Problem},
    state::App,
    usecases::jobs,
};

/// List jobs, newest first
#[utoipa::path(
    get, path = "/v1/jobs", tag = "jobs", params(JobsQuery),
    responses((status = 200, body = Page<Job>)),
)]
pub async fn list(State(app): State<App>, Query(which): Query<JobsQuery>) -> ApiResult<Page<Job>> {
    let of = match &which.install {
        Some(name) => Some(filter::install(&app, name).await?),
        None => None,
    };
    if let Some(run) = which.run {
        filter::run(&app, run).await?;
    }
    filter::one_of(
        "state",
        which.state.as_deref(),
        &views::JobState::ALL.map(views::JobState::as_str),
    )?;
    let part = PageRequest::of(which.limit, which.cursor)?;
    let filter = views::Filter { install: of, run: which.run, build: None, state: which.state };
    let rows = views::page(&app.pool, &filter, part.after, part.query_limit()).await?;
    let (rows, next) = part.page(rows, |row| row.job);
    let (mut lookup, mut items) = (Lookup::new(&app), Vec::new());
    lookup.for_jobs(&rows).await?;
    for row in &rows {
        items.push(show::job(&mut lookup, row).await?);
    }
    Ok(Json(Page { items, next }))
}

/// Get a job, its attempts, and the condition that it waits for
#[utoipa::path(
    get, path = "/v1/jobs/{job}", tag = "jobs",
    params(("job" = String, Path, description = "The job's id")),
    responses((status = 200, body = Job)),
)]
pub async fn show(State(app): State<App>, Path(job): Path<JobId>) -> ApiResult<Job> {
    let row = views::job(&app.pool, job).await?.ok_or_else(|| Problem::not_found(job))?;
    Ok(Json(show::job(&mut Lookup::new(&app), &row).await?))
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
pub async fn cancel(
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
pub async fn resolve(
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
