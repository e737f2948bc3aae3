//! Tests of replacing the identity key.
use axum::http::Method;
use domain::{
    actor::Actor,
    ids::SessionId,
    job::{JobClass, JobKind},
    runner::{Runner, RunnerCommand},
};
use ed25519_dalek::SigningKey;
use schemas::token::{AUD_REKEY, AUD_TOKEN, RekeyAssertion, sign};
use serde_json::{Value, json};
use ulid::Ulid;

use super::world::{Agent, TestResponse, World};

fn key() -> SigningKey {
    SigningKey::generate(&mut rand::rngs::OsRng)
}

fn public(key: &SigningKey) -> String {
    hex::encode(key.verifying_key().as_bytes())
}

fn claims(world: &World, agent: &Agent, new: &SigningKey) -> RekeyAssertion {
    let iat = world.app.now().timestamp();
    let (sub, aud) = (agent.id, AUD_REKEY.to_string());
    RekeyAssertion { sub, aud, iat, exp: iat + 60, identity_key: public(new) }
}

fn rekey_body(claims: &RekeyAssertion, former: &SigningKey, new: &SigningKey) -> Value {
    json!({"assertion": sign(claims, former).unwrap(), "proof": sign(claims, new).unwrap()})
}

async fn rekey(world: &World, body: &Value) -> TestResponse {
    world.call(Method::POST, "/runner/v1/rekey", "", body).await
}

/// Replaces the runner's key at this server. Returns the new key.
pub(super) async fn rekeyed(world: &World, agent: &Agent) -> SigningKey {
    let new = key();
    rekey(world, &rekey_body(&claims(world, agent, &new), &agent.key, &new)).await.ok();
    new
}

async fn keys_of(world: &World, agent: &Agent) -> usize {
    let events = world.events("runner", agent.id).await;
    events.iter().filter(|event| event.event_type == "runner.rekeyed").count()
}

#[tokio::test]
async fn new_key_replaces_the_former_one() {
    // given a runner with a session
    let world = World::new().await;
    let (mut agent, install) = world.agent().await;
    world.open(&mut agent, "j", json!([])).await;
    let (former, new) = (agent.key.clone(), key());
    // when it registers a new key, and repeats the request because the response was lost
    let body = rekey_body(&claims(&world, &agent, &new), &former, &new);
    let response = rekey(&world, &body).await.ok();
    assert_eq!(
        (&response["identity_key"], &response["runner"]),
        (&json!(public(&new)), &json!(agent.id))
    );
    rekey(&world, &body).await.ok();
    // and again with a new assertion
    rekey(&world, &rekey_body(&claims(&world, &agent, &new), &former, &new)).await.ok();
    assert_eq!(keys_of(&world, &agent).await, 1);
    // then the former key gets no token and opens no session, but the new one does
    let token = json!({"assertion": world.assertion(agent.id, &former)});
    let path = "/runner/v1/token";
    world.call(Method::POST, path, "", &token).await.rejected(401, "assertion_invalid");
    let opening = world.opening(&agent, SessionId(Ulid::new()), ("boot", "j"));
    world.open_with(&opening, json!([])).await.rejected(401, "assertion_invalid");
    agent.key = new.clone();
    world.token(agent.id, &agent.key).await;
    // and later grants name the new key
    let job = world.queue(install, JobKind::Plan, JobClass::Pure).await;
    let claimed = world.claim(&agent, job, "c1").await.ok();
    let grant = claimed["grant"]["payload"].as_str().unwrap();
    let grant = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, grant).unwrap();
    let grant: Value = serde_json::from_slice(&grant).unwrap();
    assert_eq!(grant["runner_key"], json!(public(&new)));
}

