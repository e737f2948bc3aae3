//! Tests of the client with failing servers.
use super::{scripted::scripted, *};
use crate::keys::{Dated, IdentityKey};

async fn get(client: &Client) -> Result<ApiResponse<serde_json::Value>, ServerRejection> {
    client.send(&ApiRequest::new(Method::GET, "/x")).await
}

#[tokio::test]
async fn retries_inconclusive_responses() {
    let responses = vec![
        "200 OK\r\ncontent-type: text/html|<html>Please log in</html>",
        "404 Not Found|<html>nginx</html>",
        "502 Bad Gateway|<html>nginx</html>",
        "503 Service Unavailable|{\"code\":\"shutting_down\"}",
        "",
        "408 Request Timeout|",
        "200 OK|{\"ok\":true}",
    ];
    let (client, requests) = scripted(responses).await;
    let response = get(&client).await.unwrap();
    assert_eq!(response.body.unwrap()["ok"], true);
    assert_eq!(requests.lock().unwrap().len(), 7);
}

#[tokio::test]
async fn returns_a_rejection_with_a_code() {
    let responses =
        vec!["412 Precondition Failed|{\"code\":\"stale_execution\",\"job_state\":\"lost\"}"];
    let (client, requests) = scripted(responses).await;
    let rejection = get(&client).await.unwrap_err();
    assert_eq!((rejection.status, rejection.code()), (412, "stale_execution"));
    assert_eq!(rejection.problem.more["job_state"], "lost");
    assert_eq!(requests.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn reads_retry_after_and_range() {
    let responses = vec![
        "429 Too Many Requests\r\nretry-after: 1|{}",
        "416 Range Not Satisfiable\r\nrange: bytes=0-99|{\"code\":\"log_gap\"}",
    ];
    let (client, _) = scripted(responses).await;
    let begun = std::time::Instant::now();
    let rejection = get(&client).await.unwrap_err();
    assert!(begun.elapsed() >= Duration::from_secs(1));
    assert_eq!(rejection.have, Some(100));
}

fn identity() -> IdentityKey {
    let key = ed25519_dalek::SigningKey::from_bytes(&[1; 32]);
    IdentityKey::of(Dated { key, made_at: crate::host::now() })
}

#[tokio::test]
async fn a_stale_token_is_renewed_once() {
    let token = "200 OK|{\"access_token\":\"T1\",\"expires_in_s\":900,\"server_time\":\"2026-11-21T00:00:00Z\"}";
    let stale = "401 Unauthorized|{\"code\":\"token_expired\"}";
    let again = "200 OK|{\"access_token\":\"T2\",\"expires_in_s\":900,\"server_time\":\"2026-11-21T00:00:00Z\"}";
    let (client, requests) = scripted(vec![token, stale, again, stale]).await;
    let runner = "rnr_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap();
    let client = client.with_tokens(Tokens::new(runner, identity()));
    assert_eq!(get(&client).await.unwrap_err().status, 401);
    let requests = requests.lock().unwrap();
    let lines: Vec<_> = requests.iter().map(|text| text.lines().next().unwrap()).collect();
    assert_eq!(lines[0], "POST /runner/v1/token HTTP/1.1");
    assert_eq!(lines[2], lines[0]);
    assert!(requests[1].contains("Bearer T1") && requests[3].contains("Bearer T2"));
}

fn opened(generation: u64, token: &str) -> SessionOpened {
    let session = "ses_01ARZ3NDEKTSV4RRFFQ69G5FAV";
    let opened = serde_json::json!({"session_id": session, "generation": generation,
        "access_token": token, "expires_in_s": 900, "wait_s": 1, "lease_s": 1,
        "log": {"interval_ms": 1, "chunk_bytes": 1}, "server_time": "2026-11-21T00:00:00Z"});
    serde_json::from_value(opened).unwrap()
}

#[tokio::test]
async fn retries_requests_of_an_execution_in_the_next_session() {
    // given a client that is opening a new session
    let stale = "409 Conflict|{\"code\":\"session_superseded\"}";
    let (client, requests) = scripted(vec![stale, "200 OK|{}", stale]).await;
    let runner = "rnr_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap();
    let client = client.with_tokens(Tokens::new(runner, identity()));
    client.opened(&opened(1, "T1")).await;
    // when a report is rejected because the former session was superseded
    let report =
        ApiRequest::new(Method::POST, "/x").header(HeaderName::from_static(EXECUTION), "exe_1");
    let (next, response) = (opened(2, "T2"), client.send::<serde_json::Value>(&report));
    let (response, ()) = tokio::join!(response, client.opened(&next));
    // then the client sends the report again with the token of the new session
    assert_eq!(response.unwrap().status, 200);
    {
        let requests = requests.lock().unwrap();
        assert!(requests[0].contains("Bearer T1") && requests[1].contains("Bearer T2"));
    }
    // but the client immediately returns the rejection of a request without an execution
    assert!(get(&client).await.unwrap_err().is_superseded());
}

#[tokio::test]
async fn distinguishes_an_unknown_session_from_a_superseded_one() {
    let lost = "409 Conflict|{\"code\":\"session_unknown\"}";
    let (client, requests) = scripted(vec![lost, "200 OK|{}", lost]).await;
    let runner = "rnr_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap();
    let client = client.with_tokens(Tokens::new(runner, identity()));
    client.opened(&opened(1, "T1")).await;
    // The client repeats a request of an execution in the next session. It returns the rejection of
    // a request without an execution.
    let report =
        ApiRequest::new(Method::POST, "/x").header(HeaderName::from_static(EXECUTION), "exe_1");
    assert_eq!(client.send::<serde_json::Value>(&report).await.unwrap().status, 200);
    assert_eq!(requests.lock().unwrap().len(), 2);
    let rejection = get(&client).await.unwrap_err();
    assert_eq!((rejection.code(), rejection.is_superseded()), ("session_unknown", false));
}

#[tokio::test]
async fn pentest_requests_another_token_after_an_implausible_lifetime() {
    let crafted = "200 OK|{\"access_token\":\"T1\",\"expires_in_s\":18446744073709551615,\"server_time\":\"2026-11-21T00:00:00Z\"}";
    let late = "200 OK|{\"access_token\":\"T2\",\"expires_in_s\":900,\"server_time\":\"+262142-12-31T23:59:59Z\"}";
    let good = "200 OK|{\"access_token\":\"T3\",\"expires_in_s\":900,\"server_time\":\"2026-11-21T00:00:00Z\"}";
    let (client, requests) = scripted(vec![crafted, late, good, "200 OK|{}"]).await;
    let runner = "rnr_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap();
    let client = client.with_tokens(Tokens::new(runner, identity()));
    assert_eq!(get(&client).await.unwrap().status, 200);
    assert!(requests.lock().unwrap()[3].contains("Bearer T3"));
}
