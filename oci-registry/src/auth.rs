//! Authentication at a registry: credentials of Docker's config.json, and tokens of a token server.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use base64::Engine as _;
use docker_credential::{CredentialRetrievalError, DockerCredential, get_credential};
use domain::image::DOCKER_HUB;
use reqwest::{Response, Url, header::HeaderValue};
use serde::Deserialize;
use tokio::{sync::Semaphore, time::timeout};

use super::{Endpoint, RegistryError};

/// Longest response of a token server, in bytes.
const MAX_TOKEN_RESPONSE: usize = 1 << 20;
/// Timeout of a request to a token server, and of a credential helper.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Name of Docker Hub in Docker's config.json.
const DOCKER_HUB_KEY: &str = "https://index.docker.io/v1/";

/// Repositories that a request accesses, as a token server names them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Scope(Vec<String>);

impl Scope {
    pub(crate) fn pull(name: &str) -> Scope {
        Scope(vec![format!("repository:{name}:pull")])
    }

    pub(crate) fn push(name: &str) -> Scope {
        Scope(vec![format!("repository:{name}:pull,push")])
    }

    /// Adds a repository to mount blobs from.
    pub(crate) fn and_pull(mut self, name: &str) -> Scope {
        self.0.push(format!("repository:{name}:pull"));
        self
    }
}

/// Credentials of one registry.
pub(crate) enum Auth {
    /// Token of the job, for the server's registry.
    Job(HeaderValue),
    /// Headers by scope, as the registry requested them.
    Challenge(Mutex<HashMap<Scope, HeaderValue>>),
}

impl Auth {
    pub(crate) fn header(&self, scope: &Scope) -> Option<HeaderValue> {
        match self {
            Auth::Job(token) => Some(token.clone()),
            Auth::Challenge(known) => {
                known.lock().unwrap_or_else(PoisonError::into_inner).get(scope).cloned()
            }
        }
    }

    /// Removes the header of a scope. Returns false if there is none.
    pub(crate) fn forget(&self, scope: &Scope) -> bool {
        match self {
            Auth::Job(_) => false,
            Auth::Challenge(known) => {
                known.lock().unwrap_or_else(PoisonError::into_inner).remove(scope).is_some()
            }
        }
    }

    fn store(&self, scope: &Scope, header: HeaderValue) {
        match self {
            Auth::Job(_) => {}
            Auth::Challenge(known) => {
                let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
                known.insert(scope.clone(), header);
            }
        }
    }

    /// Obtains the header that a response with status 401 requires. Returns false if there is none.
    pub(crate) async fn answer(
        &self,
        endpoint: &Endpoint,
        scope: &Scope,
        refused: &Response,
    ) -> Result<bool, RegistryError> {
        let host = endpoint.host();
        if matches!(self, Auth::Job(_)) {
            return Ok(false);
        }
        let challenges = refused.headers().get_all(reqwest::header::WWW_AUTHENTICATE);
        let challenges = challenges.iter().filter_map(|value| value.to_str().ok());
        let Some(challenge) = challenges.filter_map(Challenge::parse).next() else {
            return Ok(false);
        };
        let login = endpoint.login.as_ref().map(|(user, password)| {
            DockerCredential::UsernamePassword(user.clone(), password.as_str().to_owned())
        });
        let credential = credential(host).await?.or(login);
        let header = match challenge {
            Challenge::Basic => match credential {
                Some(DockerCredential::UsernamePassword(user, password)) => basic(&user, &password),
                Some(DockerCredential::IdentityToken(token)) => bearer(&token),
                None => return Ok(false),
            },
            Challenge::Bearer { realm, service } => {
                let request = TokenRequest { realm, service, scope };
                bearer(&request.send(endpoint, refused.url(), credential).await?)
            }
        };
        let invalid = |_| RegistryError::Credentials {
            host: host.to_owned(),
            why: "they contain control characters".into(),
        };
        let mut header = HeaderValue::try_from(header).map_err(invalid)?;
        header.set_sensitive(true);
        self.store(scope, header);
        Ok(true)
    }
}

/// Returns the credential for a registry, if Docker's config.json has one. A credential helper can
/// wait for the network, so it runs on a blocking thread. It has no timeout of its own, so each process
/// runs one at a time: helpers that hang must not use up the threads of the server.
pub(crate) async fn credential(host: &str) -> Result<Option<DockerCredential>, RegistryError> {
    static RUNNING: Semaphore = Semaphore::const_new(1);
    let key = if host == DOCKER_HUB { DOCKER_HUB_KEY } else { host }.to_owned();
    let found = timeout(TIMEOUT, async {
        let permit = RUNNING.acquire().await;
        tokio::task::spawn_blocking(move || {
            let found = get_credential(&key);
            drop(permit);
            found
        })
        .await
    });
    let failed = |why: String| RegistryError::Credentials { host: host.to_owned(), why };
    match found.await {
        Ok(Ok(Ok(credential))) => Ok(Some(credential)),
        Ok(Ok(Err(
            CredentialRetrievalError::ConfigNotFound
            | CredentialRetrievalError::ConfigReadError
            | CredentialRetrievalError::NoCredentialConfigured,
        ))) => Ok(None),
        // The output of a helper can contain secrets.
        Ok(Ok(Err(CredentialRetrievalError::HelperFailure { helper, .. }))) => {
            Err(failed(format!("{helper} failed")))
        }
        Ok(Ok(Err(error))) => Err(failed(error.to_string().to_lowercase())),
        Ok(Err(error)) => Err(failed(error.to_string())),
        Err(_) => Err(failed(format!(
            "the credential helper did not finish within {} s",
            TIMEOUT.as_secs()
        ))),
    }
}