#[tokio::test]
async fn rekey_requires_assertions_by_both_keys() {
    let world = World::new().await;
    let (agent, _) = world.agent().await;
    let (new, thief) = (key(), key());
    let assertion = claims(&world, &agent, &new);
    let rejection = async |body: Value| {
        rekey(&world, &body).await.rejected(401, "assertion_invalid");
    };
    rejection(rekey_body(&assertion, &thief, &new)).await;
    rejection(rekey_body(&assertion, &agent.key, &thief)).await;
    rejection(rekey_body(&assertion, &new, &new)).await;
    // Two assertions that differ, and one for another purpose.
    let other = claims(&world, &agent, &thief);
    rejection(json!({"assertion": sign(&other, &agent.key).unwrap(), "proof": sign(&assertion, &new).unwrap()}))
        .await;
    rejection(rekey_body(
        &RekeyAssertion { aud: AUD_TOKEN.into(), ..assertion.clone() },
        &agent.key,
        &new,
    ))
    .await;
    rejection(json!({"assertion": "rubbish", "proof": "rubbish"})).await;
    let old = RekeyAssertion {
        iat: assertion.iat - 3600,
        exp: assertion.iat - 3540,
        ..assertion.clone()
    };
    rekey(&world, &rekey_body(&old, &agent.key, &new)).await.rejected(401, "clock_skew");
    // An assertion of one runner is not valid for another.
    let (another, _) = world.agent().await;
    rejection(rekey_body(
        &RekeyAssertion { sub: another.id, ..assertion.clone() },
        &agent.key,
        &new,
    ))
    .await;
    assert_eq!(keys_of(&world, &agent).await + keys_of(&world, &another).await, 0);
    world.token(agent.id, &agent.key).await;
}

#[tokio::test]
async fn replayed_rekey_does_not_restore_a_former_key() {
    let world = World::new().await;
    let (agent, _) = world.agent().await;
    let (first, second, third) = (agent.key.clone(), key(), key());
    let to_second = rekey_body(&claims(&world, &agent, &second), &first, &second);
    rekey(&world, &to_second).await.ok();
    rekey(&world, &rekey_body(&claims(&world, &agent, &third), &second, &third)).await.ok();
    rekey(&world, &to_second).await.rejected(401, "assertion_invalid");
    let back = rekey_body(&claims(&world, &agent, &first), &third, &first);
    rekey(&world, &back).await.rejected(409, "rejected");
    world.token(agent.id, &third).await;
}

async fn handle(world: &World, agent: &Agent, command: RunnerCommand) {
    let (call, id) = (&World::system(), agent.id);
    let handled = world
        .app
        .engine
        .transact(call, move |unit| Box::pin(unit.handle::<Runner>(id, command.clone())));
    handled.await.unwrap();
}

#[tokio::test]
async fn requested_rekey_is_sent_until_it_is_done() {
    let world = World::new().await;
    let (mut agent, _) = world.agent().await;
    world.open(&mut agent, "j", json!([])).await;
    let order = RunnerCommand::RequestRekey { by: Actor::System, reason: Some("audit".into()) };
    let (polled, ()) = tokio::join!(world.poll(&agent, 20, json!({})), async {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        handle(&world, &agent, order).await;
    });
    let directive = polled.ok()["directives"][0].clone();
    assert_eq!(directive["type"], "rekey");
    let ack = json!({"ack": [directive["id"]]});
    assert_eq!(world.poll(&agent, 0, ack).await.status.as_u16(), 204);
    // An agent that was killed before it replaced the key gets the directive again, even after a
    // restart of the server.
    let world = world.restart().await;
    world.open(&mut agent, "j", json!([])).await;
    let again = world.poll(&agent, 0, json!({})).await.ok();
    assert_eq!(again["directives"][0]["type"], "rekey");
    let new = key();
    rekey(&world, &rekey_body(&claims(&world, &agent, &new), &agent.key, &new)).await.ok();
    agent.key = new;
    world.open(&mut agent, "j", json!([])).await;
    assert_eq!(world.poll(&agent, 0, json!({})).await.status.as_u16(), 204);
}

#[tokio::test]
async fn revoked_runner_gets_no_new_key() {
    let world = World::new().await;
    let (agent, _) = world.agent().await;
    handle(&world, &agent, RunnerCommand::Revoke { by: Actor::System, reason: "stolen".into() })
        .await;
    let new = key();
    let body = rekey_body(&claims(&world, &agent, &new), &agent.key, &new);
    rekey(&world, &body).await.rejected(403, "runner_revoked");
}
