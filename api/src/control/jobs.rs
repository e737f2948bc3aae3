//! `/v1/jobs`: units of work for runners.
use axum::{Json, extract::State};
use domain::{ids::JobId, job::Verdict};
use projections::views::jobs as views;
use schemas::control::{
    Done, Page,
    jobs::{Cancel, Job, JobsQuery, Resolve, ResolveAs},
};

use super::{
    ask::{Ask, done, required},
    filter,
    lookup::Lookup,
    part::Part,
    show,
};
use crate::{
    extract::{self, Path, Query},
    problem::{Answer, Problem},
    state::App,
    usecases::jobs,
};

/// List jobs, newest first
#[utoipa::path(
    get, path = "/v1/jobs", tag = "jobs", params(JobsQuery),
    responses((status = 200, body = Page<Job>)),
)]
pub async fn list(State(app): State<App>, Query(which): Query<JobsQuery>) -> Answer<Page<Job>> {
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
    let part = Part::of(which.limit, which.cursor)?;
    let filter = views::Filter { install: of, run: which.run, build: None, state: which.state };
    let rows = views::page(&app.pool, &filter, part.after, part.rows()).await?;
    let (rows, next) = part.cut(rows, |row| row.job);
    let (mut look, mut items) = (Lookup::new(&app), Vec::new());
    look.for_jobs(&rows).await?;
    for row in &rows {
        items.push(show::job(&mut look, row).await?);
    }
    Ok(Json(Page { items, next }))
}

/// Get a job with its attempts and the reason it waits
#[utoipa::path(
    get, path = "/v1/jobs/{job}", tag = "jobs",
    params(("job" = String, Path, description = "The job's id")),
    responses((status = 200, body = Job)),
)]
pub async fn show(State(app): State<App>, Path(job): Path<JobId>) -> Answer<Job> {
    let row = views::job(&app.pool, job).await?.ok_or_else(|| Problem::not_found(job))?;
    Ok(Json(show::job(&mut Lookup::new(&app), &row).await?))
}

/// Cancel a job
///
/// The job is cancelled once its runner confirms.
#[utoipa::path(
    post, path = "/v1/jobs/{job}/cancel", tag = "jobs", request_body = Cancel,
    params(("job" = String, Path, description = "The job's id")),
    responses((status = 200, body = Done)),
)]
pub async fn cancel(
    State(app): State<App>,
    Path(job): Path<JobId>,
    Ask { call, .. }: Ask,
    extract::Json(ask): extract::Json<Cancel>,
) -> Answer<Done> {
    let reason = required(&ask.reason)?;
    Ok(Json(done(&jobs::cancel(&app, &call, job, reason, ask.force).await?)))
}

/// Resolve the unknown outcome of an execution
#[utoipa::path(
    post, path = "/v1/jobs/{job}/resolve", tag = "jobs", request_body = Resolve,
    params(("job" = String, Path, description = "The job's id")),
    responses((status = 200, body = Done)),
)]
pub async fn resolve(
    State(app): State<App>,
    Path(job): Path<JobId>,
    Ask { call, .. }: Ask,
    extract::Json(ask): extract::Json<Resolve>,
) -> Answer<Done> {
    let Resolve { execution, resolution, reason } = ask;
    let verdict = match resolution {
        ResolveAs::Succeeded => Verdict::Succeeded,
        ResolveAs::Failed => Verdict::Failed,
        ResolveAs::Retry => Verdict::Retry,
    };
    let reason = required(&reason)?;
    Ok(Json(done(&jobs::resolve(&app, &call, job, execution, verdict, reason).await?)))
}
