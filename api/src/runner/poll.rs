//! The one idle call.
use std::time::Duration;

use axum::{
    Extension, Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use domain::ids::RunnerId;
use schemas::runner::{Next, Poll, PollResponse};
use serde::Deserialize;

use super::{caller, session, settle};
use crate::{
    auth::Runner,
    dispatch::{Calls, Polled, SessionRefusal, Touched},
    extract,
    listen::Aside,
    problem::Problem,
    state::App,
};

/// The query of a poll.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
pub struct Wait {
    /// Seconds to wait for news; the server may wait less.
    wait: Option<u64>,
}

/// Long poll for directives.
#[utoipa::path(post, path = "/runner/v1/poll", tag = "session", params(Wait), request_body = Poll,
    responses((status = 200, body = PollResponse), (status = 204),
        (status = "4XX", body = schemas::problem::Problem)))]
pub async fn poll(
    State(app): State<App>,
    runner: Runner,
    aside: Option<Extension<Aside>>,
    extract::Query(query): extract::Query<Wait>,
    extract::Json(ask): extract::Json<Poll>,
) -> Result<Response, Problem> {
    caller::allow(&app, &runner, Calls::Poll)?;
    let touched = touch(&app, &runner, &ask).await?;
    settle::settle(&app, &runner, touched, ask.disabled.as_deref()).await;
    let wait = query.wait.map_or(app.dispatch.timing().wait, Duration::from_secs);
    let parked = park(app, runner.id, ask, wait);
    Ok(match aside {
        Some(Extension(aside)) => aside.put(Box::pin(parked)),
        None => parked.await,
    })
}

/// What is kept while a runner waits: nothing of its call but this.
async fn park(app: App, runner: RunnerId, ask: Poll, wait: Duration) -> Response {
    match app.dispatch.park(runner, &ask, wait).await {
        Ok(Polled::Nothing) => StatusCode::NO_CONTENT.into_response(),
        Ok(Polled::News { directives, leases, delay_ms }) => {
            let next = Next { wait_s: None, delay_ms };
            Json(PollResponse { server_time: app.now(), directives, leases, next }).into_response()
        }
        Err(refusal) => Problem::from(refusal).into_response(),
    }
}

/// A sign of life; a session that this server does not know is looked for in the database, once.
async fn touch(app: &App, runner: &Runner, ask: &Poll) -> Result<Touched, Problem> {
    match app.dispatch.touch(runner.id, ask) {
        Err(SessionRefusal::Unknown) => {
            let running = u32::try_from(ask.running.len()).unwrap_or(u32::MAX);
            let slots = ask.free_slots.saturating_add(running);
            session::adopt(app, runner, ask.session_id, ask.generation, slots).await?;
            Ok(app.dispatch.touch(runner.id, ask)?)
        }
        known => Ok(known?),
    }
}
