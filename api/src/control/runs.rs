//! `/v1/runs`: operations on installs, approvals and other interventions.
use axum::{Json, extract::State};
use domain::{
    ids::{RunId, StepId},
    run::PlanDecision,
};
use schemas::control::{
    ChangeResult, Page, ReasonBody,
    jobs::Cancel,
    runs::{ApproveRun, DenyRun, Run, RunRequested, RunSummary, RunsQuery, StepPlanDetails},
};
use serde_json::Value;

use super::change_request::{ChangeRequest, change_result, optional_reason, required_reason};
use crate::{
    extract::{self, Caller, Path, Query},
    problem::ApiResult,
    queries::runs as queries,
    state::App,
    usecases::runs,
};

/// List runs, newest first
#[utoipa::path(
    get, path = "/v1/runs", tag = "runs", params(RunsQuery),
    responses((status = 200, body = Page<RunSummary>)),
)]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<RunsQuery>,
) -> ApiResult<Page<RunSummary>> {
    queries::list(&app, &caller, query).await.map(Json)
}

/// Get a run, its steps, and the condition that each step waits for
#[utoipa::path(
    get, path = "/v1/runs/{run}", tag = "runs",
    params(("run" = String, Path, description = "The run's id")),
    responses((status = 200, body = Run)),
)]
pub(super) async fn show(
    State(app): State<App>,
    caller: Caller,
    Path(run): Path<RunId>,
) -> ApiResult<Run> {
    queries::get(&app, &caller, run).await.map(Json)
}

/// Get the redacted summary of a step's newest plan
#[utoipa::path(
    get, path = "/v1/runs/{run}/steps/{step}/plan", tag = "runs",
    params(
        ("run" = String, Path, description = "The run's id"),
        ("step" = String, Path, description = "The step's id"),
    ),
    responses((status = 200, body = Value)),
)]
pub(super) async fn plan(
    State(app): State<App>,
    caller: Caller,
    Path(step): Path<(RunId, StepId)>,
) -> ApiResult<Value> {
    queries::plan(&app, &caller, step).await.map(Json)
}

/// Get the details of a step's newest plan: the values that an apply would change
#[utoipa::path(
    get, path = "/v1/runs/{run}/steps/{step}/plan/details", tag = "runs",
    params(
        ("run" = String, Path, description = "The run's id"),
        ("step" = String, Path, description = "The step's id"),
    ),
    responses((status = 200, body = StepPlanDetails)),
)]
pub(super) async fn details(
    State(app): State<App>,
    caller: Caller,
    Path(step): Path<(RunId, StepId)>,
) -> ApiResult<StepPlanDetails> {
    queries::details(&app, &caller, step).await.map(Json)
}

/// Approve a plan by its digest
#[utoipa::path(
    post, path = "/v1/runs/{run}/approve", tag = "runs", request_body = ApproveRun,
    params(("run" = String, Path, description = "The run's id")),
    responses((status = 200, body = ChangeResult)),
)]
pub(super) async fn approve(
    State(app): State<App>,
    Path(run): Path<RunId>,
    ChangeRequest { caller, call }: ChangeRequest,
    extract::Json(body): extract::Json<ApproveRun>,
) -> ApiResult<ChangeResult> {
    let ApproveRun { step, digest, reason } = body;
    let decision =
        PlanDecision { step, digest, by: caller.actor, reason: required_reason(&reason)? };
    Ok(Json(change_result(&runs::approve(&app, &call, run, decision).await?)))
}

/// Deny a plan by its digest
#[utoipa::path(
    post, path = "/v1/runs/{run}/deny", tag = "runs", request_body = DenyRun,
    params(("run" = String, Path, description = "The run's id")),
    responses((status = 200, body = ChangeResult)),
)]
pub(super) async fn deny(
    State(app): State<App>,
    Path(run): Path<RunId>,
    ChangeRequest { caller, call }: ChangeRequest,
    extract::Json(body): extract::Json<DenyRun>,
) -> ApiResult<ChangeResult> {
    let DenyRun { step, digest, reason } = body;
    let decision =
        PlanDecision { step, digest, by: caller.actor, reason: required_reason(&reason)? };
    Ok(Json(change_result(&runs::deny(&app, &call, run, decision).await?)))
}

/// Cancel a run
#[utoipa::path(
    post, path = "/v1/runs/{run}/cancel", tag = "runs", request_body = Cancel,
    params(("run" = String, Path, description = "The run's id")),
    responses((status = 200, body = ChangeResult)),
)]
pub(super) async fn cancel(
    State(app): State<App>,
    Path(run): Path<RunId>,
    ChangeRequest { call, .. }: ChangeRequest,
    extract::Json(body): extract::Json<Cancel>,
) -> ApiResult<ChangeResult> {
    let reason = required_reason(&body.reason)?;
    Ok(Json(change_result(&runs::cancel(&app, &call, run, reason, body.force).await?)))
}

/// Retry the failed steps: in the same run while it is in progress, otherwise in a new run
#[utoipa::path(
    post, path = "/v1/runs/{run}/retry", tag = "runs", request_body = ReasonBody,
    params(("run" = String, Path, description = "The run's id")),
    responses((status = 200, body = RunRequested)),
)]
pub(super) async fn retry(
    State(app): State<App>,
    Path(run): Path<RunId>,
    ChangeRequest { call, .. }: ChangeRequest,
    extract::Json(body): extract::Json<ReasonBody>,
) -> ApiResult<RunRequested> {
    let again = runs::retry(&app, &call, run, optional_reason(body.reason)?).await?;
    Ok(Json(RunRequested { run: Some(again.value), position: again.position }))
}
