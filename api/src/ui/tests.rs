//! Tests of the dashboard on a real server.
use std::{io::Read as _, time::Duration};

use axum::{body::Body, extract::Request};
use proof::{bundle::Bundle, key::TrustedKey};
use reqwest::{StatusCode, header, redirect::Policy};
use tower::ServiceExt as _;

use crate::server::testing::Started;

/// Browser without a session.
pub(crate) struct Browser {
    http: reqwest::Client,
    base: String,
    cookie: Option<String>,
}

impl Browser {
    pub(crate) fn new(started: &Started) -> Browser {
        let http = reqwest::Client::builder().redirect(Policy::none()).build().unwrap();
        Browser { http, base: started.server.ready.control.clone(), cookie: None }
    }

    pub(crate) async fn logged_in(started: &Started) -> Browser {
        Browser::with_secret(started, &started.owner_token()).await
    }

    /// Starts a browser that is logged in with this token.
    pub(crate) async fn with_secret(started: &Started, secret: &str) -> Browser {
        let mut browser = Browser::new(started);
        let response = browser.post("/ui/login", &[("secret", secret)]).await;
        assert_eq!(response.status(), StatusCode::SEE_OTHER);
        let cookie = response.headers()[header::SET_COOKIE].to_str().unwrap();
        assert!(cookie.contains("; HttpOnly; SameSite=Lax"), "{cookie}");
        browser.cookie = cookie.split(';').next().map(str::to_owned);
        browser
    }

    /// Token of the forms of this session.
    pub(crate) async fn form_token(&self) -> String {
        form_token(&self.get("/ui/").await.text().await.unwrap()).to_owned()
    }

    pub(crate) async fn get(&self, path: &str) -> reqwest::Response {
        let request = self.http.get(format!("{}{path}", self.base));
        self.send(request).await
    }

