//! Tests of wrapped seeds, and of the enrolment of the successor of a lost host.
use base64::{Engine as _, engine::general_purpose::STANDARD};
use domain::{ids::SessionId, runner::InstallPublicKeys};
use ed25519_dalek::{Signer as _, SigningKey};
use schemas::runner::succession;

use super::{super::world::install_keys, *};
use crate::{usecases::installs, wrapped_seeds};

mod former;

const RECIPIENT: &str = "age1mz625ny4ugt7hk07qml93y7wte4hd28ftwejjy3elg3ux59jk5yqsys3dy";

fn wrapped(content: &str) -> Value {
    json!({"recipient": RECIPIENT, "generation": 1, "wrapped": content})
}

/// Opens a session with these wrapped seeds.
async fn send_seeds(world: &World, agent: &mut Agent, seeds: Value) -> TestResponse {
    let session = SessionId(Ulid::new());
    let body = json!({
        "assertion": world.opening(agent, session, ("boot", "j")), "pid": 1, "version": "1.0.0",
        "protocol": {"min": 1, "max": 1}, "slots": 4, "capabilities": ["apply"],
        "wrapped_seeds": seeds,
    });
    let opened = world.call(Method::POST, "/runner/v1/sessions", "", &body).await;
    if opened.status.is_success() {
        let opened = opened.json();
        agent.session = Some((session, opened["generation"].as_u64().unwrap()));
        agent.token = opened["access_token"].as_str().unwrap().to_owned();
    }
    opened
}

async fn offer(world: &World, token: &str) -> TestResponse {
    world.call(Method::POST, "/runner/v1/recovery", "", &json!({"token": token})).await
}

async fn offered(world: &World, token: &str) -> Vec<String> {
    let seeds = offer(world, token).await.ok()["seeds"].clone();
    let text = |seed: &Value| seed["wrapped"].as_str().unwrap().to_owned();
    seeds.as_array().unwrap().iter().map(text).collect()
}

async fn types(world: &World, stream: &str, id: impl ToString) -> Vec<String> {
    let events = world.events(stream, id).await;
    events.iter().map(|event| event.event_type.to_string()).collect()
}

#[tokio::test]
async fn the_wrapped_seeds_of_an_install_are_offered_to_a_new_host() {
    let (world, mut agent, install) = world().await;
    let token = world.enrolment(Purpose::Install { install }).await;
    assert!(offered(&world, &token).await.is_empty());
    send_seeds(&world, &mut agent, json!([wrapped("one")])).await.ok();
    send_seeds(&world, &mut agent, json!([wrapped("one")])).await.ok();
    assert_eq!(offered(&world, &token).await, ["one"]);
    send_seeds(&world, &mut agent, json!([wrapped("two")])).await.ok();
    // A session without them changes nothing.
    send_seeds(&world, &mut agent, Value::Null).await.ok();
    assert_eq!(offered(&world, &token).await, ["two"]);
    let changed = "runner.recovery_recipients_changed";
    let recorded = types(&world, "runner", agent.id).await;
    assert_eq!(recorded.iter().filter(|of| *of == changed).count(), 2, "{recorded:?}");
    // Another runner with the same keys deletes them only when it reports its own.
    revoke(&world, agent.id).await;
    let key = SigningKey::from_bytes(&[4; 32]);
    let used = world.enrolment(Purpose::Install { install }).await;
    let second = world.enrol(&used, &key, Purpose::Install { install }).await.ok();
    let id = second["runner"].as_str().unwrap().parse().unwrap();
    let access = world.token(id, &key).await;
    let mut second = Agent { id, token: access, key, ..agent };
    send_seeds(&world, &mut second, json!([])).await.ok();
    assert_eq!(offered(&world, &token).await, ["two"]);
    send_seeds(&world, &mut second, json!([wrapped("of second")])).await.ok();
    assert_eq!(offered(&world, &token).await, ["of second"]);
    // A used token gives access to nothing.
    offer(&world, &used).await.rejected(409, "enrolment_redeemed");
    // Erased with the install.
    let (id, now) = (install.to_string(), world.app.now());
    let shred = "insert into subject_key (subject, created_at, shredded_at) values ($1, $2, $2) \
                 on conflict (subject) do update set wrapped = null, shredded_at = $2";
    sqlx::query(shred).bind(&id).bind(now).execute(&world.app.pool).await.unwrap();
    let ids = [id];
    assert_eq!(wrapped_seeds::not_erased(&world.app.pool, &ids).await.unwrap(), 1);
    wrapped_seeds::erase(&world.app.pool, &ids).await.unwrap();
    send_seeds(&world, &mut second, json!([wrapped("late")])).await;
    assert_eq!(wrapped_seeds::not_erased(&world.app.pool, &ids).await.unwrap(), 0);
}

