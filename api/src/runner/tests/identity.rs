//! Tests of enrolment and tokens.
use axum::http::Method;
use domain::{
    actor::Actor,
    enrolment::Purpose,
    ids::{RunnerId, SessionId},
    job::{JobClass, JobKind},
    runner::{Runner, RunnerCommand},
};
use ed25519_dalek::SigningKey;
use serde_json::json;

use super::world::{Agent, World, install_keys};

fn key() -> SigningKey {
    SigningKey::generate(&mut rand::rngs::OsRng)
}

#[tokio::test]
async fn enrolling_is_one_commit_of_token_runner_and_stack() {
    let world = World::new().await;
    let (agent, install) = world.agent().await;
    let runner = world.events("runner", agent.id).await;
    let installed = world.events("install", install).await;
    let stack = installed
        .iter()
        .find(|event| event.event_type == "install.stack_outputs_reported")
        .unwrap();
    assert_eq!(runner[0].event_type, "runner.enrolled");
    assert_eq!(runner[0].commit_no, stack.commit_no);
    assert_eq!(runner[0].position, stack.position - 1);
    assert_eq!(runner[0].meta().unwrap().actor.to_string(), agent.id.to_string());
}

#[tokio::test]
async fn token_enrols_one_key_only() {
    let world = World::new().await;
    let purpose = Purpose::Install { install: world.install().await };
    let (token, ours) = (world.enrolment(purpose).await, key());
    let first = world.enrol(&token, &ours, purpose).await.ok();
    let again = world.enrol(&token, &ours, purpose).await.ok();
    assert_eq!(first["runner"], again["runner"]);
    assert_eq!(first["log_id"], world.app.engine.log().log_id());
    world.enrol(&token, &key(), purpose).await.rejected(409, "enrolment_redeemed");
}

#[tokio::test]
async fn token_is_valid_only_for_its_purpose() {
    let world = World::new().await;
    let install = Purpose::Install { install: world.install().await };
    let token = world.enrolment(install).await;
    world.enrol(&token, &key(), Purpose::Build).await.rejected(422, "invalid");
    let other = format!("{}0", &token[..token.len() - 1]);
    let other = if other == token { format!("{}1", &token[..token.len() - 1]) } else { other };
    world.enrol(&other, &key(), install).await.rejected(401, "token_unknown");
    world.enrol("rubbish", &key(), install).await.rejected(401, "token_unknown");
    world.enrolled(Purpose::Build).await;
}

#[tokio::test]
async fn assertion_is_valid_once_and_only_with_the_enrolled_key() {
    let world = World::new().await;
    let (agent, _) = world.agent().await;
    let path = "/runner/v1/token";
    let body = json!({"assertion": world.assertion(agent.id, &agent.key)});
    world.call(Method::POST, path, "", &body).await.ok();
    world.call(Method::POST, path, "", &body).await.rejected(401, "assertion_replayed");
    let forged = json!({"assertion": world.assertion(agent.id, &key())});
    world.call(Method::POST, path, "", &forged).await.rejected(401, "assertion_invalid");
}

#[tokio::test]
async fn build_runner_has_no_stack() {
    let world = World::new().await;
    let token = world.enrolment(Purpose::Build).await;
    let body = json!({"token": token, "mode": "build", "version": "1.0.0",
        "identity_key": hex::encode(key().verifying_key().as_bytes()),
        "host": {"os": "linux", "arch": "x86_64"}, "stack_outputs": {"region": "eu"}});
    let response = world.call(Method::POST, "/runner/v1/enrol", "", &body).await;
    assert_eq!(response.rejected(422, "invalid")["errors"][0]["field"], "stack_outputs");
}

pub(super) async fn revoke(world: &World, id: RunnerId) {
    let call = &World::system();
    let revoked = world.app.engine.transact(call, move |unit| {
        let revoke = RunnerCommand::Revoke { by: Actor::System, reason: "stolen".into() };
        Box::pin(unit.handle::<Runner>(id, revoke))
    });
    revoked.await.unwrap();
}

