//! Tokens for clusters of Amazon EKS, and the credentials of AWS that sign them.
//!
//! A token is a presigned request to `GetCallerIdentity`. The cluster sends it to STS, and accepts
//! it for 15 minutes.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use chrono::{DateTime, TimeDelta, Utc};
use serde::Deserialize;
use zeroize::Zeroizing;

use super::{
    metadata::{Environment, Metadata},
    sigv4::{self, Credentials, Request},
    token::Token,
};

/// Validity of a token after its signature, less a minute for the difference of the clocks.
const VALIDITY: TimeDelta = TimeDelta::minutes(14);
const EMPTY_PAYLOAD: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
const LINK_LOCAL: &str = "http://169.254.169.254";
const CONTAINER: &str = "http://169.254.170.2";

/// Cluster of Amazon EKS.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct EksCluster {
    pub name: String,
    pub region: String,
}

impl EksCluster {
    /// Finds the region of a cluster: in its ARN, its address, or the environment.
    pub(super) fn new(
        name: Option<&str>,
        arn: Option<&str>,
        endpoint: &str,
        env: &Environment,
    ) -> Result<Self, String> {
        let name = name.ok_or("the output `cluster` has no `name`, which a token of AWS needs")?;
        let of_arn = arn.and_then(|arn| arn.split(':').nth(3));
        let of_host = endpoint
            .split(".eks.amazonaws.com")
            .next()
            .filter(|_| endpoint.contains(".eks.amazonaws.com"));
        let of_host = of_host.and_then(|host| host.rsplit('.').next());
        let of_env = || ["AWS_REGION", "AWS_DEFAULT_REGION"].iter().find_map(|name| env.get(*name));
        let region = of_arn.or(of_host).or_else(|| of_env().map(String::as_str));
        let region = region.filter(|region| is_region(region)).ok_or(
            "the region of the cluster is unknown; add its `arn` to the output `cluster`, or pass \
             AWS_REGION",
        )?;
        Ok(EksCluster { name: name.to_owned(), region: region.to_owned() })
    }

    /// Creates a token. The clock of the host must be right within a minute.
    pub(super) fn token(&self, credentials: &Credentials, now: DateTime<Utc>) -> Token {
        let suffix = if self.region.starts_with("cn-") { ".cn" } else { "" };
        let host = format!("sts.{}.amazonaws.com{suffix}", self.region);
        let url = sigv4::presigned(
            &Request {
                host: &host,
                path: "/",
                query: &[("Action", "GetCallerIdentity"), ("Version", "2011-06-15")],
                headers: &[("x-k8s-aws-id", &self.name)],
                payload: EMPTY_PAYLOAD,
                region: &self.region,
                service: "sts",
                expires_s: 60,
            },
            credentials,
            now,
        );
        let expires = now + VALIDITY;
        let expires = credentials.expires.map_or(expires, |end| end.min(expires));
        let value = format!("k8s-aws-v1.{}", URL_SAFE_NO_PAD.encode(url.as_bytes()));
        Token { value: Zeroizing::new(value), expires }
    }
}

/// A region becomes part of a host name.
pub(super) fn is_region(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=32).contains(&text.len()) && text.bytes().all(allowed)
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    access_key_id: String,
    secret_access_key: String,
    #[serde(default)]
    token: Option<String>,
    #[serde(default)]
    expiration: Option<DateTime<Utc>>,
}

impl Answer {
    fn parse(text: &str) -> Result<Credentials, String> {
        let answer: Answer = serde_json::from_str(text)
            .map_err(|_| "the metadata service returned no credentials of AWS".to_owned())?;
        Ok(Credentials {
            access_key_id: answer.access_key_id,
            secret_access_key: Zeroizing::new(answer.secret_access_key),
            session_token: answer.token.map(Zeroizing::new),
            expires: answer.expiration,
        })
    }
}

/// Finds credentials: in the job's environment, in those of the container, or in the metadata of the
/// instance.
pub(super) async fn credentials(
    env: &Environment,
    metadata: &Metadata,
) -> Result<Credentials, String> {
    if let (Some(id), Some(secret)) =
        (env.get("AWS_ACCESS_KEY_ID"), env.get("AWS_SECRET_ACCESS_KEY"))
    {
        let session_token = env.get("AWS_SESSION_TOKEN").filter(|token| !token.is_empty());
        return Ok(Credentials {
            access_key_id: id.clone(),
            secret_access_key: Zeroizing::new(secret.clone()),
            session_token: session_token.cloned().map(Zeroizing::new),
            expires: None,
        });
    }
    let relative = env.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    let container = relative.map(|path| format!("{CONTAINER}{path}"));
    let container = container.or_else(|| env.get("AWS_CONTAINER_CREDENTIALS_FULL_URI").cloned());
    if let Some(url) = container {
        let token = container_token(env)?;
        let headers: Vec<(&str, &str)> =
            token.iter().map(|token| ("Authorization", token.trim())).collect();
        return Answer::parse(&metadata.get(&url, &headers).await?);
    }
    let base = env.get("AWS_EC2_METADATA_SERVICE_ENDPOINT").map_or(LINK_LOCAL, String::as_str);
    let base = format!("{}/latest", base.trim_end_matches('/'));
    let session = [("X-aws-ec2-metadata-token-ttl-seconds", "300")];
    let session = metadata.put(&format!("{base}/api/token"), &session).await?;
    let headers = [("X-aws-ec2-metadata-token", session.trim())];
    let roles = format!("{base}/meta-data/iam/security-credentials/");
    let role = metadata.get(&roles, &headers).await?;
    let role = role.lines().next().map(str::trim).filter(|role| !role.is_empty());
    let role = role.ok_or("the instance has no role")?;
    Answer::parse(&metadata.get(&format!("{roles}{role}"), &headers).await?)
}

