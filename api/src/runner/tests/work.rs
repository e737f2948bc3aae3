//! Tests of the lifecycle of a job, from its offer to the final report.
use domain::{
    actor::Actor,
    enrolment::Purpose,
    ids::JobId,
    job::{Job, JobClass, JobCommand, JobKind},
    runner::Runner,
};
use proof::{
    checkpoint::Checkpoint,
    dsse::{self, Envelope},
    tree,
};
use schemas::manifest::{GRANT_TYPE, Grant, MANIFEST_TYPE};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{
    rekey::rekeyed,
    world::{Agent, World},
};

fn empty_log() -> Value {
    let sha256 = hex::encode(Sha256::digest(b""));
    json!({"type": "finished", "payload":
        {"outcome": "succeeded", "exit_code": 0, "log_len": 0, "log_sha256": sha256}})
}

pub(super) async fn ready(world: &World) -> (Agent, domain::ids::InstallId) {
    let (mut agent, install) = world.agent().await;
    world.open(&mut agent, "j", json!([])).await;
    (agent, install)
}

#[tokio::test]
async fn job_runs_from_its_offer_to_its_finalized_log() {
    let world = World::new().await;
    let (agent, install) = ready(&world).await;
    let (polled, job) = tokio::join!(
        world.poll(&agent, 10, json!({})),
        world.queue(install, JobKind::Plan, JobClass::Pure)
    );
    let offer = &polled.ok()["directives"][0];
    assert_eq!((&offer["type"], &offer["job"]), (&json!("offer"), &json!(job)));
    let execution = world.start_job(&agent, job).await;
    let send = |seq, body| world.report(&agent, job, &execution, seq, body);
    send(2, json!({"type": "phase", "payload": {"name": "init"}})).await.ok();
    let last = send(3, empty_log()).await;
    assert_eq!((last.status.as_u16(), &last.ok()["job_state"]), (200, &json!("succeeded")));
    let events = ["queued", "claimed", "started", "phase_entered", "succeeded", "log_finalized"];
    assert_eq!(world.event_types(job).await, events);
    send(3, empty_log()).await.ok();
    assert_eq!(world.event_types(job).await.len(), 6, "a repeated report changes nothing");
}

#[tokio::test]
async fn claim_has_valid_proofs_and_is_idempotent() {
    let world = World::new().await;
    let (agent, install) = ready(&world).await;
    let job = world.queue(install, JobKind::Apply, JobClass::Mutating).await;
    let first = world.claim(&agent, job, "c1").await.ok();
    let again = world.claim(&agent, job, "c1").await.ok();
    for key in ["execution", "attempt", "deadline", "manifest", "grant"] {
        assert_eq!(first[key], again[key], "{key}");
    }
    let signer = [world.app.keys.current().manifests().verifying_key()];
    let envelope = |key: &str| serde_json::from_value::<Envelope>(first[key].clone()).unwrap();
    let manifest = dsse::verify_as(MANIFEST_TYPE, &envelope("manifest"), &signer).unwrap();
    let grant = dsse::verify_as(GRANT_TYPE, &envelope("grant"), &signer).unwrap();
    let grant: Grant = serde_json::from_slice(&grant).unwrap();
    assert_eq!(
        grant.manifest.to_string(),
        format!("sha256:{}", hex::encode(Sha256::digest(manifest)))
    );
    assert_eq!((grant.job, grant.runner), (job, agent.id));
    assert_eq!(grant.runner_key, hex::encode(agent.key.verifying_key().as_bytes()));

    let note = first["checkpoint"].as_str().unwrap();
    let keys = [world.app.keys.current().checkpoints().verifying_key()];
    let head = Checkpoint::open(note, &keys).unwrap();
    let inclusion = &first["inclusion"];
    assert_eq!(inclusion["position"], grant.fence.position);
    let leaf = tree::leaf_hash(&hex::decode(inclusion["entry"].as_str().unwrap()).unwrap());
    let path: Vec<_> = inclusion["path"].as_array().unwrap().iter().map(hash).collect();
    tree::verify_inclusion(&leaf, grant.fence.position - 1, head.size, &path, &head.root).unwrap();
}

fn hash(text: &Value) -> proof::Hash {
    hex::decode(text.as_str().unwrap()).unwrap().try_into().unwrap()
}

