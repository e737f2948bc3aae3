//! Tests of log chunks and of finalizing logs.
use std::io::Write as _;

use axum::{
    body::Body,
    http::{Request, header},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use domain::{
    ids::JobId,
    job::{JobClass, JobCommand, JobKind, LossReason},
};
use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::world::{Agent, TestResponse, World};
use crate::{dispatch::Timing, logs::LogError};

async fn running(world: &World) -> (Agent, JobId, String) {
    let (mut agent, install) = world.agent().await;
    world.open(&mut agent, "j", json!([])).await;
    let job = world.queue(install, JobKind::Plan, JobClass::Pure).await;
    let execution = world.start_job(&agent, job).await;
    (agent, job, execution)
}

async fn chunk(
    world: &World,
    of: &(Agent, JobId, String),
    start: usize,
    bytes: &[u8],
) -> TestResponse {
    let body = zstd::bulk::compress(bytes, 1).unwrap();
    chunk_as(world, of, (start, bytes), ("zstd", body)).await
}

async fn chunk_as(
    world: &World,
    (agent, job, execution): &(Agent, JobId, String),
    (start, bytes): (usize, &[u8]),
    (coding, body): (&str, Vec<u8>),
) -> TestResponse {
    let last = start + bytes.len() - 1;
    let request = Request::patch(format!("/runner/v1/jobs/{job}/log"))
        .header(header::AUTHORIZATION, format!("Bearer {}", agent.token))
        .header("Execution", execution)
        .header(header::CONTENT_RANGE, format!("bytes {start}-{last}/*"))
        .header(header::CONTENT_ENCODING, coding)
        .header("Repr-Digest", format!("sha-256=:{}:", STANDARD.encode(Sha256::digest(bytes))))
        .body(Body::from(body));
    world.send(request.unwrap()).await
}

fn finished(log: &[u8]) -> Value {
    let sha256 = hex::encode(Sha256::digest(log));
    json!({"type": "finished", "payload":
        {"outcome": "succeeded", "log_len": log.len(), "log_sha256": sha256}})
}

fn range(response: &TestResponse) -> &str {
    response.headers.get(header::RANGE).map_or("", |value| value.to_str().unwrap())
}

#[tokio::test]
async fn chunks_are_taken_in_order_and_resent_ones_change_nothing() {
    let world = World::new().await;
    let of = running(&world).await;
    let gap = chunk(&world, &of, 6, b"world").await;
    gap.rejected(416, "log_gap");
    assert_eq!(range(&gap), "", "nothing is there: from the start");
    let first = chunk(&world, &of, 0, b"hello ").await;
    assert_eq!((first.status.as_u16(), range(&first)), (202, "bytes=0-5"));
    assert_eq!(first.headers["x-job-state"], "running");
    assert_eq!(chunk(&world, &of, 0, b"hello ").await.ok()["committed_bytes"], 6);
    assert_eq!(chunk(&world, &of, 3, b"lo world").await.ok()["committed_bytes"], 11);
    let gap = chunk(&world, &of, 12, b"!").await;
    gap.rejected(416, "log_gap");
    assert_eq!(range(&gap), "bytes=0-10");
    chunk(&world, &of, 0, b"HELLO ").await.rejected(409, "log_divergence");
    let execution = of.2.parse().unwrap();
    assert_eq!(&world.app.logs.read(execution, 0..u64::MAX).await.unwrap()[..], b"hello world");
    assert_eq!(&world.app.logs.read(execution, 4..7).await.unwrap()[..], b"o w");
}

#[tokio::test]
async fn corrupt_or_oversized_chunk_is_rejected() {
    let world = World::new().await;
    let of = running(&world).await;
    let long = vec![b'x'; crate::logs::CHUNK_MAX_BYTES + 1];
    chunk(&world, &of, 0, &long).await.rejected(413, "too_large");
    let request = Request::patch(format!("/runner/v1/jobs/{}/log", of.1))
        .header(header::AUTHORIZATION, format!("Bearer {}", of.0.token))
        .header("Execution", &of.2)
        .header(header::CONTENT_RANGE, "bytes 0-4/*")
        .header("Repr-Digest", format!("sha-256=:{}:", STANDARD.encode(Sha256::digest(b"other"))))
        .body(Body::from("bytes"));
    world.send(request.unwrap()).await.rejected(400, "bad_request");
}

#[tokio::test]
async fn chunk_may_be_zstd_gzip_or_uncompressed() {
    let world = World::new().await;
    let of = running(&world).await;
    let gzip = |bytes: &[u8]| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    chunk(&world, &of, 0, b"one ").await.ok();
    chunk_as(&world, &of, (4, b"two "), ("gzip", gzip(b"two "))).await.ok();
    chunk_as(&world, &of, (8, b"three"), ("identity", b"three".to_vec())).await.ok();
    let execution = of.2.parse().unwrap();
    let stored = world.app.logs.read(execution, 0..u64::MAX).await.unwrap();
    assert_eq!(&stored[..], b"one two three");
    // another coding, an oversized chunk and invalid gzip data are rejected
    chunk_as(&world, &of, (13, b"four"), ("br", b"four".to_vec()))
        .await
        .rejected(415, "unsupported_media_type");
    let long = vec![b'x'; 64 * crate::logs::CHUNK_MAX_BYTES];
    chunk_as(&world, &of, (13, &long), ("gzip", gzip(&long))).await.rejected(413, "too_large");
    chunk_as(&world, &of, (13, b"four"), ("gzip", b"four".to_vec()))
        .await
        .rejected(400, "bad_request");
}

#[tokio::test]
async fn chunk_after_finalization_is_rejected_while_the_outcome_is_unknown() {
    // given an execution that was declared lost, and whose log was finalized as incomplete
    let log_quiet = std::time::Duration::from_millis(300);
    let world = World::with(Timing { log_quiet, ..Timing::faster(60) }).await;
    let (mut agent, install) = world.agent().await;
    world.open(&mut agent, "j", json!([])).await;
    let job = world.queue(install, JobKind::Apply, JobClass::Mutating).await;
    let execution = world.start_job(&agent, job).await;
    let of = (agent, job, execution);
    chunk(&world, &of, 0, b"hello ").await.ok();
    let (execution, loss_reason) = (of.2.parse().unwrap(), LossReason::ExecutionNotInJournal);
    world.handle(job, JobCommand::DeclareLost { execution, loss_reason }).await;
    world.wait_for_event("job", job, "job.log_finalized").await;
    // The dispatch state is updated shortly after the event is written.
    while world.app.dispatch.may_write_log(of.0.id, job, execution) {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    // when the runner reconnects with the rest, then the rejection is permanent
    let late = chunk(&world, &of, 6, b"world").await;
    assert_eq!(late.rejected(412, "fenced")["job_state"], "outcome_unknown");
    // and its final report is accepted
    world.report(&of.0, job, &of.2, 2, finished(b"hello world")).await.ok();
    assert!(world.event_types(job).await.iter().any(|event| event == "succeeded"));
}

#[tokio::test]
async fn complete_log_with_its_digest_is_finalized() {
    let world = World::new().await;
    let of = running(&world).await;
    chunk(&world, &of, 0, b"hello ").await.ok();
    let log = b"hello world";
    let (agent, job, execution) = &of;
    let waits = world.report(agent, *job, execution, 2, finished(log)).await;
    assert_eq!((waits.status.as_u16(), &waits.json()["committed_bytes"]), (202, &json!(6)));
    assert_eq!(world.event_types(*job).await.last().unwrap(), "succeeded");
    chunk(&world, &of, 6, b"world").await.ok();
    let done = world.report(agent, *job, execution, 2, finished(log)).await;
    assert_eq!(done.status, 200);
    let finalized = world.events("job", job).await.pop().unwrap();
    assert_eq!(finalized.event_type, "job.log_finalized");
    assert!(finalized.payload.contains(r#""length_bytes":11"#), "{}", finalized.payload);
    chunk(&world, &of, 11, b"!").await.rejected(412, "fenced");
}

#[tokio::test]
async fn log_with_another_digest_must_be_sent_again() {
    let world = World::new().await;
    let of = running(&world).await;
    chunk(&world, &of, 0, b"jello").await.ok();
    let (agent, job, execution) = &of;
    let log = b"hello";
    world.report(agent, *job, execution, 2, finished(log)).await.rejected(412, "log_mismatch");
    assert_eq!(chunk(&world, &of, 0, log).await.ok()["committed_bytes"], 5);
    world.report(agent, *job, execution, 2, finished(log)).await.ok();
    assert_eq!(world.event_types(*job).await.last().unwrap(), "log_finalized");
}

#[tokio::test]
async fn ended_log_rejects_chunks_in_flight() {
    // given a log that was finalized as incomplete
    let world = World::new().await;
    let of = running(&world).await;
    chunk(&world, &of, 0, b"hello ").await.ok();
    let execution = of.2.parse().unwrap();
    let finalized = world.app.logs.end(execution).await.unwrap();
    // when a chunk arrives that was admitted before, at this server or at another one
    let there = world.second_server().await;
    for world in [&world, &there] {
        let late = world.app.logs.append(execution, 6, "world".into()).await;
        assert!(matches!(late, Err(LogError::ConcurrentWrite)), "{late:?}");
        // or a rewind is requested
        world.app.logs.rewind(execution).await.unwrap();
        // then the bytes are unchanged
        assert_eq!(world.app.logs.measure(execution).await.unwrap(), finalized);
        assert_eq!(world.app.logs.end(execution).await.unwrap(), finalized);
        assert_eq!(world.app.logs.length(execution).await.unwrap(), 6);
    }
}

#[tokio::test]
async fn growing_log_is_not_finalized_as_incomplete() {
    // given a finished job whose log is still arriving
    let world = World::new().await;
    let of = running(&world).await;
    let log = [b'x'; 3];
    world.report(&of.0, of.1, &of.2, 2, finished(&log)).await.ok();
    world.wait_for_event("job", of.1, "job.succeeded").await;
    let waited_since = || async {
        loop {
            // The dispatch state is updated shortly after the event is written.
            if let Some(tracked) = world.app.dispatch.state().jobs.get(of.1)
                && let Some(open) = tracked.open_logs.first()
            {
                return open.quiet_since;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    // when it arrives slowly, then each chunk restarts the timeout
    for at in 0..2 {
        let before = waited_since().await;
        chunk(&world, &of, at, &log[at..=at]).await.ok();
        assert!(waited_since().await > before, "byte {at}");
    }
    chunk(&world, &of, 2, &log[2..]).await.ok();
    // then it is finalized as complete
    world.report(&of.0, of.1, &of.2, 2, finished(&log)).await.ok();
    let finalized = world.events("job", of.1).await.pop().unwrap();
    assert!(finalized.payload.contains(r#""complete":true"#), "{}", finalized.payload);
}

#[tokio::test]
async fn log_that_grows_at_one_server_is_not_finalized_by_another() {
    // given a finished job whose log arrives more slowly than the timeout of another server
    let world = World::new().await;
    let log_quiet = std::time::Duration::from_secs(3);
    let there = world.second_server_with(Timing { log_quiet, ..Timing::default() }).await;
    let of = running(&world).await;
    let log = b"abc";
    world.report(&of.0, of.1, &of.2, 2, finished(log)).await;
    world.wait_for_event("job", of.1, "job.succeeded").await;
    // when each byte arrives after the other server checked the length in the database
    let known = || {
        let dispatch_state = there.app.dispatch.state();
        dispatch_state
            .jobs
            .get(of.1)
            .and_then(|tracked| tracked.open_logs.first().map(|open| open.length))
    };
    for (at, byte) in log.iter().enumerate() {
        chunk(&world, &of, at, &[*byte]).await.ok();
        let since = std::time::Instant::now();
        while at + 1 < log.len() && known() != Some(at as u64 + 1) {
            let waited = since.elapsed();
            assert!(waited < std::time::Duration::from_secs(30), "it did not ask: {:?}", known());
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }
    // then the log is complete
    world.report(&of.0, of.1, &of.2, 2, finished(log)).await.ok();
    let finalized = world.events("job", of.1).await.pop().unwrap();
    assert!(finalized.payload.contains(r#""complete":true"#), "{}", finalized.payload);
    let digest = hex::encode(Sha256::digest(log));
    assert!(finalized.payload.contains(&digest), "{}", finalized.payload);
}

#[tokio::test]
async fn log_survives_a_server_restart() {
    let world = World::new().await;
    let of = running(&world).await;
    chunk(&world, &of, 0, b"hello ").await.ok();
    let world = world.restart().await;
    assert_eq!(chunk(&world, &of, 6, b"world").await.ok()["committed_bytes"], 11);
    let (length, digest) = world.app.logs.measure(of.2.parse().unwrap()).await.unwrap();
    let expected = format!("sha256:{}", hex::encode(Sha256::digest(b"hello world")));
    assert_eq!((length, digest.to_string()), (11, expected));
}

#[tokio::test]
async fn follower_sees_durable_bytes_and_shortens_the_upload_interval() {
    let world = World::new().await;
    let of = running(&world).await;
    let mut have = world.app.logs.follow(of.2.parse().unwrap());
    let response = chunk(&world, &of, 0, b"hello").await;
    assert_eq!(response.headers["x-log-interval-ms"], "250");
    have.changed().await.unwrap();
    assert_eq!(*have.borrow(), 5);
    drop(have);
    assert_eq!(chunk(&world, &of, 5, b"!").await.headers["x-log-interval-ms"], "2000");
}

#[tokio::test]
async fn without_the_database_polls_wait_and_chunks_must_be_resent() {
    let world = World::new().await;
    let of = running(&world).await;
    chunk(&world, &of, 0, b"hello").await.ok();
    world.app.pool.close().await;
    let later = chunk(&world, &of, 5, b"!").await;
    later.rejected(503, "unavailable");
    assert!(later.headers.contains_key(header::RETRY_AFTER));
    assert_eq!(world.poll(&of.0, 1, json!({})).await.status.as_u16(), 204);
}
