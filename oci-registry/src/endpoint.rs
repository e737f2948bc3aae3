//! HTTP client of one registry.

use std::{collections::HashMap, sync::Mutex, time::Duration};

use domain::image::DOCKER_HUB;
use reqwest::{
    RequestBuilder, Response, StatusCode, Url,
    header::{self, HeaderValue},
};
use tokio::time::timeout;
use zeroize::Zeroizing;

use super::{
    RegistryError,
    auth::{self, Auth, Scope},
    response::{is_transient, reason, retry_after},
    retry::{Observer, Retry},
};

/// Default of the longest time without progress.
const PATIENCE: Duration = Duration::from_secs(40);
/// Time without data after which a request is repeated.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Largest number of redirects of one download.
const MAX_REDIRECTS: usize = 5;
/// Media types of manifests and lists.
pub(crate) const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
     application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.docker.distribution.manifest.v2+json";

/// One registry.
pub struct Endpoint {
    http: reqwest::Client,
    base: Url,
    /// Name of the registry in references and in Docker's config.json.
    pub(crate) host: String,
    pub(crate) auth: Auth,
    /// User and password, if Docker's config.json has no credential.
    pub(crate) login: Option<(String, Zeroizing<String>)>,
    pub(crate) patience: Option<Duration>,
    observer: Option<Observer>,
    pub(crate) idle_timeout: Duration,
    /// Access to addresses that the registry refers to. `None` means as to the registry itself.
    referred: Option<Referred>,
}

/// Access to addresses that a registry refers to: its storage, by a redirect, and its token server.
pub struct Referred {
    pub http: reqwest::Client,
    /// Returns false for an address that must not be reached.
    pub permits: fn(&Url) -> bool,
    /// What to do if an address must be reached after all. Part of error messages.
    pub remedy: &'static str,
}

impl Endpoint {
    /// Returns the registry of Stead's server, which accepts this token. Requests are repeated without
    /// a limit, so the caller must stop at its deadline.
    ///
    /// # Errors
    /// The address or the token is invalid.
    pub fn of_server(
        (base_url, token): (&str, &str),
        http: reqwest::Client,
        idle_timeout: Duration,
    ) -> Result<Endpoint, RegistryError> {
        let host = "the server".to_owned();
        let invalid = |why: String| RegistryError::Unreachable { host: host.clone(), why };
        let base = Url::parse(base_url).map_err(|error| invalid(error.to_string()))?;
        let token = HeaderValue::try_from(format!("Bearer {token}"));
        let mut token = token.map_err(|_| invalid("the job token has an invalid format".into()))?;
        token.set_sensitive(true);
        let auth = Auth::Job(token);
        Ok(Endpoint {
            http,
            base,
            host,
            auth,
            login: None,
            patience: None,
            observer: None,
            idle_timeout,
            referred: None,
        })
    }

    /// Returns the registry of a host, with TLS unless the host is this one.
    ///
    /// # Errors
    /// The host is invalid, or the HTTP client cannot be created.
    pub fn of_host(host: &str) -> Result<Endpoint, RegistryError> {
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        let scheme = if is_loopback(name) { "http" } else { "https" };
        match host {
            DOCKER_HUB => Endpoint::new(host, "https://registry-1.docker.io"),
            host => Endpoint::new(host, &format!("{scheme}://{host}")),
        }
    }

    /// Returns the registry at a base URL. `host` is its name in Docker's config.json.
    ///
    /// # Errors
    /// The URL is invalid, or the HTTP client cannot be created.
    pub fn new(host: &str, base: &str) -> Result<Endpoint, RegistryError> {
        let unusable = |why: String| RegistryError::Unreachable { host: host.to_owned(), why };
        Ok(Endpoint {
            http: client().build().map_err(|error| unusable(reason(&error)))?,
            base: Url::parse(base).map_err(|error| unusable(error.to_string()))?,
            host: host.to_owned(),
            auth: Auth::Challenge(Mutex::new(HashMap::new())),
            login: None,
            patience: Some(PATIENCE),
            observer: None,
            idle_timeout: IDLE_TIMEOUT,
            referred: None,
        })
    }

    /// Returns true if Docker's config.json has a credential for the registry.
    ///
    /// # Errors
    /// Docker's config.json or a credential helper is unusable.
    pub async fn has_credential(&self) -> Result<bool, RegistryError> {
        Ok(auth::credential(&self.host).await?.is_some())
    }

    /// Uses this user and password, because Docker's config.json has no credential.
    #[must_use]
    pub fn with_login(self, login: (String, Zeroizing<String>)) -> Endpoint {
        Endpoint { login: Some(login), ..self }
    }

    /// Limits the addresses that the registry may refer to.
    #[must_use]
    pub fn with_referred(self, referred: Referred) -> Endpoint {
        Endpoint { referred: Some(referred), ..self }
    }

    /// Limits the time without progress, and the time without data in one request.
    #[must_use]
    pub fn with_timeouts(self, patience: Duration, idle_timeout: Duration) -> Endpoint {
        Endpoint { patience: Some(patience), idle_timeout, ..self }
    }

    /// Reports why attempts are repeated.
    #[must_use]
    pub fn with_observer(self, observer: Option<Observer>) -> Endpoint {
        Endpoint { observer, ..self }
    }

