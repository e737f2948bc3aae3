//! Logins at the registries of clouds, with the credentials of the job.

use std::time::Duration;

use reqwest::Url;
use serde::Deserialize;
use zeroize::Zeroizing;

use super::{
    ecr::EcrRegistry,
    metadata::{self, Environment, Metadata},
};
use crate::host;

/// User that Artifact Registry expects beside an access token.
const GOOGLE_USER: &str = "oauth2accesstoken";
/// User that Azure's registries expect beside a refresh token.
const AZURE_USER: &str = "00000000-0000-0000-0000-000000000000";
/// Audience of tokens that only Azure's registries accept.
const AZURE_REGISTRIES: &str = "https://containerregistry.azure.net";
pub(super) const TIMEOUT: Duration = Duration::from_secs(20);
/// Largest response in bytes.
const RESPONSE_LIMIT: usize = 64 << 10;

/// User and password of a registry.
pub(in crate::plugins) type Login = (String, Zeroizing<String>);

/// Registry of a cloud, which accepts the credentials of that cloud.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::plugins) enum CloudRegistry {
    Ecr(EcrRegistry),
    Google,
    /// Host of the registry.
    Azure(String),
}

impl CloudRegistry {
    /// Recognizes the host of a registry. A host with a port is none: clouds use TLS on port 443.
    pub(in crate::plugins) fn of_host(host: &str) -> Option<Self> {
        if let Some(registry) = EcrRegistry::of_host(host) {
            return Some(CloudRegistry::Ecr(registry));
        }
        let labels = |suffix: &str| {
            let name = host.strip_suffix(suffix)?;
            let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
            (!name.is_empty() && name.bytes().all(allowed)).then_some(())
        };
        if host == "gcr.io" || labels(".gcr.io").or(labels("-docker.pkg.dev")).is_some() {
            return Some(CloudRegistry::Google);
        }
        labels(".azurecr.io").map(|()| CloudRegistry::Azure(host.to_owned()))
    }

    /// Returns true if the registry has images that need no login.
    pub(in crate::plugins) fn allows_anonymous(&self) -> bool {
        match self {
            CloudRegistry::Ecr(_) => false,
            CloudRegistry::Google | CloudRegistry::Azure(_) => true,
        }
    }

    /// Requests a login with the customer's credentials in the environment, or with those of the
    /// container or the instance.
    pub(in crate::plugins) async fn login(&self, env: &Environment) -> Result<Login, String> {
        let metadata = Metadata::new()?;
        match self {
            CloudRegistry::Ecr(registry) => registry.login(env, &metadata).await,
            CloudRegistry::Google => {
                let token = metadata::google(env, &metadata, host::now()).await?;
                Ok((GOOGLE_USER.to_owned(), token.value))
            }
            CloudRegistry::Azure(host) => {
                let token =
                    metadata::azure(AZURE_REGISTRIES, env, &metadata, host::now()).await?.value;
                let base = format!("https://{host}");
                Ok((AZURE_USER.to_owned(), exchanged(&base, host, &token).await?))
            }
        }
    }
}

/// Exchanges a token of a managed identity for a refresh token of the registry
/// (<https://github.com/Azure/acr/blob/main/docs/AAD-OAuth.md>).
async fn exchanged(base: &str, service: &str, token: &str) -> Result<Zeroizing<String>, String> {
    #[derive(Deserialize)]
    struct Exchanged {
        refresh_token: String,
    }

    let url = Url::parse(&format!("{base}/oauth2/exchange")).map_err(|error| error.to_string())?;
    let form = [("grant_type", "access_token"), ("service", service), ("access_token", token)];
    let request = client()?.post(url).form(&form);
    let (status, body) = send(request, "the token exchange of the registry").await?;
    if !status.is_success() {
        return Err(format!(
            "the token exchange of the registry responded with {status}; give the identity the role AcrPull or AcrPush"
        ));
    }
    let parsed: Result<Exchanged, _> = serde_json::from_slice(&body);
    let parsed = parsed.map_err(|_| "the token exchange of the registry returned no token")?;
    Ok(Zeroizing::new(parsed.refresh_token))
}

/// Returns a client that sends credentials to no other address than the requested one.
pub(super) fn client() -> Result<reqwest::Client, String> {
    // A second call fails, because the first one installed the same provider.
    let _already = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .timeout(TIMEOUT)
        .build();
    client.map_err(|error| format!("cannot create a client: {error}"))
}

