//! Tests of reported plan details: checked against the plan digest, and stored encrypted.
use domain::{
    digest::Digest,
    ids::JobId,
    job::{JobClass, JobKind},
};
use event_log::encryption::data::{self, DataId, Read};
use schemas::runner::SaltedDetails;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{
    work::{ready, sign_plan},
    world::{Agent, World},
};

const SUMMARY: &[u8] = br#"{"add":1,"change":0,"destroy":0,"noop":false}"#;
/// Details with a value that must not be stored in plaintext.
const CONTENT: &str = r#"{"resources":[{"action":"create","address":"a.b","attributes":[{"after":{"value":"value-of-acme"},"path":"name"}]}]}"#;

fn details(content: &str) -> SaltedDetails {
    SaltedDetails { salt: [9; 32].into(), content: content.into() }
}

/// Report of a plan of version 2 with these details, as an honest runner builds it.
async fn report(
    world: &World,
    agent: &Agent,
    (job, execution): (JobId, &str),
    details: &SaltedDetails,
) -> Value {
    let work = world.app.engine.load::<domain::job::Job>(job).await.unwrap().work.unwrap();
    let (file, summary, tool) = ([7; 32], Sha256::digest(SUMMARY).into(), "terraform 1.9.8");
    let covered = details.digest();
    let parts =
        proof::plan::PartsV2 { details: Some(covered.bytes()), plugin: None, tool: Some([8; 32]) };
    let digest = proof::plan::digest_v2(&file, &summary, &work.manifest.bytes(), tool, &parts);
    let [digest, file, summary, executable] =
        [digest, file, summary, [8; 32]].map(|hash| proof::digest_text(&hash));
    let signature = sign_plan(agent, &digest, (job, execution));
    json!({"type": "plan", "details": details, "payload": {
        "digest": digest, "file": file, "summary": summary, "noop": false, "add": 1, "change": 0,
        "destroy": 0, "tool": tool, "signature": signature,
        "v2": {"details": covered, "tool": executable}}})
}

async fn planning(world: &World) -> (Agent, String, JobId, String) {
    let (agent, install) = ready(world).await;
    let job = world.queue(install, JobKind::Plan, JobClass::Pure).await;
    let execution = world.start_job(&agent, job).await;
    event_log::blob::put(&world.app.pool, SUMMARY).await.unwrap();
    (agent, install.to_string(), job, execution)
}

async fn stored(world: &World, subject: &str, digest: &Digest) -> Read {
    let keys = world.app.log().key_ring();
    data::get(&world.app.pool, keys, DataId { subject, digest }).await.unwrap()
}

#[tokio::test]
async fn reported_details_are_stored_encrypted() {
    let world = World::new().await;
    let (agent, install, job, execution) = planning(&world).await;
    let details = details(CONTENT);
    let plan = report(&world, &agent, (job, &execution), &details).await;
    // accepted, and a repeated report changes nothing
    for _ in 0..2 {
        world.report(&agent, job, &execution, 2, plan.clone()).await.ok();
    }
    let digest = details.digest();
    let expected = Read::Found(serde_json::to_vec(&details).unwrap());
    assert_eq!(stored(&world, &install, &digest).await, expected);
    // another install has no such data
    assert_eq!(stored(&world, "ins_other", &digest).await, Read::NotFound);
    let rows: Vec<Vec<u8>> = sqlx::query_scalar("select ciphertext from subject_data")
        .fetch_all(&world.app.pool)
        .await
        .unwrap();
    assert_eq!(rows.len(), 1);
    assert!(!String::from_utf8_lossy(&rows[0]).contains("value-of-acme"));
    let events = world.events("job", job).await;
    let payloads: String = events.iter().map(|event| event.payload.to_string()).collect();
    assert!(payloads.contains(&digest.to_string()) && !payloads.contains("value-of-acme"));
}

#[tokio::test]
async fn details_that_the_plan_digest_does_not_cover_are_rejected() {
    let world = World::new().await;
    let (agent, install, job, execution) = planning(&world).await;
    let honest = report(&world, &agent, (job, &execution), &details(CONTENT)).await;
    let mut without = honest.clone();
    without.as_object_mut().unwrap().remove("details");
    let mut other = honest.clone();
    other["details"]["content"] = json!(CONTENT.replace("acme", "beta"));
    let mut unsalted = honest.clone();
    unsalted["details"]["salt"] = json!(format!("sha256:{:064x}", 1));
    let mut uncovered = honest.clone();
    uncovered["payload"]["v2"].as_object_mut().unwrap().remove("details");
    let long = format!(r#"{{"resources":[],"x":"{}"}}"#, "x".repeat(1 << 20));
    let unknown = CONTENT.replace(r#"{"resources""#, r#"{"hidden":1,"resources""#);
    let spaced = CONTENT.replace(",", ", ");
    let rejected = [
        (without, "do not match the digest"),
        (other, "do not match the digest"),
        (unsalted, "do not match the digest"),
        (uncovered, "digest is not"),
        (report(&world, &agent, (job, &execution), &details(&long)).await, "larger than"),
        (report(&world, &agent, (job, &execution), &details("\"x\"")).await, "cannot be parsed"),
        (report(&world, &agent, (job, &execution), &details(&unknown)).await, "unknown members"),
        (report(&world, &agent, (job, &execution), &details(&spaced)).await, "RFC 8785"),
    ];
    for (report, expected) in rejected {
        let response = world.report(&agent, job, &execution, 2, report).await;
        let problem = response.rejected(422, "invalid").to_string();
        assert!(problem.contains(expected), "{expected}: {problem}");
    }
    // Nothing was stored.
    assert_eq!(stored(&world, &install, &details(CONTENT).digest()).await, Read::NotFound);
    world.report(&agent, job, &execution, 2, honest).await.ok();
    // An execution cannot fill the database with further details.
    let second =
        report(&world, &agent, (job, &execution), &details(&CONTENT.replace("acme", "x"))).await;
    let response = world.report(&agent, job, &execution, 3, second).await;
    assert!(response.rejected(422, "invalid").to_string().contains("other details"));
}

#[tokio::test]
async fn details_of_an_erased_install_are_not_stored() {
    let world = World::new().await;
    let (agent, install, job, execution) = planning(&world).await;
    let details = details(CONTENT);
    let plan = report(&world, &agent, (job, &execution), &details).await;
    let now = world.app.log().clock().now();
    event_log::encryption::shred::delete_key(&world.app.pool, &install, now).await.unwrap();
    world.app.log().key_ring().mark_shredded(&install);
    world.report(&agent, job, &execution, 2, plan).await.rejected(412, "fenced");
    assert_eq!(stored(&world, &install, &details.digest()).await, Read::Erased);
}
