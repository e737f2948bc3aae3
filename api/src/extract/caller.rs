//! Authenticates callers of the Control API and checks the role that the route requires.
use axum::{
    extract::{FromRequestParts, MatchedPath, Request, State},
    http::{HeaderMap, header, request::Parts},
    middleware::Next,
    response::Response,
};
use domain::{
    access::Role,
    actor::Actor,
    ids::{PrincipalId, TokenId},
};

use crate::{
    auth::{Identity, roles, secret},
    listen::Ticket,
    problem::{Code, Problem},
    state::App,
};

/// Authenticated caller of the Control API.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Caller {
    pub principal: PrincipalId,
    pub roles: std::collections::BTreeSet<Role>,
    /// Id of the token that the request carries.
    pub token: TokenId,
    /// Actor for the metadata of events.
    pub actor: Actor,
}

impl Caller {
    /// Checks that the caller has the role that a route of the Control API requires.
    ///
    /// # Errors
    /// 403 if no role of the caller permits the route.
    pub(crate) fn authorize(&self, method: &str, route: &str) -> Result<(), Problem> {
        let needs = roles::required_role(method, route);
        if self.roles.iter().any(|role| needs.satisfied_by(*role)) {
            return Ok(());
        }
        let detail =
            format!("request rejected: it requires the role {needs}; ask an owner for the role");
        Err(Problem::new(Code::Forbidden, detail))
    }

    /// Checks again that the caller is still authorized. The guard checks once per request. A
    /// streaming handler must call this regularly, so that a revoked token stops the stream.
    ///
    /// # Errors
    /// 401 if the token is no longer valid, 403 if a role was revoked.
    pub(crate) fn recheck(&self, app: &App) -> Result<(), Problem> {
        app.principals.check_current(app.log())?;
        app.principals.check_still_valid((self.principal, self.token), &self.roles, app.now())
    }
}

impl From<Identity> for Caller {
    fn from(identity: Identity) -> Self {
        let Identity { principal, roles, token } = identity;
        Caller { principal, roles, token, actor: Actor::Principal(principal) }
    }
}

/// Middleware that authenticates and authorizes the caller.
pub(crate) async fn guard(
    State(app): State<App>,
    route: MatchedPath,
    mut request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let identity = identify(&app, bearer(request.headers())?).await?;
    if let Some(connection) = request.extensions().get::<Ticket>() {
        connection.authenticate();
    }
    let who = Caller::from(identity);
    who.authorize(request.method().as_str(), route.as_str())?;
    request.extensions_mut().insert(who);
    Ok(next.run(request).await)
}

/// Returns the principal of a token of a user or a service.
///
/// # Errors
/// 401 if the token is unknown, expired or revoked, or is of another type.
pub(crate) async fn identify(app: &App, token: &str) -> Result<Identity, Problem> {
    if token.starts_with(secret::ENROLMENT_PREFIX) || !token.starts_with(secret::PREFIX) {
        let detail = "token rejected: the Control API accepts only tokens of users and services (stead_…); \
             send such a token";
        return Err(Problem::new(Code::TokenTypeMismatch, detail));
    }
    let now = app.now();
    match app.principals.identify(token, now) {
        // The token may be new: wait until the cache includes the current head.
        Err(problem) if problem.code == Code::TokenUnknown => {
            app.principals.wait_for_position(app.log().position()).await;
            app.principals.identify(token, now)
        }
        known => known,
    }
}

/// Middleware that rejects every request while this server's last read of the log is too old.
/// Probes, metrics and documents are exempt.
pub(crate) async fn require_current(
    State(app): State<App>,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    app.principals.check_current(app.log())?;
    Ok(next.run(request).await)
}

/// Returns the token of `Authorization: Bearer …`.
pub(super) fn bearer(headers: &HeaderMap) -> Result<&str, Problem> {
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let (scheme, token) = given.and_then(|value| value.split_once(' ')).unwrap_or_default();
    if !scheme.eq_ignore_ascii_case("bearer") || token.trim().is_empty() {
        let detail =
            "request rejected: it has no token; send the header `Authorization: Bearer <token>`";
        return Err(Problem::new(Code::TokenMissing, detail));
    }
    Ok(token.trim())
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let found = parts.extensions.get::<Caller>().cloned();
        found.ok_or_else(|| {
            Problem::internal(
                "cannot identify the caller: the route has no authentication middleware",
            )
        })
    }
}