    pub(crate) async fn post(&self, path: &str, form: &[(&str, &str)]) -> reqwest::Response {
        let url = format!("{}{path}", self.base);
        self.send(self.http.post(url).header(header::ORIGIN, &self.base).form(form)).await
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> reqwest::Response {
        let cookie = self.cookie.iter();
        let request =
            cookie.fold(request, |request, cookie| request.header(header::COOKIE, cookie));
        request.send().await.unwrap()
    }
}

fn form_token(page: &str) -> &str {
    let (_, rest) = page.split_once("name=\"form_token\" value=\"").unwrap();
    rest.split('"').next().unwrap()
}

#[tokio::test]
async fn every_page_needs_a_session_and_has_the_security_policy() {
    let started = Started::new().await;
    let (stranger, owner) = (Browser::new(&started), Browser::logged_in(&started).await);
    let lists = ["/ui/installs", "/ui/runs", "/ui/apps", "/ui/runners"];
    for path in ["/ui/", "/ui/_components", "/ui/audit", "/ui/settings"].into_iter().chain(lists) {
        let response = stranger.get(path).await;
        assert_eq!(response.status(), StatusCode::SEE_OTHER, "{path}");
        let next = path.replace('/', "%2F").replace('_', "%5F");
        let login =
            if path == "/ui/" { "/ui/login".into() } else { format!("/ui/login?next={next}") };
        assert_eq!(response.headers()[header::LOCATION], login, "{path}");
        let response = owner.get(path).await;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        let policy = response.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert_eq!(policy, dashboard::CONTENT_SECURITY_POLICY, "{path}");
        assert!(response.text().await.unwrap().starts_with("<!DOCTYPE html>"), "{path}");
    }
    started.server.stop().await;
}

/// Maximum size of the first page with its style and scripts over the wire.
const FIRST_PAGE_BYTES: usize = 60_000;

#[tokio::test]
async fn first_page_with_all_its_files_is_small() {
    let started = Started::new().await;
    let owner = Browser::logged_in(&started).await;
    let page = owner.get("/ui/").await.text().await.unwrap();
    let mut bytes = page.len();
    let paths: Vec<&str> = page.split("\"/ui/assets/").skip(1).collect();
    assert!(paths.len() > 5, "{page}");
    for rest in paths {
        let path = format!("/ui/assets/{}", rest.split('"').next().unwrap());
        let request = owner.http.get(format!("{}{path}", owner.base));
        let response = owner.send(request.header(header::ACCEPT_ENCODING, "br, gzip")).await;
        assert_eq!(response.headers()[header::CONTENT_ENCODING], "gzip", "{path}");
        assert_eq!(response.headers()[header::VARY], "accept-encoding", "{path}");
        let compressed = response.bytes().await.unwrap();
        let mut bytes_of_asset = Vec::new();
        flate2::read::GzDecoder::new(&compressed[..]).read_to_end(&mut bytes_of_asset).unwrap();
        let plain = owner.get(&path).await;
        assert!(plain.headers().get(header::CONTENT_ENCODING).is_none(), "{path}");
        assert_eq!(plain.bytes().await.unwrap(), bytes_of_asset, "{path}");
        bytes += compressed.len();
    }
    assert!(bytes <= FIRST_PAGE_BYTES, "{bytes}");
    eprintln!("first page: {bytes} bytes");
    started.server.stop().await;
}

#[tokio::test]
async fn a_stream_names_only_the_changed_keys_that_its_pages_show() {
    let started = Started::new().await;
    let owner = Browser::logged_in(&started).await;
    let open = async |keys: &str| owner.get(&format!("/ui/live?keys={keys}")).await;
    let (mut own, mut other) = (open("access,run").await, open("run,install").await);
    let next = async |stream: &mut reqwest::Response| {
        let text = stream.chunk().await.unwrap().unwrap();
        let text = String::from_utf8_lossy(&text).into_owned();
        text.lines().find_map(|line| line.strip_prefix("data: ").map(str::to_owned)).unwrap()
    };
    for stream in [&mut own, &mut other] {
        assert!(next(stream).await.ends_with(" *"));
    }
    // The next notification follows after half a second.
    let token = owner.form_token().await;
    let form = [
        ("form_token", token.as_str()),
        ("idempotency_key", "k1"),
        ("name", "Ann"),
        ("role", "viewer"),
        ("days", ""),
    ];
    assert!(owner.post("/ui/settings/tokens", &form).await.status().is_success());
    assert!(next(&mut own).await.ends_with(" access"));
    let waited = tokio::time::timeout(Duration::from_millis(1_500), other.chunk()).await;
    assert!(waited.is_err(), "{waited:?}");
    started.server.stop().await;
}

#[tokio::test]
async fn the_control_api_does_not_accept_the_cookie() {
    let started = Started::new().await;
    let response = Browser::logged_in(&started).await.get("/v1/whoami").await;
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    started.server.stop().await;
}

#[tokio::test]
async fn forms_of_other_sites_and_sessions_are_rejected() {
    let started = Started::new().await;
    let owner = Browser::logged_in(&started).await;
    let page = owner.get("/ui/").await.text().await.unwrap();
    let token = form_token(&page);
    let url = format!("{}/ui/logout", owner.base);
    for origin in [None, Some("https://elsewhere.example")] {
        let request = owner.http.post(&url).form(&[("form_token", token)]);
        let request = match origin {
            Some(origin) => request.header(header::ORIGIN, origin),
            None => request,
        };
        assert_eq!(owner.send(request).await.status(), StatusCode::FORBIDDEN, "{origin:?}");
    }
    let forged = owner.post("/ui/logout", &[("form_token", "0")]).await;
    assert_eq!(forged.status(), StatusCode::FORBIDDEN);
    let request = owner.http.get(format!("{}/ui/", owner.base));
    let rebound = owner.send(request.header(header::HOST, "rebound.example")).await;
    assert_eq!(rebound.status(), StatusCode::FORBIDDEN);
    // The session still exists, and its own form ends it.
    assert_eq!(owner.get("/ui/").await.status(), StatusCode::OK);
    let left = owner.post("/ui/logout", &[("form_token", token)]).await;
    assert_eq!(left.status(), StatusCode::SEE_OTHER);
    assert_eq!(owner.get("/ui/").await.status(), StatusCode::SEE_OTHER);
    started.server.stop().await;
}

#[tokio::test]
async fn a_wrong_secret_starts_no_session() {
    let started = Started::new().await;
    let response = Browser::new(&started).post("/ui/login", &[("secret", "stead_wrong")]).await;
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    assert!(response.headers().get(header::SET_COOKIE).is_none());
    assert!(response.text().await.unwrap().contains("token rejected"));
    started.server.stop().await;
}

#[tokio::test]
async fn a_session_ends_after_two_hours_without_a_request() {
    let started = Started::new().await;
    let owner = Browser::logged_in(&started).await;
    sqlx::query("update ui_session set used_at = used_at - interval '3 hours'")
        .execute(&started.app().pool)
        .await
        .unwrap();
    assert_eq!(owner.get("/ui/").await.status(), StatusCode::SEE_OTHER);
    // A form of an ended session leads back to its page after the login.
    let sent = owner.post("/ui/runs/run_1/decide", &[("reason", "reviewed")]).await;
    assert_eq!(sent.headers()[header::LOCATION], "/ui/login?next=%2Fui%2Fruns%2Frun%5F1");
    started.server.stop().await;
}

#[tokio::test]
async fn the_oldest_sessions_of_a_token_end_after_twenty_logins() {
    let started = Started::new().await;
    let first = Browser::logged_in(&started).await;
    let second = Browser::logged_in(&started).await;
    sqlx::query("update ui_session set used_at = used_at - interval '1 minute'")
        .execute(&started.app().pool)
        .await
        .unwrap();
    assert_eq!(second.get("/ui/").await.status(), StatusCode::OK);
    for _ in 0..19 {
        Browser::logged_in(&started).await;
    }
    assert_eq!(first.get("/ui/").await.status(), StatusCode::SEE_OTHER);
    assert_eq!(second.get("/ui/").await.status(), StatusCode::OK);
    let count = sqlx::query_scalar::<_, i64>("select count(*) from ui_session");
    assert_eq!(count.fetch_one(&started.app().pool).await.unwrap(), 20);
    started.server.stop().await;
}

#[tokio::test]
async fn filters_of_the_audit_page_may_be_empty() {
    let started = Started::new().await;
    let owner = Browser::logged_in(&started).await;
    let page = owner.get("/ui/audit").await.text().await.unwrap();
    let from = page.split_once("name=\"from\"").unwrap().1.split_once('>').unwrap().0;
    assert!(!from.contains("value="), "a filter would search only the last events: {from}");
    let filters = "stream=&type=access.role_granted&actor=&from=&until=";
    let response = owner.get(&format!("/ui/audit?{filters}")).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert!(response.text().await.unwrap().contains("access.role_granted</a>"));
    for path in ["/ui/audit?from=soon", "/ui/audit?until=12", "/ui/audit/diff?from=soon"] {
        assert_eq!(owner.get(path).await.status(), StatusCode::BAD_REQUEST, "{path}");
    }
    for path in ["/ui/audit?from=yesterday&until=now", "/ui/audit/diff?from=0&to=&stream="] {
        let response = owner.get(path).await;
        assert_eq!(response.status(), StatusCode::OK, "{path}: {}", response.text().await.unwrap());
    }
    started.server.stop().await;
}

#[tokio::test]
async fn an_automatic_refresh_does_not_count_as_activity() {
    let started = Started::new().await;
    let owner = Browser::logged_in(&started).await;
    let used_at = async |ago: &str| {
        let update = format!("update ui_session set used_at = now() - interval '{ago}'");
        sqlx::query(&update).execute(&started.app().pool).await.unwrap();
    };
    let idle = async || {
        let select = "select now() - used_at > interval '30 minutes' from ui_session";
        sqlx::query_scalar::<_, bool>(select).fetch_one(&started.app().pool).await.unwrap()
    };
    used_at("1 hour").await;
    let request = owner.http.get(format!("{}/ui/", owner.base)).header("stead-refresh", "1");
    assert_eq!(owner.send(request).await.status(), StatusCode::OK);
    // An event source cannot send this header.
    let request = owner.http.get(format!("{}/ui/live", owner.base));
    let stream = owner.send(request.header(header::ACCEPT, "text/event-stream")).await;
    assert_eq!(stream.status(), StatusCode::OK);
    assert!(idle().await);
    drop(stream);
    assert_eq!(owner.get("/ui/").await.status(), StatusCode::OK);
    assert!(!idle().await);
    started.server.stop().await;
}

#[tokio::test]
async fn a_login_over_plain_http_to_another_machine_is_rejected() {
    let url = Some("http://stead.example".to_string());
    let started = Started::with(|options| options.control_url = url).await;
    let request = Request::post("/ui/login")
        .header(header::HOST, "stead.example")
        .header(header::ORIGIN, "http://stead.example")
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body(Body::from(format!("secret={}", started.owner_token())))
        .unwrap();
    let response = crate::router::control(started.app()).oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    assert!(response.headers().get(header::SET_COOKIE).is_none());
    let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
    let text = String::from_utf8_lossy(&body);
    assert!(text.contains("the connection is not encrypted; open it by https"), "{text}");
    assert_eq!(started.server.login_code().await, None);
    started.server.stop().await;
}

#[tokio::test]
async fn a_login_over_tls_sets_a_cookie_of_this_host_only() {
    let url = Some("https://stead.example".to_string());
    let started = Started::with(|options| options.control_url = url).await;
    let request = Request::post("/ui/login")
        .header(header::HOST, "stead.example")
        .header(header::ORIGIN, "https://stead.example")
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body(Body::from(format!("secret={}&next=%2F%2Fevil.example", started.owner_token())))
        .unwrap();
    let response = crate::router::control(started.app()).oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::SEE_OTHER);
    assert_eq!(response.headers()[header::LOCATION], "/ui/");
    let cookie = response.headers()[header::SET_COOKIE].to_str().unwrap();
    assert!(cookie.starts_with("__Host-stead-"), "{cookie}");
    assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Lax; Secure"), "{cookie}");
    started.server.stop().await;
}

