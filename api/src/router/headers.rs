//! Security headers for the responses of both listeners.
use axum::{
    http::{HeaderMap, HeaderName, HeaderValue, header},
    response::Response,
};

/// Content security policy: no response may load content or be framed. `/docs` has its own policy.
const CONTENT_POLICY: &str = "default-src 'none'; frame-ancestors 'none'";
/// One year of HSTS, for clients that reach the listener by TLS.
const HSTS: &str = "max-age=31536000";

/// Adds the headers. `https` is true if clients reach the listener by TLS, which the server or a
/// proxy terminates.
pub(crate) fn secure(mut response: Response, https: bool) -> Response {
    let headers = response.headers_mut();
    set_default(headers, header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set_default(headers, header::CACHE_CONTROL, "no-store");
    set_default(headers, header::REFERRER_POLICY, "no-referrer");
    set_default(headers, header::CONTENT_SECURITY_POLICY, CONTENT_POLICY);
    if https {
        set_default(headers, header::STRICT_TRANSPORT_SECURITY, HSTS);
    }
    response
}

/// Sets a header that the handler has not set.
fn set_default(headers: &mut HeaderMap, name: HeaderName, value: &'static str) {
    headers.entry(name).or_insert(HeaderValue::from_static(value));
}

#[cfg(test)]
mod pentest {
    use axum::{body::Body, extract::Request};
    use tower::ServiceExt as _;

    use super::*;
    use crate::server::testing::Started;

    fn assert_secured(headers: &HeaderMap, path: &str) {
        let has = |name: HeaderName| headers.get(&name).map(|value| value.to_str().unwrap());
        assert_eq!(has(header::X_CONTENT_TYPE_OPTIONS), Some("nosniff"), "{path}");
        assert_eq!(has(header::CACHE_CONTROL), Some("no-store"), "{path}");
        let policy = has(header::CONTENT_SECURITY_POLICY).unwrap_or_default();
        assert!(policy.contains("frame-ancestors 'none'"), "{path}: {policy}");
        assert!(policy.contains("default-src 'none'"), "{path}: {policy}");
    }

    #[tokio::test]
    async fn every_response_of_both_listeners_has_security_headers() {
        let started = Started::new().await;
        let (control, runner) = (&started.server.ready.control, &started.server.ready.runner);
        for base in [control, runner] {
            for path in
                ["/healthz", "/readyz", "/docs", "/openapi.json", "/no-such-path", "/v1/apps"]
            {
                let url = format!("{base}{path}");
                let response = started.http.get(&url).bearer_auth(started.owner_token()).send();
                let response = response.await.unwrap();
                assert_secured(response.headers(), &url);
                assert!(
                    !response.headers().contains_key(header::STRICT_TRANSPORT_SECURITY),
                    "{url}"
                );
                if path == "/docs" {
                    let policy =
                        response.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
                    assert!(policy.contains("script-src 'unsafe-inline'"), "{policy}");
                }
            }
        }
        let digest = event_log::blob::put(&started.app().pool, b"a plan's summary").await.unwrap();
        let blob = started.control(&format!("/v1/blobs/{digest}"));
        let blob = started.http.get(&blob).bearer_auth(started.owner_token()).send().await.unwrap();
        assert!(blob.status().is_success());
        assert_secured(blob.headers(), "a blob");
    }

    #[tokio::test]
    async fn hsts_is_sent_only_by_tls_listeners() {
        let url = Some("https://stead.example".to_string());
        let started = Started::with(|options| options.control_url = url).await;
        let app = started.app();
        for (listener, hsts) in
            [(crate::router::control(app), true), (crate::router::runner(app), false)]
        {
            let request = Request::get("/healthz").body(Body::empty()).unwrap();
            let response = listener.oneshot(request).await.unwrap();
            assert_eq!(response.headers().contains_key(header::STRICT_TRANSPORT_SECURITY), hsts);
        }
    }
}