fn basic(user: &str, password: &str) -> String {
    let encoded = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
    format!("Basic {encoded}")
}

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

/// Authentication scheme that a registry requests.
#[derive(Debug, PartialEq)]
enum Challenge {
    Basic,
    Bearer { realm: String, service: Option<String> },
}

impl Challenge {
    fn parse(header: &str) -> Option<Challenge> {
        let (scheme, rest) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Challenge::Basic);
        }
        let parameters = parameters(rest);
        let value = |name: &str| {
            let found = parameters.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.clone())
        };
        let is_bearer = scheme.eq_ignore_ascii_case("bearer");
        is_bearer.then(|| {
            Some(Challenge::Bearer { realm: value("realm")?, service: value("service") })
        })?
    }
}

/// Parameters `name="value"` of a challenge. A value can contain commas.
fn parameters(text: &str) -> Vec<(String, String)> {
    let mut found = vec![];
    let mut rest = text;
    while let Some((name, after)) = rest.split_once('=') {
        let name = name.trim_matches([' ', ',']).to_owned();
        let (value, next) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => after.split_once(',').unwrap_or((after, "")),
        };
        found.push((name, value.trim().to_owned()));
        rest = next;
    }
    found
}

/// Request for a token.
struct TokenRequest<'s> {
    realm: String,
    service: Option<String>,
    scope: &'s Scope,
}

/// Response of a token server.
#[derive(Deserialize)]
struct TokenResponse {
    #[serde(default)]
    token: Option<String>,
    #[serde(default)]
    access_token: Option<String>,
}

impl TokenRequest<'_> {
    async fn send(
        &self,
        endpoint: &Endpoint,
        registry: &Url,
        credential: Option<DockerCredential>,
    ) -> Result<String, RegistryError> {
        let host = endpoint.host();
        let invalid =
            |why: &str| endpoint.invalid("the address of the token server", why.to_owned());
        let mut url = Url::parse(&self.realm).map_err(|error| invalid(&error.to_string()))?;
        // A registry with TLS must not send its credential over an unencrypted connection.
        if url.scheme() != "https" && url.scheme() != registry.scheme() {
            return Err(invalid("its scheme is not https"));
        }
        let http = endpoint.client(&url);
        let http = http.ok_or_else(|| invalid(&format!("it is {}", endpoint.not_allowed())))?;
        let scopes = self.scope.0.iter().map(|scope| ("scope", scope.as_str()));
        let service = self.service.iter().map(|service| ("service", service.as_str()));
        let parameters: Vec<_> = service.chain(scopes).collect();
        let request = match credential {
            Some(DockerCredential::IdentityToken(token)) => {
                let grant = [("grant_type", "refresh_token"), ("client_id", "stead")];
                let own = [("refresh_token", token.as_str())];
                let form: Vec<_> = parameters.iter().copied().chain(grant).chain(own).collect();
                http.post(url).form(&form)
            }
            other => {
                url.query_pairs_mut().extend_pairs(parameters);
                match other {
                    Some(DockerCredential::UsernamePassword(user, password)) => {
                        http.get(url).basic_auth(user, Some(password))
                    }
                    Some(DockerCredential::IdentityToken(_)) | None => http.get(url),
                }
            }
        };
        let unreachable = |why: String| endpoint.unreachable(why);
        let mut response = match timeout(TIMEOUT, request.send()).await {
            Ok(sent) => sent.map_err(|error| {
                unreachable(format!("its token server: {}", super::response::reason(&error)))
            })?,
            Err(_) => return Err(unreachable("its token server does not respond".into())),
        };
        if response.status().is_server_error() {
            let why = format!("its token server responded with status {}", response.status());
            return Err(unreachable(why));
        }
        if !response.status().is_success() {
            let detail = format!("its token server responded with status {}", response.status());
            let what = self.scope.0.join(" ");
            return Err(RegistryError::Denied { host: host.to_owned(), what, detail });
        }
        let body = super::response::body(&mut response, MAX_TOKEN_RESPONSE, TIMEOUT).await;
        let body = body.map_err(|why| unreachable(format!("its token server: {why}")))?;
        let parsed: Option<TokenResponse> = serde_json::from_slice(&body).ok();
        let token = parsed.and_then(|parsed| parsed.token.or(parsed.access_token));
        token.ok_or_else(|| unreachable("its token server sent no token".into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_parsed() {
        let header = r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:a/b:pull,push""#;
        let bearer = Challenge::Bearer {
            realm: "https://auth.docker.io/token".into(),
            service: Some("registry.docker.io".into()),
        };
        assert_eq!(Challenge::parse(header), Some(bearer));
        assert_eq!(Challenge::parse("Basic realm=\"x\""), Some(Challenge::Basic));
        for other in ["", "Bearer", "Bearer service=x", "Negotiate abc", "Bearer realm"] {
            assert_eq!(Challenge::parse(other), None, "{other}");
        }
    }
}