#[tokio::test]
async fn wrapped_seeds_have_limits_and_need_a_token_of_the_install() {
    let (world, mut agent, install) = world().await;
    let many: Vec<_> = (0..11).map(|_| wrapped("x")).collect();
    let large = wrapped(&"x".repeat(4097));
    let broken = json!({"recipient": "Bob", "generation": 1, "wrapped": "x"});
    for seeds in [json!(many), json!([large]), json!([broken])] {
        // The runner keeps its session, and the server what it has.
        send_seeds(&world, &mut agent, seeds).await.ok();
    }
    for token in ["rubbish", "stead_enrol_x", ""] {
        offer(&world, token).await.rejected(401, "token_unknown");
    }
    let token = world.enrolment(Purpose::Install { install }).await;
    let forged = format!("{}{}", &token[..token.len() - 4], "0000");
    offer(&world, &forged).await.rejected(401, "token_unknown");
    let build = world.enrolment(Purpose::Build).await;
    offer(&world, &build).await.rejected(422, "invalid");
    assert!(offered(&world, &token).await.is_empty());
}

/// Enrolment of a host that recovered the keys.
struct Successor {
    key: SigningKey,
    keys: InstallPublicKeys,
    body: Value,
}

impl Successor {
    /// Signs the new keys with the key of the tests' runners, or with another one.
    fn new(world: &World, install: InstallId, generation: u32, former: &SigningKey) -> Self {
        let key = SigningKey::generate(&mut rand::rngs::OsRng);
        let keys = install_keys(generation, &key);
        let signed = succession(world.app.log().log_id(), install, &keys);
        let signature = STANDARD.encode(former.sign(&signed).to_bytes());
        let body = json!({
            "mode": "install", "version": "1.0.0", "install_keys": keys,
            "identity_key": hex::encode(key.verifying_key().as_bytes()),
            "host": {"os": "linux", "arch": "x86_64"},
            "recovery": {"signature": signature, "wrapped_seeds": [wrapped("of successor")]},
        });
        Successor { key, keys, body }
    }

    async fn enrol(
        &self,
        world: &World,
        token: &str,
        former: impl ToString,
        states: &Value,
    ) -> TestResponse {
        let mut body = self.body.clone();
        body["token"] = token.into();
        body["recovery"]["former"] = former.to_string().into();
        body["recovery"]["accepted_states"] = states.clone();
        world.call(Method::POST, "/runner/v1/enrol", "", &body).await
    }
}

#[tokio::test]
async fn a_successor_excludes_the_former_runner() {
    let (world, former, install) = world().await;
    let held = run(&world, &former, install, "web").await;
    let upload = by_job(head(held.fence, 1, "one"));
    put(&world, &held.token, &upload, "one").await.ok();
    let token = world.enrolment(Purpose::Install { install }).await;
    let states = offer(&world, &token).await.ok()["states"].clone();
    assert_eq!(states["web"]["serial"], 1);

    let successor = Successor::new(&world, install, 2, &SigningKey::from_bytes(&[9; 32]));
    let enrolled = successor.enrol(&world, &token, former.id, &states).await.ok();
    // A lost response: the runner repeats the request.
    let again = successor.enrol(&world, &token, former.id, &states).await.ok();
    assert_eq!(enrolled["runner"], again["runner"]);
    let id: domain::ids::RunnerId = enrolled["runner"].as_str().unwrap().parse().unwrap();

    let installed = world.events("install", install).await;
    let recovered = installed.iter().find(|event| event.event_type == "install.recovered").unwrap();
    let payload: Value = serde_json::from_str(&recovered.payload).unwrap();
    assert_eq!(payload["former"], former.id.to_string());
    assert_eq!(payload["unproved_states"]["web"]["serial"], 1);
    let revoked = world.events("runner", former.id).await;
    let revoked = revoked.iter().find(|event| event.event_type == "runner.revoked").unwrap();
    assert_eq!(revoked.commit_no, recovered.commit_no);
    let outputs = &world.app.engine.load::<Install>(install).await.unwrap().stack.unwrap();
    assert_eq!((outputs.runner, outputs.outputs.len()), (id, 1), "the stack outputs stay");

    // The former host returns: neither its session nor its job stores a state.
    world.poll(&former, 0, json!({})).await.rejected(403, "runner_revoked");
    let late = by_job(head(held.fence, 2, "two"));
    put(&world, &held.token, &late, "two").await.rejected(403, "runner_revoked");
    let by_runner = StateUpload {
        written_by: Some((held.job, held.execution.parse().unwrap())),
        ..late.clone()
    };
    put(&world, &former.token, &by_runner, "two").await.rejected(403, "runner_revoked");
    // A server that does not know the revocation yet has the fence.
    let begun = state_versions::begun(&world.app.pool, Of { install, component: "web" });
    let begun = begun.await.unwrap().unwrap();
    assert!(begun.fence > held.fence && begun.job.is_none(), "{begun:?}");
    assert_eq!(newest(&world, install).await.unwrap().serial, 1);
    // The successor continues.
    let access = world.token(id, &successor.key).await;
    let mut second = Agent { id, token: access, key: successor.key, ..former };
    world.open(&mut second, "j2", json!([])).await;
    let keys = world.app.engine.load::<domain::runner::Runner>(id).await.unwrap();
    assert!(keys.install_keys().unwrap().is_same(&successor.keys));
    // What its job may have created is unknown until a user decides.
    world.wait_for_event("job", held.job, "job.outcome_unknown").await;
    resolve(&world, &held).await;
    let next = run(&world, &second, install, "web").await;
    put(&world, &next.token, &by_job(head(next.fence, 2, "two")), "two").await.ok();
}

