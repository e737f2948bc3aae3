//! HTTP client of one registry.

use std::{collections::HashMap, error::Error as _, sync::Mutex, time::Duration};

use bytes::{Bytes, BytesMut};
use domain::{digest::Digest, image::DOCKER_HUB};
use oci_layout::{Document, MANIFEST_LIMIT, sha256};
use reqwest::{
    Method, RequestBuilder, Response, StatusCode, Url,
    header::{self, HeaderValue},
};
use schemas::sanitize::sanitize;
use serde_json::Value;
use tokio::time::timeout;
use zeroize::Zeroizing;

use super::{
    ImageSettings, RegistryError,
    auth::{self, Auth, Scope},
    retry::Retry,
};
use crate::plugins::Registry;

/// Longest time without progress in requests to a registry other than the server's.
const PATIENCE: Duration = Duration::from_secs(40);
/// Time without data after which a request is repeated.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Largest number of redirects of one download.
const MAX_REDIRECTS: usize = 5;
/// Longest error response that is read, and longest part of it that is shown, in bytes.
const MAX_ERROR: (usize, usize) = (64 << 10, 300);
/// Media types of manifests and lists.
const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
     application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.docker.distribution.manifest.v2+json";

/// One registry.
pub(crate) struct Endpoint {
    http: reqwest::Client,
    base: Url,
    /// Name of the registry in references and in Docker's config.json.
    host: String,
    pub(super) auth: Auth,
    /// User and password, if Docker's config.json has no credential.
    login: Option<(String, Zeroizing<String>)>,
    pub(super) patience: Option<Duration>,
    pub(super) idle_timeout: Duration,
}

/// Manifest or list, as a registry sent it.
pub(super) struct Received {
    pub digest: Digest,
    pub bytes: Bytes,
    pub document: Document,
}

impl Endpoint {
    /// Returns the registry of the server. A job waits for it until its deadline.
    pub(crate) fn of_server(registry: &Registry) -> Result<Endpoint, RegistryError> {
        let host = "the server".to_owned();
        let invalid = |why: String| RegistryError::Unreachable { host: host.clone(), why };
        let base = Url::parse(&registry.base_url).map_err(|error| invalid(error.to_string()))?;
        let token = HeaderValue::try_from(format!("Bearer {}", registry.token));
        let mut token = token.map_err(|_| invalid("the job token has an invalid format".into()))?;
        token.set_sensitive(true);
        Ok(Endpoint {
            http: registry.http.clone(),
            base,
            host,
            auth: Auth::Job(token),
            login: None,
            patience: None,
            idle_timeout: registry.idle_timeout,
        })
    }

    /// Returns the registry of a host, or its mirror, and the name of the repository there.
    pub(crate) fn of_upstream(
        settings: &ImageSettings,
        host: &str,
        name: &str,
    ) -> Result<(Endpoint, String), RegistryError> {
        match settings.mirrors.get(host) {
            Some(mirror) => {
                let authority = mirror.origin.split_once("://").map_or("", |(_, rest)| rest);
                let endpoint = Endpoint::new(authority, &mirror.origin)?;
                Ok((endpoint, mirror.name(name)))
            }
            None => Ok((Endpoint::of_host(host)?, name.to_owned())),
        }
    }

    /// Returns the registry of a host, with TLS unless the host is this one.
    pub(crate) fn of_host(host: &str) -> Result<Endpoint, RegistryError> {
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        let scheme = if is_loopback(name) { "http" } else { "https" };
        match host {
            DOCKER_HUB => Endpoint::new(host, "https://registry-1.docker.io"),
            host => Endpoint::new(host, &format!("{scheme}://{host}")),
        }
    }

