//! A short token for a signed word: 15 minutes, verified without a query from then on.
use axum::{Extension, Json, extract::State};
use domain::{
    ids::{InstallId, RunnerId},
    runner::{Identity, Mode, Runner},
};
use schemas::runner::{RunnerMode, TokenRequest, TokenResponse};

use crate::{
    auth::{ACCESS_SECONDS, Assertions},
    extract,
    listen::Ticket,
    problem::{Answer, Code, Problem},
    state::App,
};

/// Get an access token for a session, with a signed assertion.
#[utoipa::path(post, path = "/runner/v1/token", tag = "identity", request_body = TokenRequest,
    responses((status = 200, body = TokenResponse), (status = "4XX", body = schemas::problem::Problem)))]
pub async fn token(
    State(app): State<App>,
    connection: Option<Extension<Ticket>>,
    extract::Json(ask): extract::Json<TokenRequest>,
) -> Answer<TokenResponse> {
    let signer = Signer::of(&app, &ask.assertion).await?;
    let server_time = app.now();
    let claims =
        app.assertions.verify(&ask.assertion, &signer.identity.identity_key, server_time)?;
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

/// The runner that an assertion says to be of, as the log knows it now. Nothing is proven yet.
pub(super) struct Signer {
    pub id: RunnerId,
    pub identity: Identity,
    revoked: bool,
}

impl Signer {
    pub(super) async fn of(app: &App, assertion: &str) -> Result<Signer, Problem> {
        let id = Assertions::subject(assertion)?;
        let runner = app.engine.log().reload::<Runner>(&id.to_string()).await?.state;
        let unknown = || Problem::new(Code::AssertionInvalid, "the runner is not known here");
        let identity = runner.identity.clone().ok_or_else(unknown)?;
        Ok(Signer { id, identity, revoked: runner.revoked })
    }

    /// Said only to who has proven to be the runner.
    pub(super) fn not_revoked(&self) -> Result<(), Problem> {
        if self.revoked {
            return Err(Problem::new(Code::RunnerRevoked, "enrol again with a new token"));
        }
        Ok(())
    }

    /// What its tokens are good for.
    pub(super) fn scope(&self) -> (RunnerMode, Option<InstallId>) {
        let mode = match self.identity.mode {
            Mode::Install => RunnerMode::Install,
            Mode::Build => RunnerMode::Build,
        };
        (mode, self.identity.install)
    }
}
