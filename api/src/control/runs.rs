//! `/v1/runs`: operations on installs, and people's words on their plans.
use axum::{Json, extract::State};
use domain::{
    ids::{RunId, StepId},
    run::{Run as RunState, RunEvent, Word},
};
use schemas::control::{
    Because, Done, Page,
    jobs::Cancel,
    runs::{ApproveRun, DenyRun, Run, RunRequested, RunSummary, RunsQuery},
};
use serde_json::Value;

use super::{
    ask::{Ask, done, optional, required},
    read,
    read::Part,
    show,
};
use crate::{
    extract::{self, Path, Query},
    problem::{Answer, Problem},
    state::App,
    usecases::{installs, runs},
};

/// Runs, the newest first
#[utoipa::path(
    get, path = "/v1/runs", tag = "runs", params(RunsQuery),
    responses((status = 200, body = Page<RunSummary>)),
)]
pub async fn list(
    State(app): State<App>,
    Query(which): Query<RunsQuery>,
) -> Answer<Page<RunSummary>> {
    let of = match &which.install {
        Some(name) => Some(installs::find(&app, name).await?),
        None => None,
    };
    let (owned, wanted) = (&app, which.state.as_deref());
    let part = Part::of::<RunState>(which.limit, which.cursor)?;
    let page = read::list::<RunState, _, _>(&app, part, |history| async move {
        if of.is_some() && history.state.request.as_ref().map(|r| r.install) != of {
            return Ok(None);
        }
        let shown = show::summary(owned, &history).await?;
        Ok(shown.filter(|run| wanted.is_none_or(|state| state == run.state)))
    });
    Ok(Json(page.await?))
}

/// One run, with its steps and what each waits for
#[utoipa::path(
    get, path = "/v1/runs/{run}", tag = "runs",
    params(("run" = String, Path, description = "The run's id")),
    responses((status = 200, body = Run)),
)]
pub async fn show(State(app): State<App>, Path(run): Path<RunId>) -> Answer<Run> {
    let history = read::one::<RunState>(&app, run).await?;
    show::run(&app, &history).await.map(Json)
}

/// The redacted summary of a step's newest plan
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
    let history = read::one::<RunState>(&app, run).await?;
    let newest = history.events.iter().rev().find_map(|(_, event)| match event {
        RunEvent::PlanProduced { step: of, plan, .. } if *of == step => Some(plan.summary.clone()),
        _ => None,
    });
    let digest = newest.ok_or_else(|| Problem::not_found(format!("a plan of {step}")))?;
    let bytes = event_log::blob::get(&app.pool, &digest).await?;
    let bytes = bytes.ok_or_else(|| Problem::internal(format!("no blob {digest}")))?;
    serde_json::from_slice(&bytes).map(Json).map_err(Problem::internal)
}

/// Say yes to a plan, by its digest
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

/// Say no to the plan that waits
#[utoipa::path(
    post, path = "/v1/runs/{run}/deny", tag = "runs", request_body = DenyRun,
    params(("run" = String, Path, description = "The run's id")),
    responses((status = 200, body = Done)),
)]
pub async fn deny(
    State(app): State<App>,
    Path(run): Path<RunId>,
    Ask { call, .. }: Ask,
    extract::Json(ask): extract::Json<DenyRun>,
) -> Answer<Done> {
    let reason = required(&ask.reason)?;
    Ok(Json(done(&runs::deny(&app, &call, run, ask.step, reason).await?)))
}

/// Stop a run
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
    Ok(Json(done(&runs::cancel(&app, &call, run, reason).await?)))
}

/// Do again what failed: in the run while it goes on, else as a new one
#[utoipa::path(
    post, path = "/v1/runs/{run}/retry", tag = "runs", request_body = Because,
    params(("run" = String, Path, description = "The run's id")),
    responses((status = 200, body = RunRequested)),
)]
pub async fn retry(
    State(app): State<App>,
    Path(run): Path<RunId>,
    Ask { call, .. }: Ask,
    extract::Json(ask): extract::Json<Because>,
) -> Answer<RunRequested> {
    optional(ask.reason)?;
    let again = runs::retry(&app, &call, run, None).await?;
    Ok(Json(RunRequested { run: again.answer, position: again.position }))
}
