//! The runners' door: who calls is in the token, and nobody is asked.
use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, header, request::Parts},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use domain::{
    actor::Actor,
    ids::{ExecutionId, InstallId, JobId, RunnerId},
};
use schemas::{manifest::Fence, runner::RunnerMode, token::AccessClaims};

use super::{guard::bearer, secret};
use crate::{
    dispatch::SessionRefusal,
    listen::Ticket,
    problem::{Code, Problem},
    state::App,
};

/// A runner that calls with its access token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Runner {
    /// Which.
    pub id: RunnerId,
    /// What it is for.
    pub mode: RunnerMode,
    /// The one install that it may touch; none for a build runner.
    pub install: Option<InstallId>,
    /// The session that its token is for, the newest one.
    pub generation: u64,
}

impl Runner {
    /// As the log writes it.
    pub fn actor(&self) -> Actor {
        Actor::Runner(self.id)
    }
}

impl FromRequestParts<App> for Runner {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let token = bearer(&parts.headers)?;
        let claims = app.tokens.read_access(ours(token)?, app.now())?;
        let AccessClaims { sub: id, mode, install, generation, .. } = claims;
        readable(app, id).await?;
        not_revoked(app, id)?;
        newest(app, id, generation).await?;
        authenticated(parts);
        Ok(Runner { id, mode, install, generation })
    }
}

/// Marks the connection as authenticated: its listener does not close it to make room.
fn authenticated(parts: &Parts) {
    if let Some(connection) = parts.extensions.get::<Ticket>() {
        connection.authenticate();
    }
}

/// A token is one session's. With a newer one it is good for nothing any more, whatever the call: that is
/// how a former agent, or a thief, hears of it. Only what this server has not heard of costs a query.
async fn newest(app: &App, runner: RunnerId, generation: u64) -> Result<(), Problem> {
    let known = app.dispatch.generation_of(runner);
    if known.is_some_and(|known| known >= generation) {
        let newest = known == Some(generation);
        return if newest { Ok(()) } else { Err(SessionRefusal::Superseded.into()) };
    }
    let newest: Option<i64> =
        sqlx::query_scalar("select generation from runner_session where runner = $1")
            .bind(runner.to_string())
            .fetch_optional(&app.pool)
            .await?;
    match newest.map(i64::cast_unsigned) {
        Some(newest) if newest == generation => Ok(()),
        Some(newest) if newest > generation => Err(SessionRefusal::Superseded.into()),
        // The database is behind: it is not the one that gave this token, or has lost its last commits.
        Some(_) | None => Err(SessionRefusal::Unknown.into()),
    }
}

/// A call in the name of one execution, with its job token. Whether the execution still has the job is
/// for the handler to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobCall {
    /// The job.
    pub job: JobId,
    /// The execution.
    pub execution: ExecutionId,
    /// The runner.
    pub runner: RunnerId,
    /// The fence of its grant.
    pub fence: Fence,
}

impl FromRequestParts<App> for JobCall {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let token = match basic(&parts.headers) {
            Some(password) => password,
            None => bearer(&parts.headers)?.to_string(),
        };
        let claims = app.tokens.read_job(ours(&token)?, app.now())?;
        readable(app, claims.sub).await?;
        not_revoked(app, claims.sub)?;
        authenticated(parts);
        let (job, execution) = (claims.job, claims.execution);
        Ok(JobCall { job, execution, runner: claims.sub, fence: claims.fence })
    }
}

/// The password of user `job`: what OCI clients send.
fn basic(headers: &HeaderMap) -> Option<String> {
    let given = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, encoded) = given.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()?;
    let (user, password) = decoded.split_once(':')?;
    (user == "job").then(|| password.to_string())
}

fn ours(token: &str) -> Result<&str, Problem> {
    if token.starts_with(secret::PREFIX) {
        let detail = "tokens of people and enrolment tokens are not taken here";
        return Err(Problem::new(Code::TokenTypeMismatch, detail));
    }
    Ok(token)
}

async fn readable(app: &App, runner: RunnerId) -> Result<(), Problem> {
    // The dispatcher has read every event of a runner in its roster.
    let was_read = || app.dispatch.desk().roster.get(runner).is_some();
    app.people.check_runner(app.log(), runner, was_read).await
}

fn not_revoked(app: &App, runner: RunnerId) -> Result<(), Problem> {
    if app.people.is_revoked(runner) {
        let detail = format!("{runner} was revoked; enrol again with a new token");
        return Err(Problem::new(Code::RunnerRevoked, detail));
    }
    Ok(())
}
