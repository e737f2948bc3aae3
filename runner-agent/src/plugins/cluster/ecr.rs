//! Login at registries of Amazon ECR, with the credentials of the job.
//!
//! The login is a password for 12 hours, which a signed request to the API of ECR returns.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use chrono::{DateTime, Utc};
use schemas::sanitize::sanitize;
use serde::Deserialize;
use serde_json::json;
use zeroize::Zeroizing;

use super::{
    aws::{self, is_region},
    metadata::{Environment, Metadata},
    registry_login::{Login, client, send},
    sigv4::{self, Credentials, Post},
};
use crate::host;

const CONTENT_TYPE: &str = "application/x-amz-json-1.1";
const TARGET: &str = "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken";

/// Registry of an account in one region.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::plugins) struct EcrRegistry {
    account: String,
    region: String,
    /// Domain of AWS in the partition of the region.
    domain: &'static str,
}

impl EcrRegistry {
    /// Returns the registry of a host such as `123456789012.dkr.ecr.eu-west-1.amazonaws.com`.
    pub(super) fn of_host(host: &str) -> Option<Self> {
        let (account, rest) = host.split_once(".dkr.ecr.")?;
        let domains = ["amazonaws.com", "amazonaws.com.cn"];
        let (region, domain) = domains.into_iter().find_map(|domain| {
            let region = rest.strip_suffix(domain)?.strip_suffix('.')?;
            Some((region, domain))
        })?;
        let is_account = account.len() == 12 && account.bytes().all(|byte| byte.is_ascii_digit());
        (is_account && is_region(region)).then(|| {
            let (account, region) = (account.to_owned(), region.to_owned());
            EcrRegistry { account, region, domain }
        })
    }

    /// Requests a login with the customer's credentials in the environment, or those of the
    /// container or the instance.
    pub(super) async fn login(
        &self,
        env: &Environment,
        metadata: &Metadata,
    ) -> Result<Login, String> {
        let credentials = aws::credentials(env, metadata).await.map_err(|why| {
            format!("{why}; pass AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to the jobs")
        })?;
        let url = format!("https://{}/", self.api());
        self.request(&url, &credentials, host::now()).await
    }

    fn api(&self) -> String {
        format!("api.ecr.{}.{}", self.region, self.domain)
    }

    fn body(&self) -> String {
        json!({ "registryIds": [self.account] }).to_string()
    }

    /// Returns the signed headers of the request, without `host`.
    fn headers(
        &self,
        credentials: &Credentials,
        now: DateTime<Utc>,
    ) -> Vec<(&'static str, Zeroizing<String>)> {
        let (api, body) = (self.api(), self.body());
        let post = Post {
            host: &api,
            content_type: CONTENT_TYPE,
            target: TARGET,
            body: body.as_bytes(),
            region: &self.region,
            service: "ecr",
        };
        sigv4::signed_headers(&post, credentials, now)
    }

    async fn request(
        &self,
        url: &str,
        credentials: &Credentials,
        now: DateTime<Utc>,
    ) -> Result<Login, String> {
        let mut request = client()?.post(url).body(self.body());
        for (name, value) in self.headers(credentials, now) {
            request = request.header(name, value.as_str());
        }
        let (status, body) = send(request, "the API of ECR").await?;
        if !status.is_success() {
            let kind = serde_json::from_slice::<Rejection>(&body).map(|rejection| rejection.kind);
            let kind = kind.map(|kind| format!(" ({})", sanitize(&kind))).unwrap_or_default();
            return Err(format!(
                "the API of ECR responded with {status}{kind}; allow ecr:GetAuthorizationToken for the credentials"
            ));
        }
        Logins::parse(&body).ok_or_else(|| "the API of ECR returned no login".into())
    }
}

/// Error of the API. Its text can contain values of the request.
#[derive(Deserialize)]
struct Rejection {
    #[serde(rename = "__type")]
    kind: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Logins {
    authorization_data: Vec<Authorization>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Authorization {
    /// `user:password` in base64.
    authorization_token: String,
}

impl Logins {
    fn parse(body: &[u8]) -> Option<Login> {
        let answer: Logins = serde_json::from_slice(body).ok()?;
        let token =
            Zeroizing::new(answer.authorization_data.into_iter().next()?.authorization_token);
        let login = Zeroizing::new(STANDARD.decode(token.as_bytes()).ok()?);
        let (user, password) = std::str::from_utf8(&login).ok()?.split_once(':')?;
        Some((user.to_owned(), Zeroizing::new(password.to_owned())))
    }
}

#[cfg(test)]
mod tests;
