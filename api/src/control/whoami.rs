//! Who is asking.
use axum::{Json, extract::State};
use schemas::control::tokens::Whoami;

use crate::{
    auth::{Who, names},
    problem::Answer,
    state::App,
};

/// Get the principal of the token and the position of the log
#[utoipa::path(get, path = "/v1/whoami", tag = "access", responses((status = 200, body = Whoami)))]
pub async fn whoami(State(app): State<App>, who: Who) -> Answer<Whoami> {
    let log = app.engine.log();
    let name = names::of(&app.pool, [who.principal]).await?.remove(&who.principal);
    Ok(Json(Whoami {
        principal: who.principal,
        name,
        roles: who.roles.iter().map(|role| role.as_str().to_owned()).collect(),
        log: log.head().origin(),
        version: env!("CARGO_PKG_VERSION").into(),
        position: log.position(),
    }))
}
