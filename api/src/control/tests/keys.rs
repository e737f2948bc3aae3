//! A change that is sent twice is done once.
use reqwest::StatusCode;
use serde_json::{Value, json};

use super::{owner, with_install};
use crate::server::testing::Started;

async fn send(started: &Started, path: &str, key: &str, body: &Value) -> (StatusCode, Value) {
    let ask = started.http.post(started.control(path)).bearer_auth(started.owner_token());
    let answer = ask.header("idempotency-key", key).json(body).send().await.unwrap();
    (answer.status(), answer.json().await.unwrap())
}

#[tokio::test]
async fn the_same_key_gives_the_same_answer_without_its_secrets() {
    let (started, _, _) = with_install().await;
    let body = json!({"app": "shop", "name": "beta", "inputs": {"size": "1"}});
    let (status, first) = send(&started, "/v1/installs", "k1", &body).await;
    assert_eq!(status, 200, "{first}");
    let (status, second) = send(&started, "/v1/installs", "k1", &body).await;
    assert_eq!(status, 200, "{second}");
    assert_eq!((&first["id"], &first["position"]), (&second["id"], &second["position"]));
    assert!(first.get("enrolment").is_some() && second.get("enrolment").is_none());
    assert_eq!(owner(&started).installs(&Default::default()).await.unwrap().items.len(), 2);
    let kept = "select string_agg(answer::text, '') from log_command";
    let kept: String = sqlx::query_scalar(kept).fetch_one(&started.app().pool).await.unwrap();
    let secret = first["enrolment"]["token"].as_str().unwrap();
    assert!(!kept.contains(secret));
}

#[tokio::test]
async fn a_key_belongs_to_one_request_and_two_at_once_are_one() {
    let (started, _, _) = with_install().await;
    let body = json!({"app": "shop", "name": "beta", "inputs": {"size": "1"}});
    let other = json!({"app": "shop", "name": "gamma", "inputs": {"size": "1"}});
    let all =
        futures::future::join_all((0..4).map(|_| send(&started, "/v1/installs", "k1", &body)));
    let all = all.await;
    let ids: std::collections::BTreeSet<_> =
        all.iter().filter(|(s, _)| s.is_success()).map(|(_, v)| v["id"].to_string()).collect();
    assert_eq!(ids.len(), 1, "{all:?}");
    assert_eq!(owner(&started).installs(&Default::default()).await.unwrap().items.len(), 2);
    let (status, refused) = send(&started, "/v1/installs", "k1", &other).await;
    assert_eq!((status.as_u16(), &refused["code"]), (422, &json!("idempotency_mismatch")));
    let (status, _) = send(&started, "/v1/installs", &"k".repeat(129), &other).await;
    assert_eq!(status, 400);
}
