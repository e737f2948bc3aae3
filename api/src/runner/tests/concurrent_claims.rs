//! Tests with many runners, many jobs and aborted calls: each job is claimed once.
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use domain::{enrolment::Purpose, ids::JobId};
use rand::Rng as _;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::world::{Agent, TestResponse, World};

const JOBS: usize = 100;
const RUNNERS: usize = 8;

/// Repeats a claim under the same key, with timeouts that often abort it.
async fn claim_with_timeouts(world: &World, agent: &Agent, job: JobId) -> String {
    let claim_id = ulid::Ulid::new().to_string();
    loop {
        let timeout = Duration::from_millis(rand::thread_rng().gen_range(5..60));
        let call = world.claim(agent, job, &claim_id);
        let Ok(response) = tokio::time::timeout(timeout, call).await else { continue };
        match response.status.as_u16() {
            200 => return response.json()["execution"].as_str().unwrap().to_string(),
            429 | 503 => tokio::time::sleep(Duration::from_millis(20)).await,
            status => panic!("{job} {status} {}", response.json()),
        }
    }
}

/// Retries a call when the server requests it, as agents do.
async fn retry_when_asked<F: Future<Output = TestResponse>>(call: impl Fn() -> F) {
    loop {
        let response = call().await;
        match response.status.as_u16() {
            429 | 503 => tokio::time::sleep(Duration::from_millis(100)).await,
            _ => {
                response.ok();
                return;
            }
        }
    }
}

async fn run_worker(world: &World, agent: &Agent, won: &Mutex<HashMap<JobId, String>>) {
    let mut acks: Vec<String> = vec![];
    while won.lock().unwrap().len() < JOBS {
        let response = world.poll(agent, 1, json!({"ack": acks})).await;
        if response.status.as_u16() != 200 {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        }
        let directives = response.json()["directives"].as_array().unwrap().clone();
        acks = directives.iter().map(|one| one["id"].as_str().unwrap().to_string()).collect();
        for offer in directives.iter().filter(|one| one["type"] == "offer") {
            let job: JobId = offer["job"].as_str().unwrap().parse().unwrap();
            let execution = claim_with_timeouts(world, agent, job).await;
            let before = won.lock().unwrap().insert(job, execution.clone());
            assert_eq!(before, None, "{job} has two winners");
            let started = json!({"type": "started", "payload": {}});
            retry_when_asked(|| world.report(agent, job, &execution, 1, started.clone())).await;
            let sha256 = hex::encode(Sha256::digest(b""));
            let last = json!({"type": "finished", "payload":
                {"outcome": "succeeded", "log_len": 0, "log_sha256": sha256}});
            retry_when_asked(|| world.report(agent, job, &execution, 2, last.clone())).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_job_has_one_winner_despite_aborted_calls() {
    let world = Arc::new(World::new().await);
    let mut agents = vec![];
    for _ in 0..RUNNERS {
        let mut agent = world.enrolled(Purpose::Build).await;
        world.open(&mut agent, "j", json!([])).await;
        agents.push(agent);
    }
    let won = Arc::new(Mutex::new(HashMap::new()));
    let runners: Vec<_> = agents
        .into_iter()
        .map(|agent| {
            let (world, won) = (Arc::clone(&world), Arc::clone(&won));
            tokio::spawn(async move { run_worker(&world, &agent, &won).await })
        })
        .collect();
    let mut jobs = vec![];
    for _ in 0..JOBS {
        jobs.push(world.queue_build().await);
    }
    for runner in runners {
        runner.await.unwrap();
    }
    for job in jobs {
        assert_eq!(
            world.event_types(job).await,
            ["queued", "claimed", "started", "succeeded", "log_finalized"]
        );
    }
}

const MANY_RUNNERS: usize = 32;
const MANY_JOBS: usize = 1_000;

/// Polls, and claims offered jobs and some others, until none is left.
async fn claim_all(
    world: &World,
    agent: &Agent,
    pile: &[JobId],
    won: &Mutex<HashMap<JobId, String>>,
) {
    let mut acks: Vec<String> = vec![];
    while won.lock().unwrap().len() < pile.len() {
        let response = world.poll(agent, 1, json!({"ack": acks, "free_slots": MANY_JOBS})).await;
        let directives = response.json()["directives"].as_array().cloned().unwrap_or_default();
        acks = directives.iter().map(|one| one["id"].as_str().unwrap().to_string()).collect();
        let offers = directives.iter().filter(|one| one["type"] == "offer");
        let mut claimable: Vec<JobId> =
            offers.map(|offer| offer["job"].as_str().unwrap().parse().unwrap()).collect();
        // Jobs offered to other runners are claimed as well, because an offer is only a hint.
        let open: Vec<JobId> = {
            let won = won.lock().unwrap();
            pile.iter().filter(|job| !won.contains_key(job)).copied().collect()
        };
        let from = rand::thread_rng().gen_range(0..open.len().max(1));
        claimable.extend(open.iter().cycle().skip(from).take(8));
        for job in claimable {
            let claim_id = ulid::Ulid::new().to_string();
            let mut response = world.claim(agent, job, &claim_id).await;
            while matches!(response.status.as_u16(), 429 | 503) {
                tokio::time::sleep(Duration::from_millis(50)).await;
                response = world.claim(agent, job, &claim_id).await;
            }
            match response.status.as_u16() {
                200 => {
                    let execution = response.json()["execution"].as_str().unwrap().to_string();
                    let before = won.lock().unwrap().insert(job, execution);
                    assert_eq!(before, None, "{job} has two winners");
                }
                409 => assert_eq!(response.json()["code"], "claimed_by_other"),
                status => panic!("{job} {status} {}", response.json()),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousand_jobs_are_claimed_once_each_by_many_runners() {
    let world = Arc::new(World::new().await);
    let mut agents = vec![];
    for _ in 0..MANY_RUNNERS {
        let mut agent = world.enrolled(Purpose::Build).await;
        world.open(&mut agent, "j", json!([])).await;
        agents.push(agent);
    }
    let pile = futures::future::join_all((0..MANY_JOBS).map(|_| world.queue_build())).await;
    let (pile, won) = (Arc::new(pile), Arc::new(Mutex::new(HashMap::new())));
    let crowd = agents.into_iter().map(|agent| {
        let (world, pile, won) = (Arc::clone(&world), Arc::clone(&pile), Arc::clone(&won));
        tokio::spawn(async move { claim_all(&world, &agent, &pile, &won).await })
    });
    for runner in futures::future::join_all(crowd).await {
        runner.unwrap();
    }
    // Each job was claimed once, by the runner that got the successful response.
    let claims: Vec<(String, String)> = sqlx::query_as(
        "select aggregate_id, payload::jsonb ->> 'execution' from log_event \
         where event_type = 'job.claimed'",
    )
    .fetch_all(&world.app.pool)
    .await
    .unwrap();
    assert_eq!(claims.len(), MANY_JOBS);
    let claims: HashMap<JobId, String> =
        claims.into_iter().map(|(job, by)| (job.parse().unwrap(), by)).collect();
    assert_eq!(claims, *won.lock().unwrap());
}
