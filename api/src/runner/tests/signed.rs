//! Tests of signed statements: valid ones are stored, and false ones are rejected.
use axum::http::Method;
use domain::{
    decider::Decider as _,
    ids::JobId,
    job::{Job, JobClass, JobKind, SignedResult},
    runner::Runner,
};
use ed25519_dalek::SigningKey;
use proof::dsse::{self, Envelope};
use schemas::runner::{JOURNAL_HEAD_TYPE, RunnerMode, STATEMENT_TYPE, Statement};
use serde_json::{Value, json};
use sha2::Digest as _;

use super::{
    identity::revoke,
    rekey::rekeyed,
    world::{Agent, World},
};
use crate::{extract, problem::Code, runner::events};

/// Starts a job that has reported an output.
async fn at_work(world: &World) -> (Agent, JobId, String, Value) {
    let (mut agent, install) = world.agent().await;
    world.open(&mut agent, "j", json!([])).await;
    let job = world.queue(install, JobKind::Apply, JobClass::Mutating).await;
    let claimed = world.claim(&agent, job, "c1").await.ok();
    let execution = claimed["execution"].as_str().unwrap().to_string();
    let started = json!({"type": "started", "payload": {}});
    world.report(&agent, job, &execution, 1, started).await.ok();
    let reported = json!({"type": "outputs", "payload": {"outputs": outputs()}});
    world.report(&agent, job, &execution, 2, reported).await.ok();
    let digest = |envelope: &Value| {
        let envelope: Envelope = serde_json::from_value(envelope.clone()).unwrap();
        let payload = envelope.payload;
        let payload =
            base64::Engine::decode(&base64::engine::general_purpose::STANDARD, payload).unwrap();
        proof::digest_text(&proof::sha256(&payload))
    };
    let statement = json!({
        "version": 1, "runner": agent.id, "job": job, "execution": execution,
        "outcome": "succeeded", "exit_code": 0,
        "manifest": digest(&claimed["manifest"]), "grant": digest(&claimed["grant"]),
        "log": {"length_bytes": 0, "sha256": empty(), "omitted_bytes": 0},
        "outputs": proof::digest_text(&proof::canonical::hash(&outputs()).unwrap()),
    });
    (agent, job, execution, statement)
}

fn outputs() -> Value {
    json!({"ratio": 0.123_456_789_012_345_67, "bucket": "b", "big": u64::MAX})
}

fn empty() -> String {
    format!("sha256:{}", hex::encode(sha2::Sha256::digest("")))
}

fn signed(statement: &Value, key: &SigningKey) -> Envelope {
    dsse::sign(STATEMENT_TYPE, &proof::canonical::json(statement).unwrap(), key)
}

fn final_report(statement: &Envelope) -> Value {
    json!({"type": "finished", "end": {"statement": statement}, "payload": {"outcome": "succeeded",
        "exit_code": 0, "log_len": 0, "log_sha256": hex::encode(sha2::Sha256::digest(""))}})
}

async fn forgeries(world: &World, agent: &Agent) -> usize {
    let events = world.events("runner", agent.id).await;
    events.iter().filter(|event| event.event_type == "runner.forgery_suspected").count()
}

#[tokio::test]
async fn statement_is_stored_with_the_result() {
    let world = World::new().await;
    let (agent, job, execution, statement) = at_work(&world).await;
    let envelope = signed(&statement, &agent.key);
    world.report(&agent, job, &execution, 3, final_report(&envelope)).await.ok();
    // A repeated report, after a lost response, is idempotent.
    world.report(&agent, job, &execution, 3, final_report(&envelope)).await.ok();
    let events = world.events("job", job).await;
    let ends: Vec<_> = events.iter().filter(|event| event.event_type == "job.succeeded").collect();
    assert_eq!(ends.len(), 1);
    // then the event alone proves its signer
    let payload: Value = serde_json::from_str(&ends[0].payload).unwrap();
    let text = |key: &str| payload["signed"][key].as_str().unwrap().to_owned();
    assert_eq!(text("key"), hex::encode(agent.key.verifying_key().as_bytes()));
    let opened = Statement::open(&text("statement"), &text("key"), &text("signature")).unwrap();
    assert_eq!(opened.execution.to_string(), execution);
    let changed = text("statement").replace("succeeded", "cancelled");
    assert_eq!(Statement::open(&changed, &text("key"), &text("signature")), None);
    // and the verification of the whole log counts it as signed
    let verified = event_log::verify::verify(world.app.log(), 0, |_| {}).await.unwrap();
    let signed = (verified.reported.tally.signed, verified.reported.wrong);
    assert_eq!(signed, (1, vec![]));
    assert_eq!(forgeries(&world, &agent).await, 0);
}

