//! Many runners, many jobs, calls that are given up half-way: each job has one winner.
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use domain::{enrolment::Purpose, ids::JobId};
use rand::Rng as _;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::world::{Agent, Said, World};

const JOBS: usize = 100;
const RUNNERS: usize = 8;

/// Claim with a patience that often ends too early, again and again under the same key.
async fn insist(world: &World, agent: &Agent, job: JobId) -> String {
    let claim_id = ulid::Ulid::new().to_string();
    loop {
        let patience = Duration::from_millis(rand::thread_rng().gen_range(5..60));
        let call = world.claim(agent, job, &claim_id);
        let Ok(said) = tokio::time::timeout(patience, call).await else { continue };
        match said.status.as_u16() {
            200 => return said.json()["execution"].as_str().unwrap().to_string(),
            429 | 503 => tokio::time::sleep(Duration::from_millis(20)).await,
            status => panic!("{job} {status} {}", said.json()),
        }
    }
}

/// Call again when the server asks to, as agents do.
async fn patiently<F: Future<Output = Said>>(call: impl Fn() -> F) {
    loop {
        let said = call().await;
        match said.status.as_u16() {
            429 | 503 => tokio::time::sleep(Duration::from_millis(100)).await,
            _ => {
                said.ok();
                return;
            }
        }
    }
}

async fn works(world: &World, agent: &Agent, won: &Mutex<HashMap<JobId, String>>) {
    let mut acks: Vec<String> = vec![];
    while won.lock().unwrap().len() < JOBS {
        let said = world.poll(agent, 1, json!({"ack": acks})).await;
        if said.status.as_u16() != 200 {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        }
        let directives = said.json()["directives"].as_array().unwrap().clone();
        acks = directives.iter().map(|one| one["id"].as_str().unwrap().to_string()).collect();
        for offer in directives.iter().filter(|one| one["type"] == "offer") {
            let job: JobId = offer["job"].as_str().unwrap().parse().unwrap();
            let execution = insist(world, agent, job).await;
            let before = won.lock().unwrap().insert(job, execution.clone());
            assert_eq!(before, None, "{job} has two winners");
            let started = json!({"type": "started", "payload": {}});
            patiently(|| world.report(agent, job, &execution, 1, started.clone())).await;
            let sha256 = hex::encode(Sha256::digest(b""));
            let last = json!({"type": "finished", "payload":
                {"outcome": "succeeded", "log_len": 0, "log_sha256": sha256}});
            patiently(|| world.report(agent, job, &execution, 2, last.clone())).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_job_has_one_winner_whoever_gives_up_half_way() {
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
            tokio::spawn(async move { works(&world, &agent, &won).await })
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
            world.story(job).await,
            ["queued", "claimed", "started", "succeeded", "log_sealed"]
        );
    }
}
