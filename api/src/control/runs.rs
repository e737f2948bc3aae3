//! `/v1/runs`: operations on installs, and people's words on their plans.
use axum::{Json, extract::State};
use domain::{
    ids::{RunId, StepId},
    run::Word,
};
use projections::views::runs as views;
use schemas::control::{
    Done, Page, ReasonBody,
    jobs::Cancel,
    runs::{ApproveRun, DenyRun, Run, RunRequested, RunSummary, RunsQuery},
};
use serde_json::Value;

use super::{
    ask::{Ask, done, optional, required},
    filter,
    lookup::Lookup,
    part::Part,
    show,
};
use crate::{
    extract::{self, Path, Query},
    problem::{Answer, Problem},
    state::App,
    usecases::runs,
};

/// List runs, newest first
#[utoipa::path(
    get, path = "/v1/runs", tag = "runs", params(RunsQuery),
    responses((status = 200, body = Page<RunSummary>)),
)]
pub async fn list(
    State(app): State<App>,
    Query(which): Query<RunsQuery>,
) -> Answer<Page<RunSummary>> {
    let of = match &which.install {
        Some(name) => Some(filter::install(&app, name).await?),
        None => None,
    };
    filter::one_of("state", which.state.as_deref(), &views::STATES)?;
    let (part, state) = (Part::of(which.limit, which.cursor)?, which.state.as_deref());
    let rows = views::page(&app.pool, of, state, part.after, part.rows()).await?;
    let (rows, next) = part.cut(rows, |row| row.run);
    let (mut look, mut items) = (Lookup::new(&app), Vec::new());
    look.for_runs(&rows).await?;
    for row in &rows {
        items.extend(show::summary(&mut look, row).await?);
    }
    Ok(Json(Page { items, next }))
}

/// Get a run with its steps
#[utoipa::path(
    get, path = "/v1/runs/{run}", tag = "runs",
    params(("run" = String, Path, description = "The run's id")),
    responses((status = 200, body = Run)),
)]
pub async fn show(State(app): State<App>, Path(run): Path<RunId>) -> Answer<Run> {
    let row = views::run(&app.pool, run).await?.ok_or_else(|| Problem::not_found(run))?;
    let shown = show::run(&mut Lookup::new(&app), &row, app.views.position()).await?;
    shown.map(Json).ok_or_else(|| Problem::not_found(run))
}

/// Get the redacted summary of the newest plan of a step
#[utoipa::path(
    get, path = "/v1/runs/{run}/steps/{step}/plan", tag = "runs",
    params(
        ("run" = String, Path, description = "The run's id"),
        ("step" = String, Path, description = "The step's id"),
    ),
    responses((status = 200, body = Value)),
)]
pub async fn plan(
    State(app): State<App>,
    Path((run, step)): Path<(RunId, StepId)>,
) -> Answer<Value> {
    let row = views::run(&app.pool, run).await?.ok_or_else(|| Problem::not_found(run))?;
    let plan = row.plans.get(&step);
    let digest = &plan.ok_or_else(|| Problem::not_found(format!("a plan of {step}")))?.summary;
    let bytes = event_log::blob::get(&app.pool, digest).await?;
    let bytes = bytes.ok_or_else(|| Problem::internal(format!("no blob {digest}")))?;
    serde_json::from_slice(&bytes).map(Json).map_err(Problem::internal)
}

/// Approve a plan by its digest
#[utoipa::path(
    post, path = "/v1/runs/{run}/approve", tag = "runs", request_body = ApproveRun,
    params(("run" = String, Path, description = "The run's id")),
    responses((status = 200, body = Done)),
)]
pub async fn approve(
    State(app): State<App>,
    Path(run): Path<RunId>,
    Ask { who, call }: Ask,
    extract::Json(ask): extract::Json<ApproveRun>,
) -> Answer<Done> {
    let ApproveRun { step, digest, reason } = ask;
    let word = Word { step, digest, by: who.actor, reason: required(&reason)? };
    Ok(Json(done(&runs::approve(&app, &call, run, word).await?)))
}

/// Deny a plan by its digest
#[utoipa::path(
    post, path = "/v1/runs/{run}/deny", tag = "runs", request_body = DenyRun,
    params(("run" = String, Path, description = "The run's id")),
    responses((status = 200, body = Done)),
)]
pub async fn deny(
    State(app): State<App>,
    Path(run): Path<RunId>,
    Ask { who, call }: Ask,
    extract::Json(ask): extract::Json<DenyRun>,
) -> Answer<Done> {
    let DenyRun { step, digest, reason } = ask;
    let word = Word { step, digest, by: who.actor, reason: required(&reason)? };
    Ok(Json(done(&runs::deny(&app, &call, run, word).await?)))
}

/// Cancel a run
#[utoipa::path(
    post, path = "/v1/runs/{run}/cancel", tag = "runs", request_body = Cancel,
    params(("run" = String, Path, description = "The run's id")),
    responses((status = 200, body = Done)),
)]
pub async fn cancel(
    State(app): State<App>,
    Path(run): Path<RunId>,
    Ask { call, .. }: Ask,
    extract::Json(ask): extract::Json<Cancel>,
) -> Answer<Done> {
    let reason = required(&ask.reason)?;
    Ok(Json(done(&runs::cancel(&app, &call, run, reason, ask.force).await?)))
}

/// Retry failed steps: in the run while it is active, otherwise as a new run
#[utoipa::path(
    post, path = "/v1/runs/{run}/retry", tag = "runs", request_body = ReasonBody,
    params(("run" = String, Path, description = "The run's id")),
    responses((status = 200, body = RunRequested)),
)]
pub async fn retry(
    State(app): State<App>,
    Path(run): Path<RunId>,
    Ask { call, .. }: Ask,
    extract::Json(ask): extract::Json<ReasonBody>,
) -> Answer<RunRequested> {
    let again = runs::retry(&app, &call, run, optional(ask.reason)?).await?;
    Ok(Json(RunRequested { run: Some(again.answer), position: again.position }))
}
