//! Exchange of a signed assertion for an access token. The token is valid for 15 minutes.
use axum::{Extension, Json, extract::State};
use domain::{
    ids::{InstallId, RunnerId},
    runner::{Identity, Runner, RunnerMode},
};
use schemas::runner::{TokenRequest, TokenResponse};

use crate::{
    auth::{ACCESS_SECONDS, Assertions},
    extract,
    listen::Ticket,
    problem::{ApiResult, Code, Problem},
    state::App,
};

/// Get an access token for a session, authenticated by a signed assertion.
#[utoipa::path(post, path = "/runner/v1/token", tag = "identity", request_body = TokenRequest,
    responses((status = 200, body = TokenResponse), (status = "4XX", body = schemas::problem::Problem)))]
pub(crate) async fn token(
    State(app): State<App>,
    connection: Option<Extension<Ticket>>,
    extract::Json(body): extract::Json<TokenRequest>,
) -> ApiResult<TokenResponse> {
    let signer = Signer::of(&app, &body.assertion).await?;
    let server_time = app.now();
    let claims =
        app.assertions.verify(&body.assertion, &signer.identity.identity_key, server_time)?;
    signer.not_revoked()?;
    if let Some(Extension(connection)) = connection {
        connection.authenticate();
    }
    let access_token = app
        .tokens
        .access(signer.id, signer.scope(), claims.generation, server_time)
        .map_err(Problem::internal)?;
    Ok(Json(TokenResponse { access_token, expires_in_s: ACCESS_SECONDS, server_time }))
}

/// Runner that an assertion names, as loaded from the log. The signature is not verified yet.
pub(super) struct Signer {
    pub id: RunnerId,
    pub identity: Identity,
    revoked: bool,
}

impl Signer {
    pub(super) async fn of(app: &App, assertion: &str) -> Result<Signer, Problem> {
        let id = Assertions::subject(assertion)?;
        let runner = app.engine.log().reload::<Runner>(&id.to_string()).await?.state;
        let unknown = || {
            let detail = "request rejected: unknown runner; enrol it first";
            Problem::new(Code::AssertionInvalid, detail)
        };
        let identity = runner.identity.clone().ok_or_else(unknown)?;
        Ok(Signer { id, identity, revoked: runner.revoked })
    }

    /// Rejects a revoked runner. Call it only after the signature was verified.
    pub(super) fn not_revoked(&self) -> Result<(), Problem> {
        if self.revoked {
            return Err(Problem::new(
                Code::RunnerRevoked,
                "request rejected: the runner was revoked; enrol it again with a new enrolment token",
            ));
        }
        Ok(())
    }

    /// Mode and install of the runner, which limit its tokens.
    pub(super) fn scope(&self) -> (RunnerMode, Option<InstallId>) {
        (self.identity.mode, self.identity.install)
    }
}