#[tokio::test]
async fn claim_proves_consistency_with_the_checkpoint_of_the_runner() {
    let world = World::new().await;
    let (agent, install) = ready(&world).await;
    let first = world.queue(install, JobKind::Plan, JobClass::Pure).await;
    let second = world.queue(install, JobKind::Plan, JobClass::Pure).await;
    let seen = world.claim(&agent, first, "c1").await.ok();
    let (session, generation) = agent.session.unwrap();
    let body = json!({"session_id": session, "generation": generation, "claim_id": "c2",
        "checkpoint": seen["checkpoint"]});
    let path = format!("/runner/v1/jobs/{second}/claim");
    let next = world.call(axum::http::Method::PUT, &path, &agent.token, &body).await.ok();
    let head = |claimed: &Value| {
        Checkpoint::read_unverified(claimed["checkpoint"].as_str().unwrap()).unwrap()
    };
    let (old, new) = (head(&seen), head(&next));
    assert_eq!(next["consistency"]["from"], old.size);
    let path: Vec<_> = next["consistency"]["path"].as_array().unwrap().iter().map(hash).collect();
    tree::verify_consistency(old.size, &old.root, new.size, &new.root, &path).unwrap();
}

#[tokio::test]
async fn only_the_runner_of_the_install_gets_the_job_and_only_once() {
    let world = World::new().await;
    let (agent, install) = ready(&world).await;
    let (stranger, _) = ready(&world).await;
    let job = world.queue(install, JobKind::Apply, JobClass::Mutating).await;
    world.claim(&stranger, job, "c1").await.rejected(403, "not_offered");
    let execution = world.start_job(&agent, job).await;
    world.claim(&agent, job, "c2").await.rejected(409, "claimed_by_other");
    let phase = json!({"type": "phase", "payload": {"name": "init"}});
    world.report(&stranger, job, &execution, 2, phase.clone()).await.rejected(403, "forbidden");
    let stale = "exe_01ARZ3NDEKTSV4RRFFQ69G5FAV";
    for body in [phase, empty_log()] {
        let rejection = world.report(&agent, job, stale, 2, body).await.rejected(412, "fenced");
        assert_eq!(rejection["job_state"], "running");
    }
}

#[tokio::test]
async fn builds_go_to_build_runners() {
    let world = World::new().await;
    let (installed, _) = ready(&world).await;
    let mut builder = world.enrolled(Purpose::Build).await;
    world.open(&mut builder, "j", json!([])).await;
    let job = world.queue_build().await;
    world.claim(&installed, job, "c1").await.rejected(403, "not_offered");
    let offered = world.poll(&builder, 5, json!({})).await.ok();
    assert_eq!(offered["directives"][0]["job"], json!(job));
    world.claim(&builder, job, "c1").await.ok();
}

#[tokio::test]
async fn reports_are_applied_once_and_in_order() {
    let world = World::new().await;
    let (agent, install) = ready(&world).await;
    let job = world.queue(install, JobKind::Plan, JobClass::Pure).await;
    let execution = world.start_job(&agent, job).await;
    let phase = |name: &str| json!({"type": "phase", "payload": {"name": name}});
    let gap = world.report(&agent, job, &execution, 3, phase("a")).await;
    assert_eq!(gap.rejected(409, "seq_gap")["expected"], 2);
    world.report(&agent, job, &execution, 2, phase("a")).await.ok();
    world.report(&agent, job, &execution, 2, phase("a")).await.ok();
    world.report(&agent, job, &execution, 2, phase("b")).await.rejected(409, "seq_conflict");
}

