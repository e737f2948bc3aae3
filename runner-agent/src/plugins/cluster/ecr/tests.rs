use super::{super::registry_login::tests::substitute, *};

fn credentials(session_token: Option<&str>) -> Credentials {
    Credentials {
        access_key_id: "AKIDEXAMPLE".into(),
        secret_access_key: Zeroizing::new("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".into()),
        session_token: session_token.map(|token| Zeroizing::new(token.into())),
        expires: None,
    }
}

fn registry() -> EcrRegistry {
    EcrRegistry::of_host("123456789012.dkr.ecr.eu-central-1.amazonaws.com").unwrap()
}

fn now() -> DateTime<Utc> {
    "2026-11-24T09:30:00Z".parse().unwrap()
}

#[test]
fn only_hosts_of_private_registries_get_a_login() {
    assert_eq!(registry().api(), "api.ecr.eu-central-1.amazonaws.com");
    let china = EcrRegistry::of_host("123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn").unwrap();
    assert_eq!(china.api(), "api.ecr.cn-north-1.amazonaws.com.cn");
    for host in [
        "public.ecr.aws",
        "ghcr.io",
        "123456789012.dkr.ecr.eu-central-1.amazonaws.com.evil.example",
        "123456789012.dkr.ecr.evil.example/.amazonaws.com",
        "12.dkr.ecr.eu-central-1.amazonaws.com",
        "123456789012.dkr.ecr.amazonaws.com",
        "123456789012.dkr.ecr.eu-central-1.amazonaws.com:443",
    ] {
        assert_eq!(EcrRegistry::of_host(host), None, "{host}");
    }
}

/// The expected headers are those of the signer of botocore 1.34.22.
#[test]
fn a_request_is_signed_as_by_the_aws_cli() {
    for (session, names, signature) in [
        (
            None,
            "content-type;host;x-amz-date;x-amz-target",
            "4d1d9ecbaded336a1b98a50d1ac8372f54251a04def47f5efc800c1ea46d1bb2",
        ),
        (
            Some("IQoJb3JpZ2luX2VjEXAMPLE/+=token"),
            "content-type;host;x-amz-date;x-amz-security-token;x-amz-target",
            "772ad3530b35df4a3420b159a89d360e73bfe7a637cead050ca8968ea5df4f4d",
        ),
    ] {
        let headers = registry().headers(&credentials(session), now());
        let value = |name: &str| {
            let found = headers.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| value.as_str())
        };
        let expected = format!(
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20261124/eu-central-1/ecr/aws4_request, \
             SignedHeaders={names}, Signature={signature}"
        );
        assert_eq!(value("authorization"), Some(expected.as_str()));
        assert_eq!(value("x-amz-security-token"), session);
        assert_eq!(value("host"), None);
    }
}

/// Sends the request to a substitute that returns this response. Returns the request, too.
async fn login(status: &str, response: &str) -> (String, Result<Login, String>) {
    let (url, server) = substitute(status, response);
    let result = registry().request(&url, &credentials(None), now()).await;
    (server.join().unwrap(), result)
}

#[tokio::test]
async fn the_login_is_that_of_the_response() {
    // The user is AWS, and the password contains a colon.
    let answer = r#"{"authorizationData":[{"authorizationToken":"QVdTOnBhc3M6d29yZA==","expiresAt":1,"proxyEndpoint":"https://x"}]}"#;
    let (request, result) = login("200 OK", answer).await;
    let (user, password) = result.unwrap();
    assert_eq!((user.as_str(), password.as_str()), ("AWS", "pass:word"));
    assert!(request.ends_with(r#"{"registryIds":["123456789012"]}"#), "{request}");
    assert!(request.to_lowercase().contains("x-amz-target: amazonec2containerregistry"));

    let denied =
        r#"{"__type":"AccessDeniedException","message":"User AKIDEXAMPLE is not allowed"}"#;
    let (_, result) = login("400 Bad Request", denied).await;
    let why = result.unwrap_err();
    assert!(why.contains("(AccessDeniedException)") && !why.contains("AKIDEXAMPLE"), "{why}");
    assert!(why.contains("allow ecr:GetAuthorizationToken"), "{why}");

    for broken in ["{}", r#"{"authorizationData":[]}"#, "x"] {
        let (_, result) = login("200 OK", broken).await;
        assert_eq!(result.unwrap_err(), "the API of ECR returned no login");
    }
}