#[tokio::test]
async fn a_wrong_recovery_is_rejected_and_changes_nothing() {
    let (world, former, install) = world().await;
    let held = run(&world, &former, install, "web").await;
    put(&world, &held.token, &by_job(head(held.fence, 1, "one")), "one").await.ok();
    let (other, _) = world.agent().await;
    let token = world.enrolment(Purpose::Install { install }).await;
    let states = offer(&world, &token).await.ok()["states"].clone();
    let key = SigningKey::from_bytes(&[9; 32]);
    let position = state_versions::log_position(&world.app.pool).await.unwrap();

    let right = Successor::new(&world, install, 2, &key);
    let wrong_key = Successor::new(&world, install, 2, &SigningKey::from_bytes(&[8; 32]));
    let other_install = Successor::new(&world, InstallId(Ulid::new()), 2, &key);
    let same_generation = Successor::new(&world, install, 1, &key);
    let mut older = states.clone();
    older["web"]["serial"] = 0.into();
    let mut foreign = states.clone();
    foreign["api"] = foreign["web"].clone();
    for (successor, former, states, code, why) in [
        (&wrong_key, former.id, &states, "rejected", "did not sign"),
        (&other_install, former.id, &states, "rejected", "did not sign"),
        (&same_generation, former.id, &states, "rejected", "not later than"),
        (&right, other.id, &states, "rejected", "not one of this install"),
        (&right, former.id, &json!({}), "state_conflict", "was not accepted"),
        (&right, former.id, &older, "state_conflict", "was not accepted"),
        (&right, former.id, &foreign, "state_conflict", "has no state of an accepted"),
    ] {
        let rejected = successor.enrol(&world, &token, former, states).await;
        let detail = rejected.rejected(409, code)["detail"].to_string();
        assert!(detail.contains(why), "{why}: {detail}");
    }
    assert_eq!(state_versions::log_position(&world.app.pool).await.unwrap(), position);
    assert_eq!(wrapped_seeds::runners(&world.app.pool, install).await.unwrap(), []);
    world.poll(&former, 0, json!({})).await.ok();

    // Only one host recovers the keys of a runner.
    right.enrol(&world, &token, former.id, &states).await.ok();
    let token = world.enrolment(Purpose::Install { install }).await;
    let second = Successor::new(&world, install, 2, &key);
    let rejected = second.enrol(&world, &token, former.id, &states).await.rejected(409, "rejected");
    assert!(rejected["detail"].to_string().contains("has recovered the keys of"), "{rejected}");
}

/// Returns the agent of an enrolled successor, with a session.
async fn agent_of(world: &World, enrolled: &Value, successor: Successor, former: &Agent) -> Agent {
    let id = enrolled["runner"].as_str().unwrap().parse().unwrap();
    let token = world.token(id, &successor.key).await;
    let process_id = former.process_id.clone();
    Agent { id, token, key: successor.key, process_id, session: None }
}

