//! The client on its worst days.
use super::{scripted::scripted, *};

async fn get(client: &Client) -> Result<Answer<serde_json::Value>, Refused> {
    client.send(&Ask::new(Method::GET, "/x")).await
}

#[tokio::test]
async fn whatever_is_not_a_clear_answer_is_asked_again() {
    let answers = vec![
        "200 OK\r\ncontent-type: text/html|<html>Please log in</html>",
        "404 Not Found|<html>nginx</html>",
        "502 Bad Gateway|<html>nginx</html>",
        "503 Service Unavailable|{\"code\":\"shutting_down\"}",
        "",
        "408 Request Timeout|",
        "200 OK|{\"ok\":true}",
    ];
    let (client, asked) = scripted(answers).await;
    let answer = get(&client).await.unwrap();
    assert_eq!(answer.body.unwrap()["ok"], true);
    assert_eq!(asked.lock().unwrap().len(), 7);
}

#[tokio::test]
async fn a_refusal_that_says_its_code_is_final() {
    let answers =
        vec!["412 Precondition Failed|{\"code\":\"stale_execution\",\"job_state\":\"lost\"}"];
    let (client, asked) = scripted(answers).await;
    let refused = get(&client).await.unwrap_err();
    assert_eq!((refused.status, refused.code()), (412, "stale_execution"));
    assert_eq!(refused.problem.more["job_state"], "lost");
    assert_eq!(asked.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn the_server_says_when_to_come_back_and_how_much_it_has() {
    let answers = vec![
        "429 Too Many Requests\r\nretry-after: 1|{}",
        "416 Range Not Satisfiable\r\nrange: bytes=0-99|{\"code\":\"log_gap\"}",
    ];
    let (client, _) = scripted(answers).await;
    let begun = std::time::Instant::now();
    let refused = get(&client).await.unwrap_err();
    assert!(begun.elapsed() >= Duration::from_secs(1));
    assert_eq!(refused.have, Some(100));
}

#[tokio::test]
async fn a_stale_token_is_renewed_once() {
    let token = "200 OK|{\"access_token\":\"T1\",\"expires_in_s\":900,\"server_time\":\"2026-11-21T00:00:00Z\"}";
    let stale = "401 Unauthorized|{\"code\":\"token_expired\"}";
    let again = "200 OK|{\"access_token\":\"T2\",\"expires_in_s\":900,\"server_time\":\"2026-11-21T00:00:00Z\"}";
    let (client, asked) = scripted(vec![token, stale, again, stale]).await;
    let identity = ed25519_dalek::SigningKey::from_bytes(&[1; 32]);
    let runner = "rnr_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap();
    let client = client.with_tokens(Tokens::new(runner, identity));
    assert_eq!(get(&client).await.unwrap_err().status, 401);
    let asked = asked.lock().unwrap();
    let lines: Vec<_> = asked.iter().map(|text| text.lines().next().unwrap()).collect();
    assert_eq!(lines[0], "POST /runner/v1/token HTTP/1.1");
    assert_eq!(lines[2], lines[0]);
    assert!(asked[1].contains("Bearer T1") && asked[3].contains("Bearer T2"));
}
