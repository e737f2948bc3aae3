//! Login and logout.
use std::net::IpAddr;

use axum::{
    Extension,
    extract::State,
    http::{StatusCode, Uri},
    response::{IntoResponse as _, Redirect, Response},
};
use serde::Deserialize;

use super::{
    change::FormToken,
    guard::{is_https, session_cookie},
    response::{Form, Page, PageProblem, Ui, is_page, with_cookie},
};
use crate::{
    auth::{
        Identity, secret as secrets,
        sessions::{self, Session},
    },
    extract::{self, Query},
    listen::Ticket,
    problem::{Code, Problem},
    state::App,
};

/// Query of the login page.
#[derive(Deserialize)]
pub(super) struct Next {
    next: Option<String>,
}

/// Login form.
#[derive(Deserialize)]
pub(super) struct Login {
    /// Token, or one-time code.
    secret: String,
    /// Page to open after the login.
    next: Option<String>,
}

pub(super) async fn page(
    State(app): State<App>,
    connection: Option<Extension<Ticket>>,
    Ui(Query(query)): Ui<Query<Next>>,
) -> Page {
    let encrypted = check_encryption(&app, peer(connection));
    let error = encrypted.err().map(|problem| problem.detail);
    let next = query.next.as_deref().filter(|next| is_page(next));
    Page(dashboard::pages::login(next, error.as_deref()))
}

/// Logs in with a token or a one-time code.
pub(super) async fn login(
    State(app): State<App>,
    connection: Option<Extension<Ticket>>,
    Form(form): Form<Login>,
) -> Result<Response, PageProblem> {
    let next = form.next.as_deref().filter(|next| is_page(next));
    match identity(&app, form.secret.trim(), peer(connection)).await {
        Ok(identity) => {
            let secret =
                sessions::start(&app.pool, &identity, app.now()).await.map_err(Problem::from)?;
            let cookie = session_cookie(&app, Some(&secret));
            Ok(with_cookie(Redirect::to(next.unwrap_or("/ui/")).into_response(), &cookie))
        }
        Err(problem) if problem.code.status() < 500 => {
            let page = Page(dashboard::pages::login(next, Some(&problem.detail)));
            Ok((StatusCode::UNAUTHORIZED, page).into_response())
        }
        Err(problem) => Err(problem.into()),
    }
}

fn peer(connection: Option<Extension<Ticket>>) -> Option<IpAddr> {
    connection.map(|Extension(connection)| connection.peer())
}

/// Returns the caller of a token or a one-time code. Only a client on the same machine may use a
/// code.
async fn identity(app: &App, secret: &str, peer: Option<IpAddr>) -> Result<Identity, Problem> {
    check_encryption(app, peer)?;
    let redeemed = match is_loopback(app, peer) {
        true => app.login_codes.redeem(secret, app.now()),
        false => None,
    };
    match redeemed {
        Some(identity) => app.principals.identity((identity.principal, identity.token), app.now()),
        None if !secret.starts_with(secrets::PREFIX) => {
            let detail = "login rejected: the code was used, has expired, or is not from this \
                          machine; log in with a token";
            Err(Problem::new(Code::TokenUnknown, detail))
        }
        None => extract::identify(app, secret).await,
    }
}

/// Rejects a login over plain HTTP, because the network could read the token. A connection within
/// one machine has no network.
fn check_encryption(app: &App, peer: Option<IpAddr>) -> Result<(), Problem> {
    if is_https(app) || is_loopback(app, peer) {
        return Ok(());
    }
    let detail = "login rejected: the connection is not encrypted; open it by https: \
                  start the server with --tls-cert, or behind a proxy with an https --control-url";
    Err(Problem::new(Code::Forbidden, detail))
}

/// Returns true if both the address of the server and the peer are on this machine. A proxy on this
/// machine has another address for its clients.
fn is_loopback(app: &App, peer: Option<IpAddr>) -> bool {
    has_loopback_url(app) && peer.is_some_and(is_local)
}

/// Returns true if the URL of the Control API is on this machine.
pub(crate) fn has_loopback_url(app: &App) -> bool {
    let url: Option<Uri> = app.config.control_url.parse().ok();
    let host = url.as_ref().and_then(Uri::host).unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse().is_ok_and(is_local)
}

fn is_local(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// Ends the session.
pub(super) async fn logout(
    State(app): State<App>,
    session: Session,
    Form(form): Form<FormToken>,
) -> Result<Response, PageProblem> {
    form.check(&session)?;
    sessions::end(&app.pool, &session).await.map_err(Problem::from)?;
    Ok(with_cookie(Redirect::to("/ui/login").into_response(), &session_cookie(&app, None)))
}