#[tokio::test]
async fn false_statement_is_rejected_and_recorded() {
    let world = World::new().await;
    let (agent, job, execution, statement) = at_work(&world).await;
    let before = world.event_types(job).await;
    let with = |field: &str, value: Value| {
        let mut other = statement.clone();
        other[field] = value;
        signed(&other, &agent.key)
    };
    let digest = json!(format!("sha256:{:064}", 7));
    let log = json!({"length_bytes": 9, "sha256": empty(), "omitted_bytes": 0});
    let other_type =
        dsse::sign(JOURNAL_HEAD_TYPE, &proof::canonical::json(&statement).unwrap(), &agent.key);
    let wrong = [
        signed(&statement, &SigningKey::from_bytes(&[9; 32])),
        other_type,
        dsse::sign(STATEMENT_TYPE, b"nothing", &agent.key),
        with("outcome", json!("failed")),
        with("exit_code", json!(3)),
        with("execution", json!(execution.replace(&execution[28..], "ZZ"))),
        with("job", json!(JobId(ulid::Ulid::new()))),
        with("runner", json!(domain::ids::RunnerId(ulid::Ulid::new()))),
        with("manifest", digest.clone()),
        with("manifest", Value::Null),
        with("grant", digest.clone()),
        with("log", log),
        with("outputs", digest),
        with("version", json!(2)),
    ];
    for (at, envelope) in wrong.iter().enumerate() {
        let response = world.report(&agent, job, &execution, 3, final_report(envelope)).await;
        let problem = response.rejected(422, "statement_invalid");
        assert!(problem["detail"].as_str().unwrap().contains("statement"), "{at}: {problem}");
    }
    assert_eq!(world.event_types(job).await, before);
    // A server records forgeries at most once in ten minutes, with their number.
    assert_eq!(forgeries(&world, &agent).await, 1);
    let right = final_report(&signed(&statement, &agent.key));
    world.report(&agent, job, &execution, 3, right).await.ok();
}

#[tokio::test]
async fn report_without_a_statement_is_accepted() {
    let world = World::new().await;
    let (agent, job, execution, statement) = at_work(&world).await;
    let mut body = final_report(&signed(&statement, &agent.key));
    body.as_object_mut().unwrap().remove("end");
    world.report(&agent, job, &execution, 3, body).await.ok();
    let events = world.events("job", job).await;
    let end = events.iter().find(|event| event.event_type == "job.succeeded").unwrap();
    assert!(!end.payload.contains("signed"), "{}", end.payload);
}

#[tokio::test]
async fn report_of_a_replaced_key_is_no_forgery_at_any_server() {
    // given another server that has cached the runner's key, and a runner that replaces its key at
    // this server
    let world = World::new().await;
    let (mut agent, job, execution, statement) = at_work(&world).await;
    let there = world.second_server().await;
    there.app.engine.load::<Runner>(agent.id).await.unwrap();
    let former = final_report(&signed(&statement, &agent.key));
    agent.key = rekeyed(&world, &agent).await;
    // when a final report is signed with the former key, then it must be signed again
    for _ in 0..3 {
        let response = world.report(&agent, job, &execution, 3, former.clone()).await;
        assert_eq!(response.rejected(409, "rejected")["signed_by"], "former_key");
    }
    // and the other server, which has not seen the new key, rejects the report, too
    there.report(&agent, job, &execution, 3, former).await.rejected(409, "rejected");
    // and the other server accepts a report with the new key
    let body = final_report(&signed(&statement, &agent.key));
    there.report(&agent, job, &execution, 3, body).await.ok();
    let events = world.events("job", job).await;
    let end = events.iter().find(|event| event.event_type == "job.succeeded").unwrap();
    assert!(end.payload.contains(&hex::encode(agent.key.verifying_key().as_bytes())));
    assert_eq!(forgeries(&world, &agent).await, 0);
    let verified = event_log::verify::verify(world.app.log(), 0, |_| {}).await.unwrap();
    assert_eq!(verified.reported.wrong, vec![]);
}