    /// Repeats attempts without a limit. The caller must stop at its deadline.
    #[must_use]
    pub fn without_limit(self) -> Endpoint {
        Endpoint { patience: None, ..self }
    }

    /// Name of the registry in references and in Docker's config.json.
    pub fn host(&self) -> &str {
        &self.host
    }

    pub(crate) fn retry(&self) -> Retry {
        Retry::new(self.patience, self.observer.clone())
    }

    /// Returns a series of attempts with a limit, also if the caller repeats others without one.
    pub(crate) fn limited_retry(&self) -> Retry {
        Retry::new(Some(self.patience.unwrap_or(PATIENCE)), self.observer.clone())
    }

    /// Returns the URL of a path below `/v2/`.
    pub(crate) fn url(&self, path: &str) -> Result<Url, RegistryError> {
        let url = self.base.join(&format!("/v2/{path}"));
        url.map_err(|error| self.invalid(path, error.to_string()))
    }

    /// Resolves the URL of an upload. Credentials go only to the origin of the registry.
    pub(crate) fn location(&self, response: &Response) -> Option<Url> {
        let location = response.headers().get(header::LOCATION)?.to_str().ok()?;
        let url = response.url().join(location).ok()?;
        (may_follow(response.url(), &url) && self.client(&url).is_some()).then_some(url)
    }

    /// Returns the client for a URL. `None` if the registry may not refer to it.
    pub(crate) fn client(&self, url: &Url) -> Option<&reqwest::Client> {
        match &self.referred {
            Some(referred) if !self.is_own(url) => {
                (referred.permits)(url).then_some(&referred.http)
            }
            Some(_) | None => Some(&self.http),
        }
    }

    /// Explains why an address may not be used that the registry refers to.
    pub(crate) fn not_allowed(&self) -> String {
        let remedy = self.referred.as_ref().map(|referred| format!("; {}", referred.remedy));
        format!("an address that is not allowed{}", remedy.unwrap_or_default())
    }

    /// Returns true for an address of the registry itself.
    fn is_own(&self, url: &Url) -> bool {
        url.origin() == self.base.origin()
    }

    /// Sends a request until a response is not transient, and authenticates it where the registry
    /// requires it.
    pub(crate) async fn send(
        &self,
        what: &str,
        scope: &Scope,
        build: impl Fn(&reqwest::Client) -> RequestBuilder,
    ) -> Result<Response, RegistryError> {
        let mut retry = self.retry();
        let mut has_answered = false;
        loop {
            match self.send_once(scope, build(&self.http)).await {
                // ECR responds to an expired token with 403 and without a challenge. A registry can also
                // have corrected its permissions since the token was issued.
                Ok(refused)
                    if refused.status() == StatusCode::FORBIDDEN
                        && !has_answered
                        && self.is_own(refused.url())
                        && self.auth.forget(scope) => {}
                // Another host, after a redirect, must not choose where the credential goes.
                Ok(refused)
                    if refused.status() == StatusCode::UNAUTHORIZED
                        && !has_answered
                        && self.is_own(refused.url()) =>
                {
                    has_answered = true;
                    match self.auth.answer(self, scope, &refused).await {
                        Ok(true) => {}
                        Ok(false) => return Ok(refused),
                        // The token server does not respond.
                        Err(error @ RegistryError::Unreachable { .. }) => {
                            has_answered = false;
                            retry.pause(None, error).await?;
                        }
                        Err(error) => return Err(error),
                    }
                }
                Ok(response) if is_transient(&response) => {
                    let wait = retry_after(&response);
                    retry.pause(wait, self.status(what, response).await).await?;
                    // The credential can expire during an outage.
                    has_answered = false;
                }
                Ok(response) => return Ok(response),
                Err(error) => {
                    retry.pause(None, error).await?;
                    has_answered = false;
                }
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
    pub(crate) async fn upload(
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
        let refused = || self.unreachable(format!("it refers to {}", self.not_allowed()));
        let http = self.client(request.url()).ok_or_else(refused)?;
        match timeout(limit, http.execute(request)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(self.unreachable(reason(&error))),
            Err(_) => {
                let why = format!("it did not respond within {} s", limit.as_secs());
                Err(self.unreachable(why))
            }
        }
    }

    /// Sends a GET, and follows redirects to other hosts without credentials.
    pub(crate) async fn download(
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
            let refused = || {
                self.invalid(what, format!("the registry redirects it to {}", self.not_allowed()))
            };
            url = self.location(&response).ok_or_else(refused)?;
        }
        Err(self
            .invalid(what, format!("the registry redirects it more than {MAX_REDIRECTS} times")))
    }

    pub(crate) fn invalid(&self, what: &str, why: String) -> RegistryError {
        RegistryError::Invalid { host: self.host.clone(), what: what.to_owned(), why }
    }

    pub(crate) fn unreachable(&self, why: String) -> RegistryError {
        RegistryError::Unreachable { host: self.host.clone(), why }
    }
}

/// Returns a client that follows no redirects by itself.
pub fn client() -> reqwest::ClientBuilder {
    // A second call fails, because the first one installed the same provider.
    let _already = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .user_agent(concat!("stead/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(Duration::from_secs(10))
        .redirect(reqwest::redirect::Policy::none())
        .http1_only()
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
}