#[tokio::test]
async fn a_repeated_enrolment_changes_nothing_whatever_its_proof_says() {
    let (world, former, install) = world().await;
    let (mut other, other_install) = world.agent().await;
    world.open(&mut other, "j3", json!([])).await;
    let of_other = run(&world, &other, other_install, "web").await;
    let token = world.enrolment(Purpose::Install { install }).await;
    let key = SigningKey::from_bytes(&[9; 32]);
    let successor = Successor::new(&world, install, 2, &key);
    let enrolled = successor.enrol(&world, &token, former.id, &json!({})).await.ok();
    let again = Successor {
        key: successor.key.clone(),
        keys: successor.keys.clone(),
        body: successor.body.clone(),
    };
    let mut agent = agent_of(&world, &enrolled, successor, &former).await;
    world.open(&mut agent, "j2", json!([])).await;
    let held = run(&world, &agent, install, "web").await;
    for former in [former.id, other.id] {
        let repeated = again.enrol(&world, &token, former, &json!({})).await.ok();
        assert_eq!(repeated["runner"], enrolled["runner"]);
    }
    put(&world, &held.token, &by_job(head(held.fence, 1, "one")), "one").await.ok();
    put(&world, &of_other.token, &by_job(head(of_other.fence, 1, "one")), "one").await.ok();
    for job in [held.job, of_other.job] {
        let ends = types(&world, "job", job).await;
        assert_eq!(ends.last().unwrap(), "job.started", "{ends:?}");
    }
}

/// Enrols an agent that has not recovered the keys of the install.
async fn enrol_with_new_keys(world: &World, install: InstallId) -> Agent {
    let key = SigningKey::generate(&mut rand::rngs::OsRng);
    let signing = SigningKey::from_bytes(&[8; 32]).verifying_key();
    let signing = hex::encode(signing.as_bytes());
    let keys = schemas::runner::sign_install_keys(1, "22".repeat(32), signing, &key);
    let body = json!({
        "token": world.enrolment(Purpose::Install { install }).await,
        "mode": "install", "version": "1.0.0", "install_keys": keys,
        "identity_key": hex::encode(key.verifying_key().as_bytes()),
        "host": {"os": "linux", "arch": "x86_64"},
    });
    let enrolled = world.call(Method::POST, "/runner/v1/enrol", "", &body).await.ok();
    let id = enrolled["runner"].as_str().unwrap().parse().unwrap();
    let token = world.token(id, &key).await;
    Agent { id, token, key, process_id: "other".into(), session: None }
}

#[tokio::test]
async fn keys_that_others_replaced_have_no_successor() {
    let (world, mut former, install) = world().await;
    send_seeds(&world, &mut former, json!([wrapped("one")])).await.ok();
    revoke(&world, former.id).await;
    // After a theft, the customer enrols a runner with other keys.
    let current = enrol_with_new_keys(&world, install).await;
    let token = world.enrolment(Purpose::Install { install }).await;
    assert!(offered(&world, &token).await.is_empty());
    let thief = Successor::new(&world, install, 2, &SigningKey::from_bytes(&[9; 32]));
    let rejected = thief.enrol(&world, &token, former.id, &json!({})).await;
    let detail = rejected.rejected(409, "rejected")["detail"].to_string();
    assert!(detail.contains("other keys have replaced"), "{detail}");
    let stack = world.app.engine.load::<Install>(install).await.unwrap().stack.unwrap();
    assert_eq!(stack.runner, current.id);
}

#[tokio::test]
async fn a_successor_that_is_lost_before_its_first_session_has_a_successor() {
    let (world, mut former, install) = world().await;
    send_seeds(&world, &mut former, json!([wrapped("one")])).await.ok();
    let token = world.enrolment(Purpose::Install { install }).await;
    let key = SigningKey::from_bytes(&[9; 32]);
    let second = Successor::new(&world, install, 2, &key);
    let enrolled = second.enrol(&world, &token, former.id, &json!({})).await.ok();
    let token = world.enrolment(Purpose::Install { install }).await;
    assert_eq!(offered(&world, &token).await, ["of successor"]);
    // Its first report deletes the wrapped seeds of its predecessor, which contain the same seed.
    let mut second = agent_of(&world, &enrolled, second, &former).await;
    assert_eq!(wrapped_seeds::runners(&world.app.pool, install).await.unwrap().len(), 2);
    send_seeds(&world, &mut second, json!([wrapped("of successor")])).await.ok();
    assert_eq!(wrapped_seeds::runners(&world.app.pool, install).await.unwrap(), [second.id]);
    let third = Successor::new(&world, install, 3, &key);
    third.enrol(&world, &token, second.id, &json!({})).await.ok();
}