#[tokio::test]
async fn refusal_is_recorded_for_runner_and_job_in_one_commit() {
    let world = World::new().await;
    let (agent, install) = ready(&world).await;
    let job = world.queue(install, JobKind::Apply, JobClass::Mutating).await;
    let claimed = world.claim(&agent, job, "c1").await.ok();
    let execution = claimed["execution"].as_str().unwrap();
    let rejection = json!({"type": "refused", "payload":
        {"by": "customer_policy", "rule": "window", "detail": "not on Saturdays"}});
    world.report(&agent, job, execution, 1, rejection).await.ok();
    assert_eq!(world.event_types(job).await, ["queued", "claimed", "failed", "log_finalized"]);
    let runner_events = world.events("runner", agent.id).await;
    let rejection =
        runner_events.iter().find(|event| event.event_type == "runner.refused").unwrap();
    let failed = &world.events("job", job).await[2];
    assert_eq!(rejection.commit_no, failed.commit_no);
    assert!(failed.payload.contains(r#""reason":"refused""#), "{}", failed.payload);
}

#[tokio::test]
async fn cancellation_is_in_every_response_until_confirmed() {
    let world = World::new().await;
    let (agent, install) = ready(&world).await;
    let job = world.queue(install, JobKind::Apply, JobClass::Mutating).await;
    let execution = world.start_job(&agent, job).await;
    let running = json!({"running": [{"job": job, "execution": execution, "log_len": 0}]});
    let by: Actor = "prn_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap();
    let cancel = JobCommand::RequestCancel { by, reason: "wrong".into(), force: false };
    let (polled, ()) = tokio::join!(world.poll(&agent, 10, running), async {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        world.handle(job, cancel).await;
    });
    let directives = polled.ok()["directives"].as_array().unwrap().clone();
    let cancel_directive =
        directives.iter().find(|directive| directive["type"] == "cancel").unwrap();
    assert_eq!(
        (&cancel_directive["job"], &cancel_directive["reason"]),
        (&json!(job), &json!("wrong"))
    );
    let phase = json!({"type": "phase", "payload": {"name": "stopping"}});
    let response = world.report(&agent, job, &execution, 2, phase).await.ok();
    assert_eq!(response["cancel"]["grace_s"], 300);
    let sha256 = hex::encode(Sha256::digest(b""));
    let last = json!({"type": "finished", "payload":
        {"outcome": "cancelled", "forced": true, "log_len": 0, "log_sha256": sha256}});
    world.report(&agent, job, &execution, 3, last).await.ok();
    assert!(world.event_types(job).await.contains(&"cancelled".to_string()));
}

#[tokio::test]
async fn plan_must_match_its_digest_and_uploaded_summary() {
    let world = World::new().await;
    let (agent, install) = ready(&world).await;
    let job = world.queue(install, JobKind::Plan, JobClass::Pure).await;
    let execution = world.start_job(&agent, job).await;
    let summary = br#"{"add":1,"change":0,"destroy":0,"noop":false}"#;
    let plan = plan(&world, &agent, (job, &execution), summary).await;
    let other = ready(&world).await.0;
    let mut rejection = vec![("signature", plan.clone()), ("PUT /runner/v1/blobs/", plan.clone())];
    let digest = plan["payload"]["digest"].as_str().unwrap();
    rejection[0].1["payload"]["signature"] = sign_plan(&other, digest, (job, &execution)).into();
    for (text, forged) in rejection {
        let response = world.report(&agent, job, &execution, 2, forged).await;
        assert!(response.rejected(422, "invalid").to_string().contains(text), "{text}");
    }
    let put = |path: String| {
        let request = axum::http::Request::put(path)
            .header("authorization", format!("Bearer {}", agent.token))
            .header("execution", &execution)
            .body(axum::body::Body::from(&summary[..]));
        world.send(request.unwrap())
    };
    let blob = format!("/runner/v1/blobs/{}", plan["payload"]["summary"].as_str().unwrap());
    put(blob.clone()).await.ok();
    let other = format!("/runner/v1/blobs/sha256:{:064x}", 1);
    put(other).await.rejected(422, "invalid");
    // A summary, file or tool that does not match the digest, and counts that differ from the
    // summary.
    let another = json!(format!("sha256:{:064x}", 1));
    let forgeries = [
        ("file", another.clone(), "digest is not"),
        ("summary", another, "digest is not"),
        ("tool", json!("terraform 1.9.9"), "digest is not"),
        ("noop", json!(true), "differ from the summary"),
        ("destroy", json!(7), "differ from the summary"),
    ];
    for (key, value, text) in forgeries {
        let mut forged = plan.clone();
        forged["payload"][key] = value;
        let response = world.report(&agent, job, &execution, 2, forged).await;
        assert!(response.rejected(422, "invalid").to_string().contains(text), "{key}");
    }
    world.report(&agent, job, &execution, 2, plan).await.ok();
    assert!(world.event_types(job).await.contains(&"plan_produced".to_string()));
    // Uploads are accepted only while the execution runs.
    world.report(&agent, job, &execution, 3, empty_log()).await.ok();
    put(blob).await.rejected(412, "fenced");
}

#[tokio::test]
async fn a_job_whose_manifest_is_lost_fails_and_its_runner_continues() {
    // given a job whose manifest the database lost, and another one whose manifest is damaged
    let world = World::new().await;
    let (agent, install) = ready(&world).await;
    for change in
        ["delete from blob where digest = $1", "update blob set bytes = '' where digest = $1"]
    {
        let job = world.queue(install, JobKind::Apply, JobClass::Mutating).await;
        let work = world.app.engine.load::<Job>(job).await.unwrap().work.unwrap();
        let digest = work.manifest.to_string();
        sqlx::query(change).bind(&digest).execute(&world.app.pool).await.unwrap();
        // when the runner claims it, and repeats the claim
        world.claim(&agent, job, "c1").await.rejected(410, "expired");
        world.claim(&agent, job, "c1").await.rejected(410, "expired");
        // then it has failed without a start, so a run can retry the step
        assert_eq!(world.event_types(job).await, ["queued", "claimed", "requeued", "failed"]);
        let state = world.app.engine.load::<Job>(job).await.unwrap();
        assert!(state.changed_nothing(), "{state:?}");
        sqlx::query("delete from blob where digest = $1")
            .bind(&digest)
            .execute(&world.app.pool)
            .await
            .unwrap();
    }
    // and the runner claims other jobs
    let other = world.queue(install, JobKind::Plan, JobClass::Pure).await;
    world.claim(&agent, other, "c2").await.ok();
}

#[tokio::test]
async fn plan_by_a_replaced_key_must_be_signed_again() {
    // given another server that has cached the runner's key, and a runner that replaces its key at
    // this server
    let world = World::new().await;
    let (mut agent, install) = ready(&world).await;
    let job = world.queue(install, JobKind::Plan, JobClass::Pure).await;
    let execution = world.start_job(&agent, job).await;
    let second = world.second_server().await;
    second.app.engine.load::<Runner>(agent.id).await.unwrap();
    let summary = br#"{"add":1,"change":0,"destroy":0,"noop":false}"#;
    event_log::blob::put(&world.app.pool, &summary[..]).await.unwrap();
    let former = plan(&world, &agent, (job, &execution), summary).await;
    agent.key = rekeyed(&world, &agent).await;
    // then a plan by the former key must be signed again, and the other server accepts a plan by
    // the new key
    let response = world.report(&agent, job, &execution, 2, former).await;
    assert_eq!(response.rejected(409, "rejected")["signed_by"], "former_key");
    let again = plan(&world, &agent, (job, &execution), summary).await;
    second.report(&agent, job, &execution, 2, again).await.ok();
    assert!(world.event_types(job).await.contains(&"plan_produced".to_string()));
    // and the verification of the whole log finds the key of its position
    let verified = event_log::verify::verify(world.app.log(), 0, |_| {}).await.unwrap();
    assert_eq!((verified.reported.tally.signed, verified.reported.wrong), (1, vec![]));
}

/// Report of a plan with this summary, as an honest runner builds it.
pub(super) async fn plan(
    world: &World,
    agent: &Agent,
    (job, execution): (JobId, &str),
    summary: &[u8],
) -> Value {
    let work = world.app.engine.load::<Job>(job).await.unwrap().work.unwrap();
    let (file, summary, tool) = ([7; 32], Sha256::digest(summary).into(), "terraform 1.9.8");
    let digest = proof::plan::digest_of(&file, &summary, &work.manifest.bytes(), tool);
    let [digest, file, summary] = [digest, file, summary].map(|hash| proof::digest_text(&hash));
    let signature = sign_plan(agent, &digest, (job, execution));
    json!({"type": "plan", "payload": {"digest": digest, "file": file, "summary": summary,
        "noop": false, "add": 1, "change": 0, "destroy": 0, "tool": tool, "signature": signature}})
}

pub(super) fn sign_plan(agent: &Agent, digest: &str, (job, execution): (JobId, &str)) -> String {
    let digest: domain::digest::Digest = digest.parse().unwrap();
    let signed_bytes = proof::plan::statement(&digest.bytes(), &job.to_string(), execution);
    proof::plan::sign(&signed_bytes, &agent.key)
}
