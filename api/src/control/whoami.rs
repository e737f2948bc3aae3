//! `/v1/whoami`: the authenticated caller.
use axum::{Json, extract::State};
use schemas::control::tokens::Whoami;

use crate::{extract::Caller, problem::ApiResult, queries::tokens, state::App};

/// Get the principal of the token and the head of the log
#[utoipa::path(get, path = "/v1/whoami", tag = "access", responses((status = 200, body = Whoami)))]
pub(super) async fn whoami(State(app): State<App>, caller: Caller) -> ApiResult<Whoami> {
    tokens::whoami(&app, &caller).await.map(Json)
}
