//! A short token for a signed word: 15 minutes, verified without a query from then on.
use axum::{Json, extract::State};
use domain::runner::{Mode, Runner};
use schemas::runner::{RunnerMode, TokenAnswer, TokenAsk};

use crate::{
    auth::{ACCESS_SECONDS, Assertions},
    extract,
    problem::{Answer, Code, Problem},
    state::App,
};

/// Prove who calls by a signature; get an access token.
#[utoipa::path(post, path = "/runner/v1/token", tag = "identity", request_body = TokenAsk,
    responses((status = 200, body = TokenAnswer), (status = "4XX", body = schemas::problem::Problem)))]
pub async fn token(
    State(app): State<App>,
    extract::Json(ask): extract::Json<TokenAsk>,
) -> Answer<TokenAnswer> {
    let id = Assertions::subject(&ask.assertion)?;
    let runner = app.engine.log().reload::<Runner>(&id.to_string()).await?.state;
    let unknown = || Problem::new(Code::AssertionInvalid, "the runner is not known here");
    let identity = runner.identity.as_ref().ok_or_else(unknown)?;
    let server_time = app.now();
    app.assertions.verify(&ask.assertion, &identity.identity_key, server_time)?;
    if runner.revoked {
        return Err(Problem::new(Code::RunnerRevoked, "enrol again with a new token"));
    }
    let mode = match identity.mode {
        Mode::Install => RunnerMode::Install,
        Mode::Build => RunnerMode::Build,
    };
    let access_token =
        app.tokens.access(id, mode, identity.install, server_time).map_err(Problem::internal)?;
    Ok(Json(TokenAnswer { access_token, expires_in_s: ACCESS_SECONDS, server_time }))
}
