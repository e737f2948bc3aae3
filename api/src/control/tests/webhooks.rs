//! Webhooks: their settings, and messages to a receiver in this process.
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU16, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::post,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use chrono::TimeDelta;
use cli::client::Client;
use domain::{
    actor::Actor,
    ids::{InstallId, RunId, StepId},
    run::{Cause, Request, Run, RunKind},
};
use event_log::Meta;
use hmac::{Hmac, Mac as _};
use schemas::control::webhooks::{
    ConfigureWebhook, DeliveriesQuery, ReplayDeliveries, WebhookDelivery, WebhookFormat,
};
use serde_json::Value;
use sha2::Sha256;
use ulid::Ulid;

use super::{principal_names::until_approval, rejection, with_install};
use crate::{execute::Call, server::testing::Started, webhooks};

const APPROVALS: &str = "run.approval_requested";

/// Received request.
#[derive(Debug, Clone)]
struct Received {
    headers: BTreeMap<String, String>,
    body: String,
}

impl Received {
    fn id(&self) -> &str {
        &self.headers["webhook-id"]
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// Returns true if one of the signatures was made with this secret.
    fn is_signed_by(&self, secret: &str) -> bool {
        let key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
        let mut mac = Hmac::<Sha256>::new_from_slice(&key).unwrap();
        let (id, time) = (self.id(), &self.headers["webhook-timestamp"]);
        mac.update(format!("{id}.{time}.{}", self.body).as_bytes());
        let expected = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
        self.headers["webhook-signature"].split(' ').any(|signature| signature == expected)
    }
}

/// Endpoint on a loopback port.
#[derive(Clone)]
struct Receiver {
    url: String,
    status: Arc<AtomicU16>,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Receiver {
    async fn start() -> Receiver {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/T0/secret-path", listener.local_addr().unwrap());
        let (status, received) = (Arc::new(AtomicU16::new(204)), Arc::default());
        let receiver = Receiver { url, status, received };
        let routes =
            Router::new().route("/T0/secret-path", post(receive)).with_state(receiver.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        receiver
    }

    fn respond(&self, status: u16) {
        self.status.store(status, Ordering::SeqCst);
    }

    fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    /// Waits for this number of requests.
    async fn wait_for(&self, count: usize) -> Vec<Received> {
        for _ in 0..400 {
            if self.received().len() >= count {
                return self.received();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("only {} of {count} requests", self.received().len());
    }
}

async fn receive(State(receiver): State<Receiver>, headers: HeaderMap, body: String) -> StatusCode {
    let text = |value: &axum::http::HeaderValue| value.to_str().unwrap().to_owned();
    let headers = headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
    receiver.received.lock().unwrap().push(Received { headers, body });
    StatusCode::from_u16(receiver.status.load(Ordering::SeqCst)).unwrap()
}

fn settings(url: Option<&str>, topics: &[&str]) -> ConfigureWebhook {
    ConfigureWebhook {
        url: url.map(str::to_owned),
        topics: topics.iter().map(ToString::to_string).collect(),
        format: WebhookFormat::Standard,
        rotate_secret: false,
    }
}

async fn request_approval(started: &Started, install: InstallId) -> String {
    let (run, step) = (RunId(Ulid::new()), StepId(Ulid::new()));
    let request = Request {
        install,
        kind: RunKind::Upgrade,
        cause: Cause::Requested,
        by: Actor::System,
        config_version: 1,
        reason: None,
        plan_all: false,
    };
    let expires_at = started.app().now() + TimeDelta::days(7);
    let call = Call::of(Meta::new(Actor::System, Ulid::new().to_string()));
    let done = started.app().engine.transact(&call, move |unit| {
        let commands = until_approval(request.clone(), step, expires_at);
        Box::pin(async move {
            for command in commands {
                unit.handle::<Run>(run, command).await?;
            }
            Ok(())
        })
    });
    done.await.unwrap();
    run.to_string()
}

async fn deliveries(client: &Client, name: &str) -> Vec<WebhookDelivery> {
    client.webhook_deliveries(name, &DeliveriesQuery::default()).await.unwrap().items
}

/// Waits until the newest delivery has this state.
async fn wait_for_state(client: &Client, name: &str, state: &str) -> WebhookDelivery {
    for _ in 0..400 {
        let newest = deliveries(client, name).await.into_iter().next();
        if let Some(newest) = newest.filter(|newest| newest.state == state) {
            return newest;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("no delivery is {state}: {:?}", deliveries(client, name).await);
}

#[tokio::test]
async fn a_webhook_gets_signed_messages_about_later_events_on_its_topics() {
    let (started, owner, created) = with_install().await;
    let receiver = Receiver::start().await;
    request_approval(&started, created.id).await;
    let body = settings(Some(&receiver.url), &[APPROVALS]);
    let configured = owner.configure_webhook("ops", &body).await.unwrap();
    let secret = configured.secret.unwrap();
    let again = owner.configure_webhook("ops", &body).await.unwrap();
    assert_eq!((again.changed, again.secret), (false, None));

    let run = request_approval(&started, created.id).await;
    let received = receiver.wait_for(1).await;
    let message = received[0].json();
    assert_eq!(message["type"], APPROVALS);
    assert_eq!(message["data"]["run"], run, "events before the webhook are not sent");
    assert_eq!(message["data"]["install"]["id"], created.id.to_string());
    assert_eq!(message["data"]["component"], "base");
    let url = message["data"]["url"].as_str().unwrap();
    assert!(url.ends_with(&format!("/ui/runs/{run}")), "{url}");
    assert!(received[0].is_signed_by(&secret));
    assert!(!received[0].is_signed_by("whsec_c2VjcmV0"));
    let delivery = wait_for_state(&owner, "ops", "delivered").await;
    assert_eq!((delivery.attempts, delivery.status), (1, Some(204)));

    // Another topic: the webhook gets no messages about approvals any more.
    owner.configure_webhook("ops", &settings(None, &["runner.disconnected"])).await.unwrap();
    request_approval(&started, created.id).await;
    owner.configure_webhook("ops", &settings(None, &[APPROVALS])).await.unwrap();
    let last = request_approval(&started, created.id).await;
    let received = receiver.wait_for(2).await;
    assert_eq!(received[1].json()["data"]["run"], last);
    assert!(received[1].is_signed_by(&secret), "a change of topics keeps URL and secret");
}

#[tokio::test]
async fn a_failed_delivery_is_repeated_and_can_be_replayed() {
    let (started, owner, created) = with_install().await;
    let receiver = Receiver::start().await;
    receiver.respond(500);
    let body = settings(Some(&receiver.url), &[APPROVALS]);
    owner.configure_webhook("ops", &body).await.unwrap();
    request_approval(&started, created.id).await;
    let first = receiver.wait_for(1).await;
    let pending = wait_for_state(&owner, "ops", "pending").await;
    assert!(pending.next_attempt_at.is_some());
    receiver.respond(200);
    // The first wait has five seconds.
    let second = receiver.wait_for(2).await;
    assert_eq!(second[1].id(), first[0].id(), "a repeated message keeps its id");
    let delivered = wait_for_state(&owner, "ops", "delivered").await;
    assert_eq!(delivered.attempts, 2);

    let everything = ReplayDeliveries::default();
    assert_eq!(owner.replay_webhook("ops", &everything).await.unwrap().deliveries, 1);
    let third = receiver.wait_for(3).await;
    assert_eq!(third[2].id(), first[0].id());
    wait_for_state(&owner, "ops", "delivered").await;
    let failed = ReplayDeliveries { state: Some("failed".into()), ..everything };
    assert_eq!(owner.replay_webhook("ops", &failed).await.unwrap().deliveries, 0);

    // An endpoint that is gone gets no further attempt.
    receiver.respond(410);
    request_approval(&started, created.id).await;
    receiver.wait_for(4).await;
    let gone = wait_for_state(&owner, "ops", "failed").await;
    assert_eq!((gone.attempts, gone.status), (1, Some(410)));
}

#[tokio::test]
async fn both_secrets_sign_after_a_rotation() {
    let (started, owner, created) = with_install().await;
    let receiver = Receiver::start().await;
    let body = settings(Some(&receiver.url), &[APPROVALS]);
    let former = owner.configure_webhook("ops", &body).await.unwrap().secret.unwrap();
    let rotate = ConfigureWebhook { rotate_secret: true, ..settings(None, &[APPROVALS]) };
    let current = owner.configure_webhook("ops", &rotate).await.unwrap().secret.unwrap();
    assert_ne!(former, current);
    request_approval(&started, created.id).await;
    let received = receiver.wait_for(1).await;
    assert!(received[0].is_signed_by(&former) && received[0].is_signed_by(&current));
}

#[tokio::test]
async fn a_message_for_slack_has_a_text_with_a_link() {
    let (started, owner, created) = with_install().await;
    let receiver = Receiver::start().await;
    let slack = ConfigureWebhook {
        format: WebhookFormat::Slack,
        ..settings(Some(&receiver.url), &[APPROVALS])
    };
    owner.configure_webhook("chat", &slack).await.unwrap();
    let run = request_approval(&started, created.id).await;
    let received = receiver.wait_for(1).await;
    let text = received[0].json()["text"].as_str().unwrap().to_owned();
    assert!(text.starts_with("Approval requested: <http"), "{text}");
    assert!(text.contains(&format!("/ui/runs/{run}|base in upgrade of ")), "{text}");
}

#[tokio::test]
async fn a_deleted_webhook_gets_nothing_and_its_name_can_be_used_again() {
    let (started, owner, created) = with_install().await;
    let receiver = Receiver::start().await;
    receiver.respond(500);
    let body = settings(Some(&receiver.url), &[APPROVALS]);
    let former = owner.configure_webhook("ops", &body).await.unwrap().secret.unwrap();
    request_approval(&started, created.id).await;
    receiver.wait_for(1).await;
    owner.delete_webhook("ops").await.unwrap();
    assert_eq!(rejection(owner.webhook("ops").await), (404, "not_found".into()));
    assert_eq!(rejection(owner.delete_webhook("ops").await), (404, "not_found".into()));
    receiver.respond(200);
    let new = owner.configure_webhook("ops", &body).await.unwrap().secret.unwrap();
    let run = request_approval(&started, created.id).await;
    let received = receiver.wait_for(2).await;
    assert_eq!(received[1].json()["data"]["run"], run, "the pending message was deleted");
    assert!(received[1].is_signed_by(&new) && !received[1].is_signed_by(&former));
}

#[tokio::test]
async fn a_test_message_shows_the_response_of_the_endpoint() {
    let (_started, owner, _) = with_install().await;
    let receiver = Receiver::start().await;
    owner.configure_webhook("ops", &settings(Some(&receiver.url), &[APPROVALS])).await.unwrap();
    let tested = owner.test_webhook("ops").await.unwrap();
    assert_eq!((tested.delivered, tested.status), (true, Some(204)));
    assert_eq!(receiver.received()[0].json()["type"], "webhook.test");
    receiver.respond(403);
    let refused = owner.test_webhook("ops").await.unwrap();
    assert_eq!((refused.delivered, refused.status), (false, Some(403)));
    let unused_port = settings(Some("http://127.0.0.1:9/secret-path"), &[APPROVALS]);
    owner.configure_webhook("down", &unused_port).await.unwrap();
    let unreachable = owner.test_webhook("down").await.unwrap();
    let error = unreachable.error.unwrap();
    assert!(
        !unreachable.delivered && error.starts_with("cannot connect to the endpoint"),
        "{error}"
    );
    assert!(!error.contains("secret-path"), "{error}");
}

#[tokio::test]
async fn invalid_settings_are_rejected_and_change_nothing() {
    let (started, owner, _) = with_install().await;
    let url = Some("https://hooks.example.com/x");
    for (name, body, part) in [
        ("ops", settings(None, &[APPROVALS]), "url is missing"),
        ("ops", settings(url, &[]), "it has no topics"),
        ("ops", settings(url, &["run.started"]), "is not a topic: use one of"),
        ("ops", settings(Some("ftp://a"), &[APPROVALS]), "the scheme ftp is not supported"),
        ("Ops", settings(url, &[APPROVALS]), "is not a valid name of a webhook"),
    ] {
        let error = owner.configure_webhook(name, &body).await.unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(rejection(owner.test_webhook("ops").await), (404, "not_found".into()));
    let none = sqlx::query_scalar::<_, i64>("select count(*) from webhook_endpoint");
    assert_eq!(none.fetch_one(&started.app().pool).await.unwrap(), 0);
}

#[tokio::test]
async fn neither_the_url_nor_the_secret_is_in_the_log_or_in_a_response() {
    let (started, owner, _) = with_install().await;
    let receiver = Receiver::start().await;
    let body = settings(Some(&receiver.url), &[APPROVALS]);
    let secret = owner.configure_webhook("ops", &body).await.unwrap().secret.unwrap();
    let secret = secret.strip_prefix("whsec_").unwrap().to_owned();
    let payloads: Vec<String> = sqlx::query_scalar("select payload::text from log_event")
        .fetch_all(&started.app().pool)
        .await
        .unwrap();
    let responses: Vec<String> = sqlx::query_scalar("select r::text from log_command r")
        .fetch_all(&started.app().pool)
        .await
        .unwrap();
    let shown = serde_json::to_string(&owner.webhook("ops").await.unwrap()).unwrap();
    let all: BTreeSet<String> = payloads.into_iter().chain(responses).chain([shown]).collect();
    assert!(all.iter().any(|text| text.contains("127.0.0.1")), "the origin is recorded");
    for text in all {
        assert!(!text.contains("secret-path") && !text.contains(&secret), "{text}");
    }
}

#[tokio::test]
async fn an_attempt_with_an_unknown_result_is_repeated_after_its_lease() {
    let (started, owner, created) = with_install().await;
    let receiver = Receiver::start().await;
    receiver.respond(500);
    owner.configure_webhook("ops", &settings(Some(&receiver.url), &[APPROVALS])).await.unwrap();
    request_approval(&started, created.id).await;
    receiver.wait_for(1).await;
    wait_for_state(&owner, "ops", "pending").await;
    let (pool, now) = (&started.app().pool, started.app().now());
    let later = now + TimeDelta::seconds(20);
    let claimed = webhooks::claim_due(pool, later, 10).await.unwrap();
    assert_eq!(claimed.len(), 1);
    assert!(webhooks::claim_due(pool, later, 10).await.unwrap().is_empty(), "it is claimed");
    let after = later + TimeDelta::seconds(61);
    let again = webhooks::claim_due(pool, after, 10).await.unwrap();
    assert_eq!(again[0].attempt, claimed[0].attempt + 1);
}