#[tokio::test]
async fn no_state_is_stored_between_its_acceptance_and_the_fence() {
    let (world, former, install) = world().await;
    let held = run(&world, &former, install, "web").await;
    let upload = by_job(head(held.fence, 1, "one"));
    let hold = state_versions::hold(&world.app.pool, install).await.unwrap().unwrap();
    assert!(!put(&world, &held.token, &upload, "one").await.status.is_success());
    let token = world.enrolment(Purpose::Install { install }).await;
    let successor = Successor::new(&world, install, 2, &SigningKey::from_bytes(&[9; 32]));
    let busy = successor.enrol(&world, &token, former.id, &json!({})).await;
    assert_eq!(busy.rejected(503, "busy")["code"], "busy");
    hold.release().await.unwrap();
    put(&world, &held.token, &upload, "one").await.ok();
    let late = successor.enrol(&world, &token, former.id, &json!({})).await;
    late.rejected(409, "state_conflict");
}

#[tokio::test]
async fn a_crash_between_the_recovery_and_its_fence_lets_the_former_host_store_nothing() {
    let (world, former, install) = world().await;
    let held = run(&world, &former, install, "web").await;
    put(&world, &held.token, &by_job(head(held.fence, 1, "one")), "one").await.ok();
    // Another server, which learns nothing of the recovery.
    let mut outdated = world.second_server().await;
    outdated.stop_loops().await;
    let token = world.enrolment(Purpose::Install { install }).await;
    let states = offer(&world, &token).await.ok()["states"].clone();
    let successor = Successor::new(&world, install, 2, &SigningKey::from_bytes(&[9; 32]));
    successor.enrol(&world, &token, former.id, &states).await.ok();
    let lose_fence =
        "update state_fence set fence_epoch = $2, fence_position = $3 where install = $1";
    let lost = sqlx::query(lose_fence)
        .bind(install.to_string())
        .bind(held.fence.epoch.cast_signed())
        .bind(held.fence.position.cast_signed());
    assert_eq!(lost.execute(&world.app.pool).await.unwrap().rows_affected(), 1);
    let late = StateUpload {
        written_by: Some((held.job, held.execution.parse().unwrap())),
        ..by_job(head(held.fence, 2, "two"))
    };
    put(&outdated, &former.token, &late, "two").await.rejected(403, "runner_revoked");
    assert_eq!(newest(&world, install).await.unwrap().serial, 1);
    // The successor has no response and repeats its request, which sets the fence.
    successor.enrol(&world, &token, former.id, &states).await.ok();
    let begun = state_versions::begun(&world.app.pool, Of { install, component: "web" });
    let begun = begun.await.unwrap().unwrap();
    assert!(begun.fence > held.fence && begun.job.is_none(), "{begun:?}");
}

#[tokio::test]
async fn a_state_that_never_arrived_is_offered_until_a_user_accepts_another_one() {
    let (world, former, install) = world().await;
    let held = run(&world, &former, install, "web").await;
    let stored = head(held.fence, 1, "one");
    put(&world, &held.token, &by_job(stored.clone()), "one").await.ok();
    record(&world, install, 1).await;
    end(&world, &held).await;
    let handle = async |command: InstallCommand| {
        let call = &World::system();
        let done = world
            .app
            .engine
            .transact(call, move |unit| Box::pin(unit.handle::<Install>(install, command.clone())));
        done.await.unwrap();
    };
    let (run, step) = (RunId(Ulid::new()), StepId(Ulid::new()));
    let state = head(held.fence, 2, "two").version();
    handle(InstallCommand::AwaitState { name: "web".into(), run, step, state }).await;
    let token = world.enrolment(Purpose::Install { install }).await;
    let offered = offer(&world, &token).await.ok();
    assert_eq!(
        (&offered["states"]["web"]["serial"], &offered["awaited"]["web"]["serial"]),
        (&json!(1), &json!(2))
    );
    // The recovery leaves the component waiting. The decision of a user ends that.
    let successor = Successor::new(&world, install, 2, &SigningKey::from_bytes(&[9; 32]));
    successor.enrol(&world, &token, former.id, &offered["states"]).await.ok();
    let waiting = async || world.app.engine.load::<Install>(install).await.unwrap().awaited_states;
    assert!(waiting().await.contains_key("web"));
    let accept = (World::system(), "web".to_owned(), stored.version());
    installs::accept_state(
        &world.app,
        &accept.0,
        install,
        accept.1,
        accept.2,
        "lost".into(),
        false,
    )
    .await
    .unwrap();
    assert!(waiting().await.is_empty());
}
