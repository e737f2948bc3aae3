//! Presigned URLs and signed requests of AWS (Signature Version 4).

use chrono::{DateTime, Utc};
use ring::hmac;
use zeroize::Zeroizing;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// Credentials of AWS.
#[derive(Clone, PartialEq)]
pub(super) struct Credentials {
    pub access_key_id: String,
    pub secret_access_key: Zeroizing<String>,
    pub session_token: Option<Zeroizing<String>>,
    /// End of their validity. `None` for permanent credentials.
    pub expires: Option<DateTime<Utc>>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials")
            .field("access_key_id", &self.access_key_id)
            .finish_non_exhaustive()
    }
}

/// GET request to presign.
pub(super) struct Request<'a> {
    pub host: &'a str,
    pub path: &'a str,
    /// Parameters, sorted by name, with names before `X-Amz-`.
    pub query: &'a [(&'a str, &'a str)],
    /// Signed headers besides `host`, with names after it in lower case, sorted.
    pub headers: &'a [(&'a str, &'a str)],
    /// Hexadecimal SHA-256 of the body, or a placeholder of the service.
    pub payload: &'a str,
    pub region: &'a str,
    pub service: &'a str,
    pub expires_s: u32,
}

/// Returns the URL with the signature.
pub(super) fn presigned(
    request: &Request<'_>,
    credentials: &Credentials,
    now: DateTime<Utc>,
) -> Zeroizing<String> {
    let (day, time) = (now.format("%Y%m%d").to_string(), now.format("%Y%m%dT%H%M%SZ").to_string());
    let scope = format!("{day}/{}/{}/aws4_request", request.region, request.service);
    let names: Vec<&str> =
        ["host"].into_iter().chain(request.headers.iter().map(|(name, _)| *name)).collect();
    let names = names.join(";");
    let credential = format!("{}/{scope}", credentials.access_key_id);
    let expires = request.expires_s.to_string();
    let mut query: Vec<(&str, &str)> = request.query.to_vec();
    query.extend([
        ("X-Amz-Algorithm", ALGORITHM),
        ("X-Amz-Credential", credential.as_str()),
        ("X-Amz-Date", time.as_str()),
        ("X-Amz-Expires", expires.as_str()),
    ]);
    query.extend(credentials.session_token.iter().map(|t| ("X-Amz-Security-Token", t.as_str())));
    query.push(("X-Amz-SignedHeaders", names.as_str()));
    let query: Vec<String> =
        query.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect();
    let query = Zeroizing::new(query.join("&"));
    let headers: String =
        request.headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    let canonical = Zeroizing::new(format!(
        "GET\n{}\n{}\nhost:{}\n{headers}\n{names}\n{}",
        request.path, *query, request.host, request.payload
    ));
    let hash = hex::encode(proof::sha256(canonical.as_bytes()));
    let to_sign = format!("{ALGORITHM}\n{time}\n{scope}\n{hash}");
    let key = signing_key(credentials, &day, request.region, request.service);
    let signature = hex::encode(sign(&key, to_sign.as_bytes()));
    Zeroizing::new(format!(
        "https://{}{}?{}&X-Amz-Signature={signature}",
        request.host, request.path, *query
    ))
}

/// POST request with a JSON body to sign.
pub(super) struct Post<'a> {
    pub host: &'a str,
    pub content_type: &'a str,
    /// Operation of the service, as in `x-amz-target`.
    pub target: &'a str,
    pub body: &'a [u8],
    pub region: &'a str,
    pub service: &'a str,
}

/// Returns the headers of a signed request to the path `/`, without `host`.
pub(super) fn signed_headers(
    request: &Post<'_>,
    credentials: &Credentials,
    now: DateTime<Utc>,
) -> Vec<(&'static str, Zeroizing<String>)> {
    let (day, time) = (now.format("%Y%m%d").to_string(), now.format("%Y%m%dT%H%M%SZ").to_string());
    let scope = format!("{day}/{}/{}/aws4_request", request.region, request.service);
    let own = |text: &str| Zeroizing::new(text.to_owned());
    // Sorted by name.
    let mut headers = vec![
        ("content-type", own(request.content_type)),
        ("host", own(request.host)),
        ("x-amz-date", own(&time)),
    ];
    headers.extend(credentials.session_token.iter().map(|t| ("x-amz-security-token", own(t))));
    headers.push(("x-amz-target", own(request.target)));
    let names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
    let names = names.join(";");
    let lines = headers.iter().map(|(name, value)| format!("{name}:{}\n", value.as_str()));
    let lines = Zeroizing::new(lines.collect::<String>());
    let body = hex::encode(proof::sha256(request.body));
    let canonical = Zeroizing::new(format!("POST\n/\n\n{}\n{names}\n{body}", *lines));
    let hash = hex::encode(proof::sha256(canonical.as_bytes()));
    let to_sign = format!("{ALGORITHM}\n{time}\n{scope}\n{hash}");
    let key = signing_key(credentials, &day, request.region, request.service);
    let signature = hex::encode(sign(&key, to_sign.as_bytes()));
    let authorization = format!(
        "{ALGORITHM} Credential={}/{scope}, SignedHeaders={names}, Signature={signature}",
        credentials.access_key_id
    );
    headers.retain(|(name, _)| *name != "host");
    headers.push(("authorization", Zeroizing::new(authorization)));
    headers
}

fn signing_key(
    credentials: &Credentials,
    day: &str,
    region: &str,
    service: &str,
) -> Zeroizing<Vec<u8>> {
    let first = Zeroizing::new(format!("AWS4{}", credentials.secret_access_key.as_str()));
    let key = Zeroizing::new(first.as_bytes().to_vec());
    [day, region, service, "aws4_request"]
        .iter()
        .fold(key, |key, part| Zeroizing::new(sign(&key, part.as_bytes())))
}

fn sign(key: &[u8], message: &[u8]) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    hmac::sign(&key, message).as_ref().to_vec()
}

/// Encodes a name or a value of a query, as the canonical request requires.
pub(super) fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials(id: &str, secret: &str) -> Credentials {
        Credentials {
            access_key_id: id.into(),
            secret_access_key: Zeroizing::new(secret.into()),
            session_token: None,
            expires: None,
        }
    }

    /// Example "Deriving a signing key" of the documentation of AWS.
    #[test]
    fn the_signing_key_is_that_of_the_documentation() {
        let own = credentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY");
        assert_eq!(
            hex::encode(signing_key(&own, "20150830", "us-east-1", "iam")),
            "c4afb1cc5771d871763a393e44b703571b55cc28424d1a5e86da6ed3c154a4b9"
        );
    }

    /// Example "Authenticating requests: using query parameters" of the documentation of Amazon S3.
    #[test]
    fn a_presigned_url_is_that_of_the_documentation() {
        let own = credentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY");
        let request = Request {
            host: "examplebucket.s3.amazonaws.com",
            path: "/test.txt",
            query: &[],
            headers: &[],
            payload: "UNSIGNED-PAYLOAD",
            region: "us-east-1",
            service: "s3",
            expires_s: 86_400,
        };
        let now = "2013-05-24T00:00:00Z".parse().unwrap();
        assert_eq!(
            presigned(&request, &own, now).as_str(),
            "https://examplebucket.s3.amazonaws.com/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256\
             &X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request\
             &X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host\
             &X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
        );
    }
}