#[tokio::test]
async fn result_with_an_invalid_statement_is_accepted_without_it() {
    // given a runner whose statement has the wrong outputs
    let world = World::new().await;
    let (agent, job, execution, mut statement) = at_work(&world).await;
    statement["outputs"] = Value::Null;
    let mut body = final_report(&signed(&statement, &agent.key));
    for _ in 0..3 {
        let response = world.report(&agent, job, &execution, 3, body.clone()).await;
        response.rejected(422, "statement_invalid");
    }
    // when it repeats the report without a statement, then the result is accepted
    body.as_object_mut().unwrap().remove("end");
    world.report(&agent, job, &execution, 3, body).await.ok();
    let events = world.events("job", job).await;
    let end = events.iter().find(|event| event.event_type == "job.succeeded").unwrap();
    assert!(!end.payload.contains("signed"), "{}", end.payload);
}

#[tokio::test]
async fn report_admitted_before_a_revocation_is_rejected_after_it() {
    // given an admitted request whose runner is then revoked
    let world = World::new().await;
    let (agent, job, execution, statement) = at_work(&world).await;
    revoke(&world, agent.id).await;
    let before = world.event_types(job).await;
    let envelope = signed(&statement, &agent.key);
    let result = SignedResult {
        statement: String::from_utf8(proof::canonical::json(&statement).unwrap()).unwrap(),
        key: hex::encode(agent.key.verifying_key().as_bytes()),
        signature: envelope.signatures[0].sig.clone(),
    };
    let mut ask = final_report(&envelope);
    ask["execution"] = json!(execution);
    ask["seq"] = json!(3);
    ask["log_len"] = json!(0);
    let ask = serde_json::from_value(ask).unwrap();
    let install = world.app.engine.load::<Job>(job).await.unwrap().customer(&job.to_string());
    let mode = RunnerMode::Install;
    let runner = extract::RunnerCaller { id: agent.id, mode, install, generation: 1 };
    // then it is rejected, signed or not
    for signed in [Some(result), None] {
        let response = events::apply_report(&world.app, &runner, job, (&ask, signed), None).await;
        assert_eq!(response.err().map(|problem| problem.code), Some(Code::RunnerRevoked));
    }
    assert_eq!(world.event_types(job).await, before);
}

fn head(agent: &Agent, journal: &str, entries: u64, key: &SigningKey) -> Value {
    let head = json!({"version": 1, "runner": agent.id, "journal_id": journal, "entries": entries,
        "chain": format!("sha256:{entries:064}"), "at": "2026-11-21T12:00:00.000000Z"});
    json!(dsse::sign(JOURNAL_HEAD_TYPE, &proof::canonical::json(&head).unwrap(), key))
}

#[tokio::test]
async fn newest_journal_head_is_stored() {
    let world = World::new().await;
    let (agent, _) = world.agent().await;
    let stored = async |agent: &Agent| {
        let heads = crate::usecases::journal_heads::heads(&world.app, agent.id).await.unwrap();
        heads.iter().map(|head| (head.journal_id.clone(), head.entries)).collect::<Vec<_>>()
    };
    let send = async |agent: &Agent, head: Value| {
        let head = serde_json::from_value(head).unwrap();
        crate::usecases::journal_heads::store(&world.app, agent.id, &head).await;
    };
    // when a head arrives with the opening of a session, then it is stored
    let session = domain::ids::SessionId(ulid::Ulid::new());
    let mut body = json!({"assertion": world.opening(&agent, session, ("boot", "j")), "pid": 1,
        "version": "1.0.0", "protocol": {"min": 1, "max": 1}, "slots": 4, "journal": [],
        "capabilities": []});
    body["journal_head"] = head(&agent, "j", 7, &agent.key);
    world.call(Method::POST, "/runner/v1/sessions", "", &body).await.ok();
    assert_eq!(stored(&agent).await, [("j".to_owned(), 7)]);
    // and later heads are ignored: an older head, a head with an unknown key, and a head of another
    // runner
    send(&agent, head(&agent, "j", 5, &agent.key)).await;
    send(&agent, head(&agent, "j", 99, &SigningKey::from_bytes(&[9; 32]))).await;
    let (other, _) = world.agent().await;
    send(&agent, head(&other, "j", 99, &agent.key)).await;
    assert_eq!(stored(&agent).await, [("j".to_owned(), 7)]);
    send(&agent, head(&agent, "j", 9, &agent.key)).await;
    assert_eq!(stored(&agent).await, [("j".to_owned(), 9)]);
    // A new journal does not replace the head of the former one, and the number of journals is
    // limited.
    for at in 0..20 {
        send(&agent, head(&agent, &format!("k{at}"), 1, &agent.key)).await;
    }
    assert_eq!(stored(&agent).await.len(), 8);
}