    fn new(host: &str, base: &str) -> Result<Endpoint, RegistryError> {
        let unusable = |why: String| RegistryError::Unreachable { host: host.to_owned(), why };
        // A second call fails, because the first one installed the same provider.
        let _already = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder()
            .user_agent(concat!("stead-runner/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(Duration::from_secs(10))
            .redirect(reqwest::redirect::Policy::none())
            .http1_only()
            .build();
        Ok(Endpoint {
            http: http.map_err(|error| unusable(reason(&error)))?,
            base: Url::parse(base).map_err(|error| unusable(error.to_string()))?,
            host: host.to_owned(),
            auth: Auth::Challenge(Mutex::new(HashMap::new())),
            login: None,
            patience: Some(PATIENCE),
            idle_timeout: IDLE_TIMEOUT,
        })
    }

    /// Returns true if Docker's config.json has a credential for the registry.
    pub(crate) async fn has_credential(&self) -> Result<bool, RegistryError> {
        Ok(auth::credential(&self.host).await?.is_some())
    }

    /// Uses this user and password, because Docker's config.json has no credential.
    pub(crate) fn with_login(self, login: (String, Zeroizing<String>)) -> Endpoint {
        Endpoint { login: Some(login), ..self }
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    pub(super) fn retry(&self) -> Retry {
        Retry::new(self.patience)
    }

    /// Returns the URL of a path below `/v2/`.
    pub(super) fn url(&self, path: &str) -> Result<Url, RegistryError> {
        let url = self.base.join(&format!("/v2/{path}"));
        url.map_err(|error| self.invalid(path, error.to_string()))
    }

    /// Resolves the URL of an upload. Credentials go only to the origin of the registry.
    pub(super) fn location(&self, response: &Response) -> Option<Url> {
        let location = response.headers().get(header::LOCATION)?.to_str().ok()?;
        let url = response.url().join(location).ok()?;
        may_follow(response.url(), &url).then_some(url)
    }

    /// Returns true for an address of the registry itself.
    fn is_own(&self, url: &Url) -> bool {
        url.origin() == self.base.origin()
    }

    /// Sends a request until a response is not transient, and authenticates it where the registry
    /// requires it.
    pub(super) async fn send(
        &self,
        what: &str,
        scope: &Scope,
        build: impl Fn(&reqwest::Client) -> RequestBuilder,
    ) -> Result<Response, RegistryError> {
        let mut retry = self.retry();
        let mut has_answered = false;
        loop {
            match self.send_once(scope, build(&self.http)).await {
                // Another host, after a redirect, must not choose where the credential goes.
                Ok(refused)
                    if refused.status() == StatusCode::UNAUTHORIZED
                        && !has_answered
                        && self.is_own(refused.url()) =>
                {
                    has_answered = true;
                    let registry = (self.host.as_str(), &self.login);
                    if !self.auth.answer(&self.http, registry, scope, &refused).await? {
                        return Ok(refused);
                    }
                }
                Ok(response) if is_transient(&response) => {
                    let wait = retry_after(&response);
                    retry.pause(wait, self.status(what, response).await).await?;
                }
                Ok(response) => return Ok(response),
                Err(error) => retry.pause(None, error).await?,
            }
        }
    }

    /// Sends a request once, with the credentials that an earlier response required.
    async fn send_once(
        &self,
        scope: &Scope,
        request: RequestBuilder,
    ) -> Result<Response, RegistryError> {
        self.execute(scope, request, self.idle_timeout).await
    }

    /// Sends the body of an upload once. `more` is added to the timeout.
    pub(super) async fn upload(
        &self,
        scope: &Scope,
        url: Url,
        more: Duration,
        complete: impl FnOnce(RequestBuilder) -> RequestBuilder,
    ) -> Result<Response, RegistryError> {
        let put = complete(self.http.put(url));
        self.execute(scope, put, self.idle_timeout + more).await
    }

    async fn execute(
        &self,
        scope: &Scope,
        request: RequestBuilder,
        limit: Duration,
    ) -> Result<Response, RegistryError> {
        let built = request.build();
        let mut request = built.map_err(|error| self.unreachable(reason(&error)))?;
        if self.is_own(request.url())
            && let Some(value) = self.auth.header(scope)
        {
            request.headers_mut().insert(header::AUTHORIZATION, value);
        }
        match timeout(limit, self.http.execute(request)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(self.unreachable(reason(&error))),
            Err(_) => {
                let why = format!("it did not respond within {} s", limit.as_secs());
                Err(self.unreachable(why))
            }
        }
    }

    /// Sends a GET, and follows redirects to other hosts without credentials.
    pub(super) async fn download(
        &self,
        what: &str,
        scope: &Scope,
        url: Url,
        from: u64,
    ) -> Result<Response, RegistryError> {
        let mut url = url;
        for _ in 0..=MAX_REDIRECTS {
            let get = |http: &reqwest::Client| {
                let get = http.get(url.clone()).header(header::ACCEPT, ACCEPT);
                match from {
                    0 => get,
                    from => get.header(header::RANGE, format!("bytes={from}-")),
                }
            };
            let response = self.send(what, scope, get).await?;
            if !response.status().is_redirection() {
                return Ok(response);
            }
            let why = "the registry redirects it to an address that is not allowed";
            url = self.location(&response).ok_or_else(|| self.invalid(what, why.into()))?;
        }
        Err(self
            .invalid(what, format!("the registry redirects it more than {MAX_REDIRECTS} times")))
    }

    /// Reads a manifest or a list by its tag or digest.
    pub(super) async fn document(
        &self,
        name: &str,
        reference: &str,
    ) -> Result<Received, RegistryError> {
        let what = format!("{name} {reference}");
        let url = self.url(&format!("{name}/manifests/{reference}"))?;
        let mut retry = self.retry();
        loop {
            let scope = Scope::pull(name);
            let mut response = self.download(&what, &scope, url.clone(), 0).await?;
            if !response.status().is_success() {
                return Err(self.refusal(&what, response).await);
            }
            let limit = usize::try_from(MANIFEST_LIMIT).unwrap_or(usize::MAX);
            let too_large = response.content_length().is_some_and(|size| size > MANIFEST_LIMIT);
            if too_large {
                return Err(self.invalid(&what, format!("its manifest exceeds {limit} bytes")));
            }
            let bytes = match body(&mut response, limit, self.idle_timeout).await {
                Ok(bytes) => bytes,
                Err(why) if why.starts_with("it exceeds") => return Err(self.invalid(&what, why)),
                Err(why) => {
                    retry.pause(None, self.unreachable(why)).await?;
                    continue;
                }
            };
            let digest = sha256(&bytes);
            let expected = reference.parse::<Digest>().ok();
            if let Some(expected) = expected.filter(|expected| *expected != digest) {
                let host = self.host.clone();
                retry.pause(None, RegistryError::WrongDigest { host, digest: expected }).await?;
                continue;
            }
            let document = Document::parse(&bytes);
            let document = document.map_err(|error| {
                self.invalid(&what, format!("it is not a container image: {error}"))
            })?;
            return Ok(Received { digest, bytes, document });
        }
    }

    /// Returns the digest that a tag or digest names in the registry. `None` if it does not exist.
    pub(super) async fn find(
        &self,
        name: &str,
        reference: &str,
    ) -> Result<Option<Digest>, RegistryError> {
        let what = format!("{name} {reference}");
        let url = self.url(&format!("{name}/manifests/{reference}"))?;
        let head = |http: &reqwest::Client| {
            http.request(Method::HEAD, url.clone()).header(header::ACCEPT, ACCEPT)
        };
        let response = self.send(&what, &Scope::push(name), head).await?;
        match response.status() {
            StatusCode::NOT_FOUND => Ok(None),
            status if status.is_success() => {
                let digest = response.headers().get("docker-content-digest");
                Ok(digest.and_then(|digest| digest.to_str().ok()?.parse().ok()))
            }
            _ => Err(self.refusal(&what, response).await),
        }
    }

    pub(super) fn invalid(&self, what: &str, why: String) -> RegistryError {
        RegistryError::Invalid { host: self.host.clone(), what: what.to_owned(), why }
    }

    pub(super) fn unreachable(&self, why: String) -> RegistryError {
        RegistryError::Unreachable { host: self.host.clone(), why }
    }

    /// Returns the error of a response without success.
    pub(super) async fn refusal(&self, what: &str, response: Response) -> RegistryError {
        let (host, what) = (self.host.clone(), what.to_owned());
        match response.status() {
            StatusCode::NOT_FOUND => RegistryError::Missing { host, what },
            status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                let detail = format!("status {}", status.as_u16());
                RegistryError::Denied { host, what, detail }
            }
            _ => self.status(&what, response).await,
        }
    }

    async fn status(&self, request: &str, mut response: Response) -> RegistryError {
        let status = response.status().as_u16();
        let body = body(&mut response, MAX_ERROR.0, Duration::from_secs(5)).await;
        let detail = body.ok().and_then(|body| error_text(&body));
        let hint = match status {
            413 => "; raise the limit of the registry (for the server: --max-blob-bytes)",
            429 => "; wait, or give the runner credentials or a mirror (--registry-mirror)",
            _ => "",
        };
        let detail =
            format!("{}{hint}", detail.map(|text| format!(" ({text})")).unwrap_or_default());
        RegistryError::Status { host: self.host.clone(), request: request.into(), status, detail }
    }
}

/// Returns the text of the first error in an OCI error response.
fn error_text(body: &[u8]) -> Option<String> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let first = &body["errors"][0];
    let text = first["message"].as_str().filter(|text| !text.is_empty());
    let text = sanitize(text.or(first["code"].as_str())?);
    Some(text[..text.floor_char_boundary(MAX_ERROR.1)].to_owned())
}

/// Returns true if a registry may refer to this address: never from TLS to an unencrypted
/// connection.
fn may_follow(from: &Url, to: &Url) -> bool {
    to.host_str().is_some()
        && (to.scheme() == "https" || (from.scheme(), to.scheme()) == ("http", "http"))
}

/// Returns true for the names and addresses of this host.
fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::Ipv4Addr>().is_ok_and(|ip| ip.is_loopback())
}