#[tokio::test]
async fn revoked_runner_can_be_replaced() {
    let world = World::new().await;
    let (agent, install) = world.agent().await;
    let purpose = Purpose::Install { install };
    let (token, new) = (world.enrolment(purpose).await, key());
    let rejection = world.enrol(&token, &new, purpose).await.rejected(409, "rejected");
    assert!(rejection["detail"].as_str().unwrap().contains("stead runners revoke"), "{rejection}");

    // The rejection did not redeem the token: it works once the first runner is revoked.
    revoke(&world, agent.id).await;
    let id = world.enrol(&token, &new, purpose).await.ok()["runner"].as_str().unwrap().parse();
    let id = id.unwrap();
    let token = world.token(id, &new).await;
    let mut second = Agent { id, token, key: new, process_id: "p".into(), session: None };
    world.open(&mut second, "j2", json!([])).await;
    let job = world.queue(install, JobKind::Plan, JobClass::Pure).await;
    world.claim(&second, job, "c1").await.ok();
    let third = world.enrolment(purpose).await;
    world.enrol(&third, &key(), purpose).await.rejected(409, "rejected");
}

#[tokio::test]
async fn revoked_runner_is_rejected_with_its_earlier_token() {
    let world = World::new().await;
    let (mut agent, _) = world.agent().await;
    world.open(&mut agent, "j", json!([])).await;
    let waiting = {
        let (poll, revoke) = (world.poll(&agent, 30, json!({})), async {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            revoke(&world, agent.id).await;
        });
        tokio::join!(poll, revoke).0
    };
    waiting.rejected(403, "runner_revoked");
    world.poll(&agent, 0, json!({})).await.rejected(403, "runner_revoked");
    let body = json!({"assertion": world.assertion(agent.id, &agent.key)});
    world.call(Method::POST, "/runner/v1/token", "", &body).await.rejected(403, "runner_revoked");
}

#[tokio::test]
async fn install_keys_need_the_signature_of_the_identity_key() {
    let world = World::new().await;
    let install = world.install().await;
    let token = world.enrolment(Purpose::Install { install }).await;
    let identity = key();
    let enrol = |keys: serde_json::Value| {
        let body = json!({"token": token, "mode": "install", "version": "1.0.0", "install_keys": keys,
            "identity_key": hex::encode(identity.verifying_key().as_bytes()),
            "host": {"os": "linux", "arch": "x86_64"}});
        let world = &world;
        async move { world.call(Method::POST, "/runner/v1/enrol", "", &body).await }
    };
    let mut changed = json!(install_keys(1, &identity));
    changed["encryption_key"] = "22".repeat(32).into();
    let mut weak = json!(install_keys(1, &identity));
    weak["signing_key"] = "zz".into();
    let none = json!(install_keys(0, &identity));
    let foreign = json!(install_keys(1, &key()));
    for keys in [serde_json::Value::Null, foreign, changed, weak, none] {
        let problem = enrol(keys).await.rejected(422, "invalid");
        assert_eq!(problem["errors"][0]["field"], "install_keys", "{problem}");
    }
    let enrolled = enrol(json!(install_keys(1, &identity))).await.ok();
    let stored = world.events("runner", enrolled["runner"].as_str().unwrap()).await;
    let event: serde_json::Value = serde_json::from_str(&stored[0].payload).unwrap();
    assert_eq!(event["install_keys"]["generation"], 1);
}

#[tokio::test]
async fn a_session_replaces_no_keys_of_the_install() {
    let world = World::new().await;
    let (agent, _) = world.agent().await;
    let open = |generation: u32, signer: SigningKey| {
        let (world, agent) = (&world, &agent);
        async move {
            let session = SessionId(ulid::Ulid::new());
            let assertion = world.opening(agent, session, ("boot", "j"));
            let body = json!({
                "assertion": assertion, "pid": 1, "version": "1.0.0", "slots": 4, "journal": [],
                "protocol": {"min": 1, "max": 1}, "capabilities": ["plan"],
                "install_keys": install_keys(generation, &signer),
            });
            world.call(Method::POST, "/runner/v1/sessions", "", &body).await
        }
    };
    open(1, agent.key.clone()).await.ok();
    open(2, key()).await.rejected(422, "invalid");
    // A thief of the host would prevent every recovery with keys of the last generation.
    for generation in [2, u32::MAX] {
        let problem = open(generation, agent.key.clone()).await.rejected(409, "rejected");
        assert!(problem["detail"].as_str().unwrap().contains("has reported others"), "{problem}");
    }
    open(1, agent.key.clone()).await.ok();
    let types: Vec<_> =
        world.events("runner", agent.id).await.into_iter().map(|e| e.event_type).collect();
    let replaced = types.iter().filter(|name| *name == "runner.install_keys_replaced").count();
    assert_eq!(replaced, 0, "{types:?}");
}
