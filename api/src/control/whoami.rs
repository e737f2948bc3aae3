//! `/v1/whoami`: the authenticated caller.
use axum::{Json, extract::State};
use schemas::control::tokens::Whoami;

use crate::{auth::names, extract::Caller, problem::ApiResult, state::App};

/// Get the principal of the token and the head of the log
#[utoipa::path(get, path = "/v1/whoami", tag = "access", responses((status = 200, body = Whoami)))]
pub async fn whoami(State(app): State<App>, who: Caller) -> ApiResult<Whoami> {
    let log = app.engine.log();
    let name = names::get(&app.pool, [who.principal]).await?.remove(&who.principal);
    Ok(Json(Whoami {
        principal: who.principal,
        name,
        roles: who.roles.iter().map(|role| role.as_str().to_owned()).collect(),
        log: log.head().origin(),
        version: env!("CARGO_PKG_VERSION").into(),
        position: log.position(),
    }))
}
