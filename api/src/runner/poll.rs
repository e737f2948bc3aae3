//! Long poll of a runner: records its contact, and returns directives.
use std::time::Duration;

use axum::{
    Extension, Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use domain::ids::RunnerId;
use schemas::runner::{Poll, PollResponse, PollTiming};
use serde::Deserialize;

use super::{caller, reconnect, session};
use crate::{
    dispatch::{CallKind, ContactChanges, Polled, SessionError},
    extract::{self, RunnerCaller},
    listen::ParkedResponse,
    problem::Problem,
    state::App,
};

/// Query parameters of a poll.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
pub(crate) struct PollQuery {
    /// Seconds to wait for directives. The server may wait less. Without a value, the server's
    /// long-poll timeout applies.
    wait: Option<u64>,
}

/// Wait for directives.
#[utoipa::path(post, path = "/runner/v1/poll", tag = "session", params(PollQuery), request_body = Poll,
    responses((status = 200, body = PollResponse), (status = 204),
        (status = "4XX", body = schemas::problem::Problem)))]
pub(crate) async fn poll(
    State(app): State<App>,
    runner: RunnerCaller,
    parking: Option<Extension<ParkedResponse>>,
    extract::Query(query): extract::Query<PollQuery>,
    extract::Json(body): extract::Json<Poll>,
) -> Result<Response, Problem> {
    caller::allow(&app, &runner, CallKind::Poll)?;
    let touched = record_poll(&app, &runner, &body).await?;
    reconnect::record_contact(&app, &runner, touched, body.disabled.as_deref()).await;
    let wait = query.wait.map_or(app.dispatch.timing().long_poll, Duration::from_secs);
    let parked = wait_for_directives(app, runner.id, body, wait);
    Ok(match parking {
        Some(Extension(parking)) => parking.defer(Box::pin(parked)),
        None => parked.await,
    })
}

/// Waits for directives. No other data of the request stays in memory meanwhile.
async fn wait_for_directives(app: App, runner: RunnerId, body: Poll, wait: Duration) -> Response {
    match app.dispatch.long_poll(runner, &body, wait).await {
        Ok(Polled::Empty) => StatusCode::NO_CONTENT.into_response(),
        Ok(Polled::Directives { directives, leases, delay_ms }) => {
            let next = PollTiming { wait_s: None, delay_ms };
            Json(PollResponse { server_time: app.now(), directives, leases, next }).into_response()
        }
        Err(refusal) => Problem::from(refusal).into_response(),
    }
}

/// Records the contact. If this server does not know the session, it first tries to take the
/// session over.
async fn record_poll(
    app: &App,
    runner: &RunnerCaller,
    body: &Poll,
) -> Result<ContactChanges, Problem> {
    match app.dispatch.apply_poll(runner.id, body) {
        Err(SessionError::Unknown) => {
            let running = u32::try_from(body.running.len()).unwrap_or(u32::MAX);
            let slots = body.free_slots.saturating_add(running);
            session::adopt(app, runner, body.session_id, body.generation, slots).await?;
            Ok(app.dispatch.apply_poll(runner.id, body)?)
        }
        known => Ok(known?),
    }
}
