//! Tests of artifacts and outputs that runners report.
use axum::body::Body;
use domain::{
    digest::Digest,
    enrolment::Purpose,
    ids::{AppId, BuildId, ComponentId, JobId},
    job::{Job, JobClass, JobCommand, JobKind, Origin, Work},
};
use event_log::blob;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use ulid::Ulid;

use super::world::World;
use crate::{registry::Repository, server::testing};

fn digest(bytes: &[u8]) -> Digest {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes))).parse().unwrap()
}

/// Queues a build job that pushes to this repository.
async fn build_for(world: &World, repository: &str) -> JobId {
    let job = JobId(Ulid::new());
    let inputs = testing::build_inputs(repository, &digest(b"source"));
    let manifest = testing::manifest(job, JobKind::Build, inputs, vec![]);
    let manifest = proof::canonical::json(&manifest).unwrap();
    let manifest = blob::put(&world.app.pool, &manifest).await.unwrap();
    let (app, component) = (AppId(Ulid::new()), ComponentId(Ulid::new()));
    let origin = Origin::Build { app, component, build: BuildId(Ulid::new()) };
    let (kind, class, attempts) = (JobKind::Build, JobClass::Pure, 2);
    let (deadline_ms, queue_ttl_ms) = (3_600_000, 60_000);
    let work = Work { kind, class, attempts, manifest, origin, deadline_ms, queue_ttl_ms };
    let call = &World::system();
    let done = world.app.engine.transact(call, move |unit| {
        Box::pin(unit.handle::<Job>(job, JobCommand::Queue(work.clone())))
    });
    done.await.unwrap();
    job
}

/// Pushes an artifact with one layer. Returns its digest and size.
async fn pushed(world: &World, repository: &str) -> (Digest, u64) {
    let repository: Repository = repository.parse().unwrap();
    let (config, layer) = (b"{}".to_vec(), b"layer".to_vec());
    let named =
        |bytes: &[u8]| json!({"mediaType": "x/y", "digest": digest(bytes), "size": bytes.len()});
    let image = json!({"schemaVersion": 2, "config": named(&config), "layers": [named(&layer)]});
    let image = image.to_string().into_bytes();
    let mut size = 0;
    for bytes in [config, layer, image.clone()] {
        size += bytes.len() as u64;
        let registry = &world.app.registry;
        registry.keep(&repository, &digest(&bytes), Body::from(bytes.clone())).await.unwrap();
    }
    (digest(&image), size)
}

fn artifact(repository: &str, digest: &Digest) -> Value {
    json!({"type": "artifact",
        "payload": {"repository": repository, "digest": digest, "size_bytes": 1}})
}

#[tokio::test]
async fn artifact_is_in_the_repository_of_the_job_and_in_the_registry() {
    let world = World::new().await;
    let mut agent = world.enrolled(Purpose::Build).await;
    world.open(&mut agent, "j", json!([])).await;
    let job = build_for(&world, "shop/web").await;
    let execution = world.start_job(&agent, job).await;
    // An existing artifact of another app, and a missing one of this app.
    let (foreign, _) = pushed(&world, "bank/web").await;
    let other = artifact("bank/web", &foreign);
    let rejection = world.report(&agent, job, &execution, 2, other).await.rejected(422, "invalid");
    assert!(rejection["detail"].as_str().unwrap().contains("shop/web"), "{rejection}");
    let absent = artifact("shop/web", &foreign);
    world.report(&agent, job, &execution, 2, absent).await.rejected(422, "invalid");

    let (own, size) = pushed(&world, "shop/web").await;
    for _ in 0..2 {
        world.report(&agent, job, &execution, 2, artifact("shop/web", &own)).await.ok();
    }
    let event = world.events("job", job).await.pop().unwrap();
    assert_eq!(event.event_type, "job.artifact_pushed");
    // The size comes from the registry.
    let event: Value = serde_json::from_str(&event.payload).unwrap();
    assert_eq!(event["artifact"]["size_bytes"], size);
}

#[tokio::test]
async fn outputs_that_are_too_large_are_omitted() {
    let world = World::new().await;
    let (mut agent, install) = world.agent().await;
    world.open(&mut agent, "j", json!([])).await;
    let job = world.queue(install, JobKind::Apply, JobClass::Mutating).await;
    let execution = world.start_job(&agent, job).await;
    let outputs = json!({"id": "net-1", "large": "x".repeat(100_000), "half": "y".repeat(20_000),
        "more": "z".repeat(19_000)});
    let report = json!({"type": "outputs", "payload": {"outputs": outputs}});
    for _ in 0..2 {
        world.report(&agent, job, &execution, 2, report.clone()).await.ok();
    }
    let event = world.events("job", job).await.pop().unwrap();
    let event: Value = serde_json::from_str(&event.payload).unwrap();
    let names: Vec<_> = event["outputs"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(names, ["id", "more"]);
    // A long failure detail is shortened, and the result is accepted.
    let last = json!({"type": "finished", "payload": {"outcome": "failed", "exit_code": 1,
        "detail": "é".repeat(50_000), "log_len": 0, "log_sha256": hex::encode(Sha256::digest(b""))}});
    world.report(&agent, job, &execution, 3, last).await.ok();
    assert!(world.event_types(job).await.contains(&"failed".to_owned()));
}