/// Reads a body of at most `limit` bytes.
pub(super) async fn body(
    response: &mut Response,
    limit: usize,
    idle: Duration,
) -> Result<Bytes, String> {
    let mut body = BytesMut::new();
    loop {
        match timeout(idle, response.chunk()).await {
            Ok(Ok(Some(chunk))) if body.len() + chunk.len() > limit => {
                return Err(format!("it exceeds {limit} bytes"));
            }
            Ok(Ok(Some(chunk))) => body.extend_from_slice(&chunk),
            Ok(Ok(None)) => return Ok(body.freeze()),
            Ok(Err(error)) => return Err(reason(&error)),
            Err(_) => return Err("it stopped sending data".into()),
        }
    }
}

/// Returns the cause of an HTTP error without its URL, which can contain a signature.
pub(super) fn reason(error: &reqwest::Error) -> String {
    let mut source = error.source();
    let mut last = None;
    while let Some(cause) = source {
        last = Some(cause.to_string());
        source = cause.source();
    }
    last.unwrap_or_else(|| if error.is_timeout() { "timeout" } else { "the request failed" }.into())
}

/// Returns true if the request must be repeated.
fn is_transient(response: &Response) -> bool {
    response.status().is_server_error() || matches!(response.status().as_u16(), 408 | 425 | 429)
}

