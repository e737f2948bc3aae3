//! Authentication of the dashboard: the session cookie, and the origin of a request.
use axum::{
    extract::{FromRequestParts, Request, State},
    http::{HeaderMap, Method, Uri, header, request::Parts},
    middleware::Next,
    response::Response,
};

use super::response::{PageProblem, login_page};
use crate::{
    auth::sessions::{self, Session},
    extract::Caller,
    listen::Ticket,
    problem::{Code, Problem},
    state::App,
};

/// Header of a request with which an open page refreshes itself.
const REFRESH_HEADER: &str = "stead-refresh";

/// Middleware that authenticates a request by its cookie. It adds the [`Session`] and the
/// [`Caller`]. Without a valid session, the response is a redirect to the login.
pub(super) async fn guard(
    State(app): State<App>,
    mut request: Request,
    next: Next,
) -> Result<Response, PageProblem> {
    check_origin(&app.config.control_url, &request)?;
    // A form is sent to a path below its page.
    let page = match *request.method() {
        Method::GET => request.uri().path_and_query().map(|path| path.as_str().to_owned()),
        _ => request.uri().path().rsplit_once('/').map(|(page, _)| page.to_owned()),
    };
    match authenticate(&app, request.headers()).await {
        Ok((session, caller)) => {
            if let Some(connection) = request.extensions().get::<Ticket>() {
                connection.authenticate();
            }
            request.extensions_mut().insert(caller);
            request.extensions_mut().insert(session);
            Ok(next.run(request).await)
        }
        Err(problem) if problem.code.status() == 401 => Ok(login_page(page.as_deref())),
        Err(problem) => Err(problem.into()),
    }
}

async fn authenticate(app: &App, headers: &HeaderMap) -> Result<(Session, Caller), Problem> {
    let missing = || Problem::new(Code::TokenMissing, "request rejected: log in");
    let secret = cookie(headers, &cookie_name(app)).ok_or_else(missing)?;
    // An event source cannot send a header of its own.
    let is_stream = headers.get(header::ACCEPT).is_some_and(|accept| accept == "text/event-stream");
    let request = match is_stream || headers.contains_key(REFRESH_HEADER) {
        true => sessions::Request::Refresh,
        false => sessions::Request::User,
    };
    let session = sessions::find(&app.pool, secret, request, app.now()).await?;
    let session = session.ok_or_else(missing)?;
    let identity = app.principals.identity((session.principal, session.token), app.now())?;
    Ok((session, Caller::from(identity)))
}

/// Middleware for pages without a session. It checks only the origin.
pub(super) async fn same_host(
    State(app): State<App>,
    request: Request,
    next: Next,
) -> Result<Response, PageProblem> {
    check_origin(&app.config.control_url, &request)?;
    Ok(next.run(request).await)
}

/// Rejects a request to another host name, which a DNS rebinding attack sends, and a form of
/// another site.
fn check_origin(url: &str, request: &Request) -> Result<(), Problem> {
    let rejected = |detail: String| Err(Problem::new(Code::Forbidden, detail));
    let own = url.parse::<Uri>().ok().and_then(|url| origin(&url));
    let text = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
    // HTTP/2 has the authority in the URI.
    let host = text(header::HOST).or_else(|| request.uri().authority().map(|at| at.as_str()));
    let scheme = if url.starts_with("https://") { "https" } else { "http" };
    let of = |host: &str| format!("{scheme}://{host}").parse::<Uri>().ok();
    if own.is_none() || host.and_then(of).and_then(|url| origin(&url)) != own {
        return rejected(format!("request rejected: it names another host; open {url}"));
    }
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        return Ok(());
    }
    let sent = text(header::ORIGIN).and_then(|sent| sent.parse::<Uri>().ok());
    if sent.and_then(|sent| origin(&sent)) != own {
        return rejected(format!("request rejected: the form is from another site; open {url}"));
    }
    Ok(())
}

/// Scheme, host and port of a URL, with the default port.
fn origin(url: &Uri) -> Option<(String, String, u16)> {
    let scheme = url.scheme_str()?.to_ascii_lowercase();
    let default = if scheme == "https" { 443 } else { 80 };
    let authority = url.authority()?;
    let has_user = authority.as_str().contains('@');
    let port = authority.port_u16().unwrap_or(default);
    (!has_user).then(|| (scheme, authority.host().to_ascii_lowercase(), port))
}

/// Name of the session cookie. It contains the id of the log, because cookies of one host are
/// shared by all ports.
fn cookie_name(app: &App) -> String {
    let prefix = if is_https(app) { "__Host-" } else { "" };
    format!("{prefix}stead-{}", app.log().log_id())
}

/// Returns the header value that sets the session cookie, or removes it.
pub(super) fn session_cookie(app: &App, secret: Option<&str>) -> String {
    let secure = if is_https(app) { "; Secure" } else { "" };
    let age = if secret.is_some() { "" } else { "; Max-Age=0" };
    let (name, value) = (cookie_name(app), secret.unwrap_or_default());
    format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax{secure}{age}")
}

pub(super) fn is_https(app: &App) -> bool {
    app.config.control_url.starts_with("https://")
}

fn cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let all = headers.get_all(header::COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    let mut pairs = all.flat_map(|line| line.split("; "));
    pairs.find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
}

impl<S: Send + Sync> FromRequestParts<S> for Session {
    type Rejection = PageProblem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, PageProblem> {
        let found = parts.extensions.get::<Session>().cloned();
        let missing = || Problem::internal("the route has no authentication of the dashboard");
        found.ok_or_else(|| missing().into())
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn check(url: &str, method: Method, host: &str, origin: Option<&str>) -> bool {
        let request = Request::builder().method(method).uri("/ui/").header(header::HOST, host);
        let request = match origin {
            Some(origin) => request.header(header::ORIGIN, origin),
            None => request,
        };
        check_origin(url, &request.body(Body::empty()).unwrap()).is_ok()
    }

    #[test]
    fn host_and_origin_are_those_of_the_control_url() {
        let own = "https://stead.example";
        assert!(check(own, Method::GET, "stead.example", None));
        assert!(check(own, Method::GET, "STEAD.example:443", None));
        assert!(check(&format!("{own}:443"), Method::POST, "stead.example", Some(own)));
        for host in
            ["evil.example", "stead.example:80", "stead.example.evil", "", "a@stead.example"]
        {
            assert!(!check(own, Method::GET, host, None), "{host}");
        }
        let origins = [None, Some("null"), Some("http://stead.example"), Some("https://evil")];
        for origin in origins {
            assert!(!check(own, Method::POST, "stead.example", origin), "{origin:?}");
        }
    }
}
