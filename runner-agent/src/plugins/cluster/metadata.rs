//! Requests to the metadata services of clouds, and the tokens of Google and Azure.

use std::{collections::BTreeMap, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use serde::Deserialize;
use serde_json::Value;
use zeroize::Zeroizing;

use super::{sigv4::encoded, token::Token};

/// Variables that the customer passes to the job.
pub(super) type Environment = BTreeMap<String, String>;

/// Largest response in bytes.
const RESPONSE_LIMIT: usize = 64 << 10;
const GOOGLE: &str = "metadata.google.internal";
const AZURE: &str = "http://169.254.169.254";
/// Application id of the API servers of Azure Kubernetes Service.
pub(super) const AZURE_KUBERNETES: &str = "6dae42f8-4368-4678-94ff-3960e28e3630";

/// Client of metadata services. They are on the host's link, so no proxy is used and no redirect is
/// followed.
#[derive(Debug, Clone)]
pub(super) struct Metadata(reqwest::Client);

impl Metadata {
    pub(super) fn new() -> Result<Self, String> {
        // A second call fails, because the first one installed the same provider.
        let _already = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(Duration::from_secs(3))
            .timeout(Duration::from_secs(10))
            .build();
        client.map(Metadata).map_err(|e| format!("cannot create a client: {e}"))
    }

    pub(super) async fn get(
        &self,
        url: &str,
        headers: &[(&str, &str)],
    ) -> Result<Zeroizing<String>, String> {
        self.send(self.0.get(url), headers).await
    }

    pub(super) async fn put(
        &self,
        url: &str,
        headers: &[(&str, &str)],
    ) -> Result<Zeroizing<String>, String> {
        self.send(self.0.put(url), headers).await
    }

    async fn send(
        &self,
        mut request: reqwest::RequestBuilder,
        headers: &[(&str, &str)],
    ) -> Result<Zeroizing<String>, String> {
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let failed = |e: reqwest::Error| {
            format!("the metadata service is not reachable: {}", e.without_url())
        };
        let mut response = request.send().await.map_err(failed)?;
        let status = response.status();
        let mut body = Zeroizing::new(Vec::new());
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if body.len() + chunk.len() > RESPONSE_LIMIT {
                return Err("the response of the metadata service is too large".into());
            }
            body.extend_from_slice(&chunk);
        }
        if !status.is_success() {
            return Err(format!("the metadata service responded with {status}"));
        }
        let text = String::from_utf8(body.to_vec());
        let text = text.map_err(|_| "the response of the metadata service is not text")?;
        Ok(Zeroizing::new(text))
    }
}

/// Returns an access token of the service account of the instance.
pub(super) async fn google(
    env: &Environment,
    metadata: &Metadata,
    now: DateTime<Utc>,
) -> Result<Token, String> {
    let host = env.get("GCE_METADATA_HOST").map_or(GOOGLE, String::as_str);
    let url = format!("http://{host}/computeMetadata/v1/instance/service-accounts/default/token");
    token(&metadata.get(&url, &[("Metadata-Flavor", "Google")]).await?, now)
}

/// Returns a token of the managed identity of the instance for this resource.
pub(super) async fn azure(
    resource: &str,
    env: &Environment,
    metadata: &Metadata,
    now: DateTime<Utc>,
) -> Result<Token, String> {
    let base = env.get("AZURE_POD_IDENTITY_AUTHORITY_HOST").map_or(AZURE, String::as_str);
    let client = env.get("AZURE_CLIENT_ID").map(|id| format!("&client_id={}", encoded(id)));
    let url = format!(
        "{}/metadata/identity/oauth2/token?api-version=2018-02-01&resource={}{}",
        base.trim_end_matches('/'),
        encoded(resource),
        client.unwrap_or_default()
    );
    token(&metadata.get(&url, &[("Metadata", "true")]).await?, now)
}

#[derive(Deserialize)]
struct TokenAnswer {
    access_token: String,
    /// Seconds, as a number or as text.
    expires_in: Value,
}

fn token(text: &str, now: DateTime<Utc>) -> Result<Token, String> {
    let answer: TokenAnswer = serde_json::from_str(text)
        .map_err(|_| "the metadata service returned no token".to_owned())?;
    let expires_in = &answer.expires_in;
    let seconds = expires_in.as_str().map_or_else(|| expires_in.as_i64(), |text| text.parse().ok());
    let validity = seconds.and_then(TimeDelta::try_seconds);
    let validity = validity.ok_or("the token of the metadata service has no validity")?;
    let expires = now.checked_add_signed(validity).unwrap_or(now);
    Ok(Token { value: Zeroizing::new(answer.access_token), expires })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_the_validity_are_read() {
        let now: DateTime<Utc> = "2026-11-24T09:30:00Z".parse().unwrap();
        for seconds in ["3599", "\"3599\""] {
            let text = format!(r#"{{"access_token":"ya29.a","expires_in":{seconds}}}"#);
            let token = token(&text, now).unwrap();
            assert_eq!(token.value.as_str(), "ya29.a");
            assert_eq!(token.expires, now + TimeDelta::seconds(3599));
        }
        for text in ["", "{}", r#"{"access_token":"a"}"#, r#"{"access_token":"a","expires_in":{}}"#]
        {
            assert!(token(text, now).is_err(), "{text}");
        }
    }
}