fn retry_after(response: &Response) -> Option<Duration> {
    let seconds = response.headers().get(header::RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_host_is_reached_without_tls() {
        let base = |host: &str| Endpoint::of_host(host).unwrap().base.to_string();
        assert_eq!(base("127.0.0.1:5000"), "http://127.0.0.1:5000/");
        assert_eq!(base("localhost:5000"), "http://localhost:5000/");
        assert_eq!(base("docker.io"), "https://registry-1.docker.io/");
        assert_eq!(base("10.0.0.1:5000"), "https://10.0.0.1:5000/");
    }

    #[test]
    fn a_redirect_never_leaves_tls() {
        let url = |text: &str| Url::parse(text).unwrap();
        let (tls, plain) = (url("https://a/"), url("http://a/"));
        assert!(may_follow(&tls, &url("https://b/")) && may_follow(&plain, &url("https://b/")));
        assert!(!may_follow(&tls, &url("http://b/")));
        assert!(!may_follow(&plain, &url("file:///etc/passwd")));
    }

    #[test]
    fn the_error_of_a_registry_is_shown_without_control_characters() {
        let body = br#"{"errors":[{"code":"DENIED","message":"no \u001b[31maccess"}]}"#;
        let text = error_text(body).unwrap();
        assert!(!text.contains('\u{1b}') && text.contains("access"), "{text:?}");
        assert_eq!(error_text(b"<html>"), None);
    }
}
