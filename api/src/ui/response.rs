//! Responses of the dashboard: pages, redirects, and problems as pages.
use axum::{
    extract::{FromRequest, FromRequestParts, Request, rejection::FormRejection},
    http::{HeaderValue, StatusCode, header, request::Parts},
    response::{Html, IntoResponse, Redirect, Response},
};
use dashboard::{CONTENT_SECURITY_POLICY, Markup, pages};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;

use crate::problem::{Code, Problem};

/// Page, with its security policy.
pub(super) struct Page(pub Markup);

impl IntoResponse for Page {
    fn into_response(self) -> Response {
        let policies = [
            (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
            // With `no-referrer`, a browser sends forms without their origin.
            (header::REFERRER_POLICY, "same-origin"),
        ];
        (policies, Html(self.0.into_string())).into_response()
    }
}

/// Problem of a request for a page.
pub(crate) struct PageProblem(pub Problem);

impl From<Problem> for PageProblem {
    fn from(problem: Problem) -> Self {
        PageProblem(problem)
    }
}

impl IntoResponse for PageProblem {
    fn into_response(self) -> Response {
        let PageProblem(problem) = self;
        let code = problem.code;
        let page =
            pages::problem(code.title(), code.as_str(), &problem.detail, &problem.errors, "/ui/");
        let status =
            StatusCode::from_u16(code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Page(page)).into_response();
        for (name, value) in problem.headers {
            response.headers_mut().insert(name, value);
        }
        response
    }
}

pub(super) type PageResult = Result<Page, PageProblem>;

/// Redirect to the login, which then opens `next`.
pub(super) fn login_page(next: Option<&str>) -> Response {
    let url = match next.filter(|path| is_page(path) && *path != "/ui/") {
        Some(path) => {
            format!("/ui/login?next={}", utf8_percent_encode(path, NON_ALPHANUMERIC))
        }
        None => "/ui/login".to_owned(),
    };
    Redirect::to(&url).into_response()
}

/// Returns true if this is the path of a page. A login redirects nowhere else.
pub(super) fn is_page(path: &str) -> bool {
    let rest = path.strip_prefix("/ui/");
    let is_plain = |c: char| c.is_ascii_graphic() && c != '\\';
    path.len() <= 500
        && rest.is_some_and(|rest| !rest.starts_with('/') && rest.chars().all(is_plain))
}

/// Redirect to a page that includes a change.
pub(super) fn see_other(path: &str, position: u64) -> Response {
    Redirect::to(&format!("{path}?min_position={position}")).into_response()
}

/// Adds a cookie to a response.
pub(super) fn with_cookie(mut response: Response, cookie: &str) -> Response {
    if let Ok(value) = HeaderValue::from_str(cookie) {
        response.headers_mut().append(header::SET_COOKIE, value);
    }
    response
}

/// Extractor whose rejection is a page.
pub(super) struct Ui<E>(pub E);

impl<S: Send + Sync, E: FromRequestParts<S, Rejection = Problem>> FromRequestParts<S> for Ui<E> {
    type Rejection = PageProblem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, PageProblem> {
        Ok(Ui(E::from_request_parts(parts, state).await?))
    }
}

/// Form whose rejection is a page.
pub(super) struct Form<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Form<T> {
    type Rejection = PageProblem;

    async fn from_request(request: Request, state: &S) -> Result<Self, PageProblem> {
        let read = axum::extract::Form::from_request(request, state).await;
        let problem = |rejection: FormRejection| {
            let detail = format!("form rejected: {}; open the page again", rejection.body_text());
            PageProblem(Problem::new(Code::BadRequest, detail))
        };
        read.map(|axum::extract::Form(read)| Form(read)).map_err(problem)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn login_redirects_only_to_pages() {
        for path in ["/ui/", "/ui/runs/run_1?min_position=3", "/ui/runs?state=failed"] {
            assert!(is_page(path), "{path}");
        }
        for path in [
            "",
            "/",
            "//evil.example",
            "/ui//evil.example",
            "https://evil",
            "/ui/\\evil",
            "/ui/a\r\nb",
            "/v1/apps",
        ] {
            assert!(!is_page(path), "{path:?}");
        }
    }
}
