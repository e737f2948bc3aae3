//! Idempotency keys: a repeated change is made once.
use reqwest::StatusCode;
use schemas::control::installs::EnrolmentIssued;
use serde_json::{Value, json};

use super::{owner, reactions::wait_for, with_install};
use crate::server::testing::Started;

async fn send(started: &Started, path: &str, key: &str, body: &Value) -> (StatusCode, Value) {
    let request = started.http.post(started.control(path)).bearer_auth(started.owner_token());
    let response = request.header("idempotency-key", key).json(body).send().await.unwrap();
    (response.status(), response.json().await.unwrap())
}

#[tokio::test]
async fn repeated_key_returns_the_same_response_without_secrets() {
    let (started, _, _) = with_install().await;
    let body = json!({"app": "shop", "name": "beta", "inputs": {"size": "1"}});
    let (status, first) = send(&started, "/v1/installs", "k1", &body).await;
    assert_eq!(status, 200, "{first}");
    let (status, second) = send(&started, "/v1/installs", "k1", &body).await;
    assert_eq!(status, 200, "{second}");
    assert_eq!((&first["id"], &first["position"]), (&second["id"], &second["position"]));
    assert!(first.get("enrolment").is_some() && second.get("enrolment").is_none());
    assert_eq!(owner(&started).installs(&Default::default()).await.unwrap().items.len(), 2);
    let stored = "select string_agg(response::text, '') from log_command";
    let stored: String = sqlx::query_scalar(stored).fetch_one(&started.app().pool).await.unwrap();
    let secret = first["enrolment"]["token"].as_str().unwrap();
    assert!(!stored.contains(secret));
}

#[tokio::test]
async fn key_belongs_to_one_request_and_concurrent_repeats_run_once() {
    let (started, _, _) = with_install().await;
    let body = json!({"app": "shop", "name": "beta", "inputs": {"size": "1"}});
    let other = json!({"app": "shop", "name": "gamma", "inputs": {"size": "1"}});
    let all =
        futures::future::join_all((0..4).map(|_| send(&started, "/v1/installs", "k1", &body)));
    let all = all.await;
    assert!(all.iter().all(|(status, _)| *status == 200), "{all:?}");
    let ids: std::collections::BTreeSet<_> = all.iter().map(|(_, v)| v["id"].to_string()).collect();
    assert_eq!(ids.len(), 1, "{all:?}");
    assert_eq!(owner(&started).installs(&Default::default()).await.unwrap().items.len(), 2);
    let (status, rejection) = send(&started, "/v1/installs", "k1", &other).await;
    assert_eq!((status.as_u16(), &rejection["code"]), (422, &json!("idempotency_mismatch")));
    let (status, _) = send(&started, "/v1/installs", &"k".repeat(129), &other).await;
    assert_eq!(status, 400);
}

#[tokio::test]
async fn lost_response_is_recovered_from_the_log() {
    let (started, _, created) = with_install().await;
    let install = json!({"app": "shop", "name": "beta", "inputs": {"size": "1"}});
    let change = json!({"auto_approve": true});
    let token = json!({"role": "viewer", "expires_in_s": 3600});
    let enrolment = "/v1/installs/acme/enrolment-tokens".to_owned();
    let patch = async |key: &str| {
        let request = started.http.patch(started.control("/v1/installs/acme"));
        let request = request.bearer_auth(started.owner_token()).header("idempotency-key", key);
        let response = request.json(&change).send().await.unwrap();
        (response.status(), response.json::<Value>().await.unwrap())
    };
    let forget = "update log_command set response = null";
    for (key, path, body) in [
        ("k1", "/v1/installs".to_owned(), &install),
        ("k2", "/v1/tokens".to_owned(), &token),
        ("k3", enrolment, &json!({})),
    ] {
        let (_, mut first) = send(&started, &path, key, body).await;
        wait_until_stored(&started, key).await;
        sqlx::query(forget).execute(&started.app().pool).await.unwrap();
        let (status, again) = send(&started, &path, key, body).await;
        assert_eq!(status, 200, "{again}");
        for secret in ["token", "enrolment"] {
            first.as_object_mut().unwrap().remove(secret);
        }
        for (name, value) in first.as_object().unwrap() {
            assert_eq!(&again[name], value, "{path} {name}");
        }
    }
    let (_, first) = patch("k4").await;
    wait_until_stored(&started, "k4").await;
    sqlx::query(forget).execute(&started.app().pool).await.unwrap();
    assert_eq!(patch("k4").await.1, first);
    assert_eq!(first["id"], json!(created.id));
}

#[tokio::test]
async fn disconnect_does_not_separate_change_and_response() {
    let (started, _, _) = with_install().await;
    for wait in 0..12_u64 {
        let (name, key) = (format!("gone{wait}"), format!("k{wait}"));
        let body = json!({"app": "shop", "name": name, "inputs": {"size": "1"}});
        let timeout = std::time::Duration::from_millis(wait * 3);
        let _gone =
            tokio::time::timeout(timeout, send(&started, "/v1/installs", &key, &body)).await;
        let (status, again) = send(&started, "/v1/installs", &key, &body).await;
        assert_eq!((status.as_u16(), &again["name"]), (200, &json!(name)), "{again}");
    }
    for wait in 0..12 {
        wait_until_stored(&started, &format!("k{wait}")).await;
    }
}

async fn wait_until_stored(started: &Started, key: &str) {
    wait_for(async || {
        let stored = "select response is not null from log_command where idempotency_key = $1";
        let stored = sqlx::query_scalar::<_, bool>(stored).bind(key).fetch_one(&started.app().pool);
        stored.await.unwrap().then_some(())
    })
    .await;
}

#[tokio::test]
async fn expired_key_is_reusable_and_replayed_enrolment_has_no_token() {
    let (started, _, _) = with_install().await;
    let path = "/v1/installs/acme/enrolment-tokens";
    let (_, first) = send(&started, path, "k1", &json!({})).await;
    let (_, again) = send(&started, path, "k1", &json!({})).await;
    let read = |response: Value| serde_json::from_value::<EnrolmentIssued>(response).unwrap();
    assert!(read(first.clone()).enrolment.is_some());
    assert_eq!(read(again).enrolment, None);
    let expire = "update log_command set expires_at = now() - interval '1 second'";
    sqlx::query(expire).execute(&started.app().pool).await.unwrap();
    let body = json!({"app": "shop", "name": "beta", "inputs": {"size": "1"}});
    let (status, other) = send(&started, "/v1/installs", "k1", &body).await;
    assert_eq!(status, 200, "{other}");
}