/// Returns the token for the credentials of a container.
fn container_token(env: &Environment) -> Result<Option<Zeroizing<String>>, String> {
    if let Some(file) = env.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE") {
        let text = std::fs::read_to_string(file);
        let text = text.map_err(|e| {
            format!("cannot read the file of AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE: {e}")
        })?;
        return Ok(Some(Zeroizing::new(text)));
    }
    Ok(env.get("AWS_CONTAINER_AUTHORIZATION_TOKEN").cloned().map(Zeroizing::new))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials(session_token: Option<&str>) -> Credentials {
        Credentials {
            access_key_id: "AKIDEXAMPLE".into(),
            secret_access_key: Zeroizing::new("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".into()),
            session_token: session_token.map(|token| Zeroizing::new(token.into())),
            expires: None,
        }
    }

    /// The expected URLs are those of the signer of botocore 1.43.11, which the AWS CLI uses.
    #[test]
    fn a_token_is_that_of_the_aws_cli() {
        let cluster = EksCluster { name: "n-ins01".into(), region: "eu-central-1".into() };
        let now: DateTime<Utc> = "2026-11-24T09:30:00Z".parse().unwrap();
        for (session, rest) in [
            (
                None,
                "host%3Bx-k8s-aws-id\
                 &X-Amz-Signature=3bc9dc8b03dfc4b6f8f0bea40122e44474c819d8168b1f7685c4f1572fe6e5a0",
            ),
            (
                Some("IQoJb3JpZ2luX2VjEXAMPLE/+=token"),
                "host%3Bx-k8s-aws-id\
                 &X-Amz-Signature=b266ad2a38d82ed90f1a326a43b52e88cba07627aa94672b327e2385515522bc",
            ),
        ] {
            let token = cluster.token(&credentials(session), now);
            let url = token.value.strip_prefix("k8s-aws-v1.").unwrap();
            let url = String::from_utf8(URL_SAFE_NO_PAD.decode(url).unwrap()).unwrap();
            let security = match session {
                Some(_) => "&X-Amz-Security-Token=IQoJb3JpZ2luX2VjEXAMPLE%2F%2B%3Dtoken",
                None => "",
            };
            assert_eq!(
                url,
                format!(
                    "https://sts.eu-central-1.amazonaws.com/?Action=GetCallerIdentity&Version=2011-06-15\
                     &X-Amz-Algorithm=AWS4-HMAC-SHA256\
                     &X-Amz-Credential=AKIDEXAMPLE%2F20261124%2Feu-central-1%2Fsts%2Faws4_request\
                     &X-Amz-Date=20261124T093000Z&X-Amz-Expires=60{security}&X-Amz-SignedHeaders={rest}"
                )
            );
            assert_eq!(token.expires, now + TimeDelta::minutes(14));
        }
    }

    #[test]
    fn a_token_ends_with_its_credentials() {
        let cluster = EksCluster { name: "n".into(), region: "cn-north-1".into() };
        let now: DateTime<Utc> = "2026-11-24T09:30:00Z".parse().unwrap();
        let end = now + TimeDelta::minutes(3);
        let short = Credentials { expires: Some(end), ..credentials(None) };
        let token = cluster.token(&short, now);
        assert_eq!(token.expires, end);
        let url = URL_SAFE_NO_PAD.decode(&token.value["k8s-aws-v1.".len()..]).unwrap();
        assert!(url.starts_with(b"https://sts.cn-north-1.amazonaws.com.cn/?"));
    }

    #[test]
    fn the_region_comes_from_the_cluster_before_the_environment() {
        let env: Environment = [("AWS_REGION".to_owned(), "us-east-2".to_owned())].into();
        let region = |arn, endpoint| {
            EksCluster::new(Some("n"), arn, endpoint, &env).map(|cluster| cluster.region)
        };
        let arn = Some("arn:aws:eks:eu-west-1:123456789012:cluster/n");
        let endpoint = "https://AB12.gr7.ap-south-1.eks.amazonaws.com";
        assert_eq!(region(arn, endpoint).as_deref(), Ok("eu-west-1"));
        assert_eq!(region(None, endpoint).as_deref(), Ok("ap-south-1"));
        assert_eq!(region(None, "https://10.0.0.1").as_deref(), Ok("us-east-2"));
        assert!(region(Some("arn:aws:eks:evil.example/:1:cluster/n"), endpoint).is_err());
        assert!(EksCluster::new(None, arn, endpoint, &env).is_err());
        assert!(EksCluster::new(Some("n"), None, "https://10.0.0.1", &Environment::new()).is_err());
    }
}