/// Sends a request, and reads a response of limited size.
pub(super) async fn send(
    request: reqwest::RequestBuilder,
    api: &str,
) -> Result<(reqwest::StatusCode, Zeroizing<Vec<u8>>), String> {
    let failed = |error: reqwest::Error| format!("{api} is not reachable: {}", error.without_url());
    let mut response = request.send().await.map_err(failed)?;
    let status = response.status();
    let mut body = Zeroizing::new(Vec::new());
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        if body.len() + chunk.len() > RESPONSE_LIMIT {
            return Err(format!("the response of {api} is too large"));
        }
        body.extend_from_slice(&chunk);
    }
    Ok((status, body))
}

#[cfg(test)]
pub(super) mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::TcpListener,
    };

    use super::*;

    /// Starts a server that answers one request. Returns its URL and the request that it got.
    pub(in crate::plugins::cluster) fn substitute(
        status: &str,
        body: &str,
    ) -> (String, std::thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let response = format!(
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut request, mut buffer) = (String::new(), [0; 4096]);
            while !is_complete(&request) {
                let read = stream.read(&mut buffer).unwrap();
                assert!(read > 0, "the request ends early: {request}");
                request += std::str::from_utf8(&buffer[..read]).unwrap();
            }
            stream.write_all(response.as_bytes()).unwrap();
            request
        });
        (url, server)
    }

    fn is_complete(request: &str) -> bool {
        let Some((head, body)) = request.split_once("\r\n\r\n") else { return false };
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            let is_length = name.eq_ignore_ascii_case("content-length");
            is_length.then(|| value.trim().parse::<usize>().unwrap())
        });
        body.len() >= length.unwrap_or(0)
    }

    #[test]
    fn only_hosts_of_clouds_are_recognized() {
        let google = ["gcr.io", "eu.gcr.io", "europe-west1-docker.pkg.dev"];
        for host in google {
            assert_eq!(CloudRegistry::of_host(host), Some(CloudRegistry::Google), "{host}");
        }
        let azure = CloudRegistry::Azure("shop.azurecr.io".into());
        assert_eq!(CloudRegistry::of_host("shop.azurecr.io"), Some(azure));
        for host in [
            "ghcr.io",
            ".gcr.io",
            "evilgcr.io",
            "evil.example/x.gcr.io",
            "a.b.azurecr.io",
            "shop.azurecr.io:8443",
            "shop.azurecr.io.evil.example",
            "-docker.pkg.dev.evil.example",
        ] {
            assert_eq!(CloudRegistry::of_host(host), None, "{host}");
        }
    }

    #[tokio::test]
    async fn the_service_account_of_the_instance_logs_in_to_artifact_registry() {
        let (url, server) = substitute("200 OK", r#"{"access_token":"ya29.a","expires_in":3599}"#);
        let address = url.trim_start_matches("http://").to_owned();
        let env = Environment::from([("GCE_METADATA_HOST".to_owned(), address)]);
        let (user, password) = CloudRegistry::Google.login(&env).await.unwrap();
        assert_eq!((user.as_str(), password.as_str()), ("oauth2accesstoken", "ya29.a"));
        assert!(server.join().unwrap().starts_with("GET /computeMetadata/v1/instance/"));
    }

    #[tokio::test]
    async fn a_token_of_an_identity_is_exchanged_for_one_of_the_registry() {
        let (url, server) = substitute("200 OK", r#"{"refresh_token":"refresh"}"#);
        let token = exchanged(&url, "shop.azurecr.io", "a+b").await.unwrap();
        assert_eq!(token.as_str(), "refresh");
        let request = server.join().unwrap();
        assert!(request.starts_with("POST /oauth2/exchange "), "{request}");
        let form = "grant_type=access_token&service=shop.azurecr.io&access_token=a%2Bb";
        assert!(request.ends_with(form), "{request}");

        let (url, _server) = substitute("401 Unauthorized", "the token is secret-token");
        let why = exchanged(&url, "shop.azurecr.io", "secret-token").await.unwrap_err();
        assert!(why.contains("401") && why.contains("AcrPull"), "{why}");
        assert!(!why.contains("secret-token"), "{why}");
    }
}
