//! The people's door: nobody gets to a handler without a token and the role that the route needs.
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

use super::{
    Identity,
    roles::{self, Needs},
    secret,
};
use crate::{
    listen::Ticket,
    problem::{Code, Problem},
    state::App,
};

/// Who calls the Control API.
#[derive(Debug, Clone, PartialEq)]
pub struct Who {
    /// The principal.
    pub principal: PrincipalId,
    /// Everything that it may do.
    pub roles: std::collections::BTreeSet<Role>,
    /// The token that it used.
    pub token: TokenId,
    /// The same principal, as the log writes it.
    pub actor: Actor,
}

impl Who {
    /// Whether its roles allow this.
    pub fn may(&self, needs: Needs) -> bool {
        self.roles.iter().any(|role| needs.satisfied_by(*role))
    }

    /// Whether it would be let in now as it was then. The guard asks once per call, so whoever answers for
    /// longer asks this from time to time: a token that was revoked must not read on.
    ///
    /// # Errors
    /// 401 or 403.
    pub fn still(&self, app: &App) -> Result<(), Problem> {
        app.people.check_current(app.log())?;
        app.people.still_lets_in((self.principal, self.token), &self.roles, app.now())
    }
}

impl From<Identity> for Who {
    fn from(identity: Identity) -> Self {
        let Identity { principal, roles, token } = identity;
        Who { principal, roles, token, actor: Actor::Principal(principal) }
    }
}

/// Takes the caller from the request, or refuses it.
pub async fn guard(
    State(app): State<App>,
    route: MatchedPath,
    mut request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let token = bearer(request.headers())?;
    if token.starts_with(secret::ENROLMENT_PREFIX) || !token.starts_with(secret::PREFIX) {
        let detail =
            "the Control API takes tokens of people and services (stead_…), not of runners";
        return Err(Problem::new(Code::TokenTypeMismatch, detail));
    }
    let now = app.now();
    let identity = match app.people.identify(token, now) {
        // It may have been made a moment ago.
        Err(problem) if problem.code == Code::TokenUnknown => {
            app.people.caught_up(app.log().position()).await;
            app.people.identify(token, now)?
        }
        known => known?,
    };
    if let Some(connection) = request.extensions().get::<Ticket>() {
        connection.authenticate();
    }
    let (who, needs) = (Who::from(identity), roles::needs(request.method(), route.as_str()));
    if !who.may(needs) {
        let detail = format!("this call needs the role {needs}; ask an owner");
        return Err(Problem::new(Code::Forbidden, detail));
    }
    request.extensions_mut().insert(who);
    Ok(next.run(request).await)
}

/// The token of `Authorization: Bearer …`.
pub(super) fn bearer(headers: &HeaderMap) -> Result<&str, Problem> {
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let (scheme, token) = given.and_then(|value| value.split_once(' ')).unwrap_or_default();
    if !scheme.eq_ignore_ascii_case("bearer") || token.trim().is_empty() {
        let detail = "send the header `Authorization: Bearer <token>`";
        return Err(Problem::new(Code::TokenMissing, detail));
    }
    Ok(token.trim())
}

impl<S: Send + Sync> FromRequestParts<S> for Who {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let found = parts.extensions.get::<Who>().cloned();
        found
            .ok_or_else(|| Problem::internal("a route that asks who calls is not behind the guard"))
    }
}
