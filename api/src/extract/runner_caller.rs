//! Authenticates callers of the Runner API. The signed token identifies the caller, so the server
//! needs no lookup of the token.
use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, header, request::Parts},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use domain::{
    actor::Actor,
    decider::Timestamp,
    ids::{ExecutionId, InstallId, JobId, RunnerId},
};
use schemas::{
    manifest::Fence,
    runner::RunnerMode,
    token::{AccessClaims, JobClaims},
};

use super::caller::bearer;
use crate::{
    auth::{Tokens, secret},
    dispatch::SessionError,
    listen::Ticket,
    problem::{Code, Problem},
    state::App,
};

/// Runner with a valid access token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RunnerCaller {
    pub id: RunnerId,
    /// Purpose of the runner: one install, or builds.
    pub mode: RunnerMode,
    /// Install that the runner manages. `None` for a build runner.
    pub install: Option<InstallId>,
    /// Generation of the session for which the token was issued. It is the runner's newest session.
    pub generation: u64,
}

impl RunnerCaller {
    /// Actor for the metadata of events.
    pub(crate) fn actor(&self) -> Actor {
        Actor::Runner(self.id)
    }
}

impl FromRequestParts<App> for RunnerCaller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let token = bearer(&parts.headers)?;
        let claims = app.tokens.read_access(reject_other_tokens(token)?, app.now())?;
        let AccessClaims { sub: id, mode, install, generation, .. } = claims;
        check_readable(app, id).await?;
        check_not_revoked(app, id)?;
        check_generation(app, id, generation).await?;
        mark_authenticated(parts);
        Ok(RunnerCaller { id, mode, install, generation })
    }
}

/// Marks the connection as authenticated, so that the listener does not evict it.
fn mark_authenticated(parts: &Parts) {
    if let Some(connection) = parts.extensions.get::<Ticket>() {
        connection.authenticate();
    }
}

/// Rejects a token of an older session, because an agent with the same key has opened a newer
/// session. Only a generation that this server does not know yet needs a query.
async fn check_generation(app: &App, runner: RunnerId, generation: u64) -> Result<(), Problem> {
    let known = app.dispatch.generation_of(runner);
    if known.is_some_and(|known| known >= generation) {
        let newest = known == Some(generation);
        return if newest { Ok(()) } else { Err(SessionError::Superseded.into()) };
    }
    let newest: Option<i64> =
        sqlx::query_scalar("select generation from runner_session where runner = $1")
            .bind(runner.to_string())
            .fetch_optional(&app.pool)
            .await?;
    match newest.map(i64::cast_unsigned) {
        Some(newest) if newest == generation => Ok(()),
        Some(newest) if newest > generation => Err(SessionError::Superseded.into()),
        // No session of this generation is stored: the token is invalid, or the database lost its
        // last commits.
        Some(_) | None => Err(SessionError::Unknown.into()),
    }
}

/// Caller with the job token of one execution. The handler checks whether the execution still holds
/// the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JobCaller {
    pub job: JobId,
    pub execution: ExecutionId,
    pub runner: RunnerId,
    /// Fence of the execution's grant.
    pub fence: Fence,
}

impl FromRequestParts<App> for JobCaller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        JobCaller::with(parts, app, Tokens::read_job).await
    }
}

impl JobCaller {
    /// Authenticates a caller whose job token may have expired. The handler must check in the log
    /// that the execution holds its job.
    pub(crate) async fn of_any_time(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        JobCaller::with(parts, app, Tokens::read_job_of_any_time).await
    }

    async fn with(
        parts: &mut Parts,
        app: &App,
        read: impl Fn(&Tokens, &str, Timestamp) -> Result<JobClaims, Problem>,
    ) -> Result<Self, Problem> {
        let token = match basic_password(&parts.headers) {
            Some(password) => password,
            None => bearer(&parts.headers)?.to_string(),
        };
        let claims = read(&app.tokens, reject_other_tokens(&token)?, app.now())?;
        check_readable(app, claims.sub).await?;
        check_not_revoked(app, claims.sub)?;
        mark_authenticated(parts);
        let (job, execution) = (claims.job, claims.execution);
        Ok(JobCaller { job, execution, runner: claims.sub, fence: claims.fence })
    }
}

/// Returns the password of the user `job`. OCI clients send the job token as this password.
fn basic_password(headers: &HeaderMap) -> Option<String> {
    let given = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, encoded) = given.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()?;
    let (user, password) = decoded.split_once(':')?;
    (user == "job").then(|| password.to_string())
}

fn reject_other_tokens(token: &str) -> Result<&str, Problem> {
    if token.starts_with(secret::PREFIX) {
        let detail = "token rejected: the Runner API accepts only access tokens and job tokens of runners; \
                      send such a token";
        return Err(Problem::new(Code::TokenTypeMismatch, detail));
    }
    Ok(token)
}

async fn check_readable(app: &App, runner: RunnerId) -> Result<(), Problem> {
    // The dispatcher has read all events of each runner in its table.
    let was_read = || app.dispatch.state().runners.get(runner).is_some();
    app.principals.check_runner(app.log(), runner, was_read).await
}

fn check_not_revoked(app: &App, runner: RunnerId) -> Result<(), Problem> {
    if app.principals.is_revoked(runner) { Err(revoked(runner)) } else { Ok(()) }
}

/// Returns the rejection of a revoked runner.
pub(crate) fn revoked(runner: RunnerId) -> Problem {
    let detail =
        format!("token rejected: {runner} was revoked; enrol it again with a new enrolment token");
    Problem::new(Code::RunnerRevoked, detail)
}