#[tokio::test]
async fn a_login_code_works_once() {
    let started = Started::new().await;
    let code = started.server.login_code().await.unwrap();
    let browser = Browser::new(&started);
    let first = browser.post("/ui/login", &[("secret", &code)]).await;
    assert_eq!(first.status(), StatusCode::SEE_OTHER);
    let second = browser.post("/ui/login", &[("secret", &code)]).await;
    assert_eq!(second.status(), StatusCode::UNAUTHORIZED);
    started.server.stop().await;
}

#[tokio::test]
async fn a_proof_is_downloaded_as_a_file_and_verifies() {
    let started = Started::new().await;
    let owner = Browser::logged_in(&started).await;
    let page = owner.get("/ui/audit/proofs?of=1").await.text().await.unwrap();
    assert!(page.contains("stead audit check stead-proof-1.json"), "{page}");
    let response = owner.get("/ui/audit/bundle?of=1").await;
    assert_eq!(response.status(), StatusCode::OK);
    let header = |name: header::HeaderName| response.headers()[name].to_str().unwrap().to_owned();
    let file = "attachment; filename=\"stead-proof-1.json\"";
    assert_eq!(header(header::CONTENT_DISPOSITION), file);
    assert_eq!(header(header::X_CONTENT_TYPE_OPTIONS), "nosniff");
    let bytes = response.bytes().await.unwrap();
    let bundle = Bundle::read(&bytes).unwrap();
    let key = started.app().keys.current().checkpoints().verifying_key();
    bundle.check(&[TrustedKey::Bare(key)], None).unwrap();
    let checkpoint = owner.get("/ui/audit/checkpoint").await;
    assert!(checkpoint.text().await.unwrap().starts_with("stead/"));
    assert_eq!(owner.get("/ui/audit/bundle?of=").await.status(), StatusCode::BAD_REQUEST);
    started.server.stop().await;
}

#[tokio::test]
async fn installs_are_filtered_and_downloaded() {
    let started = Started::new().await;
    let owner = Browser::logged_in(&started).await;
    for query in ["", "search=a&app=&version=v2&state=failed&runner=none&attention=true"] {
        for path in ["/ui/installs", "/ui/installs.csv", "/ui/bulk"] {
            let response = owner.get(&format!("{path}?{query}")).await;
            let status = response.status();
            assert_eq!(status, StatusCode::OK, "{path}: {}", response.text().await.unwrap());
        }
    }
    let response = owner.get("/ui/installs.csv").await;
    assert_eq!(response.headers()[header::CONTENT_TYPE], "text/csv; charset=utf-8");
    assert_eq!(response.text().await.unwrap(), dashboard::csv::INSTALLS_HEADER);
    for query in ["state=broken", "runner=broken", "version=x"] {
        for path in ["/ui/installs", "/ui/installs.csv", "/ui/bulk"] {
            let response = owner.get(&format!("{path}?{query}")).await;
            assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{path}?{query}");
        }
    }
    started.server.stop().await;
}

#[tokio::test]
async fn a_token_of_a_build_runner_is_shown_once_and_revoked() {
    let started = Started::new().await;
    let owner = Browser::logged_in(&started).await;
    let token = owner.form_token().await;
    let form = [("form_token", token.as_str()), ("idempotency_key", "k1")];
    let first = owner.post("/ui/runners/enrol", &form).await.text().await.unwrap();
    assert!(first.contains("stead_enrol_") && first.contains("--mode build"), "{first}");
    let second = owner.post("/ui/runners/enrol", &form).await.text().await.unwrap();
    assert!(!second.contains("stead_enrol_") && second.contains("submitted before"), "{second}");
    let id = first.split_once("<code>tok_").unwrap().1.split('<').next().unwrap();
    let id = format!("tok_{id}");
    let listed = owner.get("/ui/runners").await.text().await.unwrap();
    let row = listed.split_once(&format!("<tr id=\"{id}\"")).unwrap().1;
    assert!(row.contains("unused") && row.contains(&format!("value=\"{id}\"")), "{row}");
    let revoke = [
        ("form_token", token.as_str()),
        ("idempotency_key", "k2"),
        ("token", id.as_str()),
        ("reason", "lost"),
    ];
    let revoked = owner.post("/ui/runners/revoke-token", &revoke).await;
    assert_eq!(revoked.status(), StatusCode::SEE_OTHER);
    let page = revoked.headers()[header::LOCATION].to_str().unwrap().to_owned();
    let page = owner.get(&page).await.text().await.unwrap();
    assert!(page.contains("Revoked the enrolment token"), "{page}");
    let row = page.split_once(&format!("<tr id=\"{id}\"")).unwrap().1;
    assert!(row.contains("revoked") && !row.contains("<form"), "{row}");
    let mut invalid = revoke;
    (invalid[1].1, invalid[2].1) = ("k3", "stead_enrol_x");
    let response = owner.post("/ui/runners/revoke-token", &invalid).await;
    assert!(response.status().is_client_error());
    started.server.stop().await;
}
