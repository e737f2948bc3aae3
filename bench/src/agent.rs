//! A runner that speaks the protocol and does no work.
use std::{
    net::{IpAddr, Ipv4Addr},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use domain::ids::{ExecutionId, JobId, RunnerId, SessionId};
use ed25519_dalek::SigningKey;
use rand::Rng as _;
use reqwest::{Client, Method, StatusCode};
use schemas::token::{AUD_SESSION, Opening, sign};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use ulid::Ulid;

/// More room than any runner has: the server prefers who has most, so whoever has had a job comes last, and
/// no runner polls more often than it may.
const SLOTS: u32 = 1_000_000;

/// How many calls were told to come again later.
pub static ASKED_TO_WAIT: AtomicU64 = AtomicU64::new(0);

/// An enrolled runner with a session.
pub struct Agent {
    http: Client,
    server: String,
    token: String,
    session: SessionId,
    generation: u64,
    acks: Vec<Value>,
    free: u32,
}

impl Agent {
    /// Enrol, get a token, open a session, over a connection of its own.
    pub async fn enrol(server: &str, token: &str) -> Agent {
        Agent::enrol_from(Ipv4Addr::LOCALHOST, server, token).await
    }

    /// Likewise, calling from this address: each has 28,000 ports only.
    pub async fn enrol_from(from: Ipv4Addr, server: &str, token: &str) -> Agent {
        let http = Client::builder().no_proxy().pool_max_idle_per_host(1);
        let http = http.local_address(IpAddr::V4(from)).build().unwrap();
        let key = SigningKey::generate(&mut rand::rngs::OsRng);
        let mut agent = Agent {
            http,
            server: server.to_string(),
            token: String::new(),
            session: SessionId(Ulid::new()),
            generation: 0,
            acks: Vec::new(),
            free: SLOTS,
        };
        let enrol = json!({
            "token": token, "mode": "build", "version": "1.0.0",
            "identity_key": hex::encode(key.verifying_key().as_bytes()),
            "host": {"os": "linux", "arch": "x86_64"},
        });
        let enrolled = agent.ok(Method::POST, "enrol", &enrol).await;
        let runner: RunnerId = enrolled["runner"].as_str().unwrap().parse().unwrap();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let iat = i64::try_from(now.as_secs()).unwrap();
        let (aud, boot_id) = (AUD_SESSION.to_string(), "boot".to_string());
        let (session, journal_id) = (agent.session, Ulid::new().to_string());
        let process_id = journal_id.clone();
        let (sub, exp) = (runner, iat + 60);
        let opening = Opening { sub, aud, iat, exp, session, boot_id, journal_id, process_id };
        let open = json!({
            "assertion": sign(&opening, &key).unwrap(), "pid": 1, "version": "1.0.0",
            "protocol": {"min": 1, "max": 1}, "slots": SLOTS, "journal": [], "capabilities": ["build"],
        });
        let opened = agent.ok(Method::POST, "sessions", &open).await;
        agent.token = opened["access_token"].as_str().unwrap().to_string();
        agent.generation = opened["generation"].as_u64().unwrap();
        agent
    }

    /// Wait for work; the jobs that are offered.
    pub async fn poll(&mut self) -> Vec<JobId> {
        self.try_poll().await.unwrap()
    }

    /// Likewise, however often the server goes away, as a runner does: asking again after a while that is another
    /// one for each.
    pub async fn poll_on(&mut self) -> Vec<JobId> {
        let mut pause = Duration::from_millis(250);
        loop {
            if let Ok(jobs) = self.try_poll().await {
                return jobs;
            }
            let some = rand::thread_rng().gen_range(0.0..1.0);
            tokio::time::sleep(pause.mul_f64(some)).await;
            pause = (pause * 2).min(Duration::from_secs(10));
        }
    }

    async fn try_poll(&mut self) -> reqwest::Result<Vec<JobId>> {
        let poll = json!({
            "session_id": self.session, "generation": self.generation, "free_slots": self.free,
            "ack": std::mem::take(&mut self.acks),
        });
        let Some(answer) = self.send(Method::POST, "poll?wait=50", &poll).await? else {
            return Ok(Vec::new());
        };
        if let Some(delay) = answer["next"]["delay_ms"].as_u64() {
            tokio::time::sleep(Duration::from_millis(delay)).await;
        }
        let directives = answer["directives"].as_array().cloned().unwrap_or_default();
        self.acks = directives.iter().map(|one| one["id"].clone()).collect();
        let offers = directives.iter().filter(|one| one["type"] == "offer");
        let jobs: Vec<_> =
            offers.map(|offer| offer["job"].as_str().unwrap().parse().unwrap()).collect();
        self.free -= u32::try_from(jobs.len()).unwrap();
        Ok(jobs)
    }

    /// Take a job: manifest, grant and proofs, or nothing if another one has it.
    pub async fn claim(&self, job: JobId) -> Option<ExecutionId> {
        let claim = json!({
            "session_id": self.session, "generation": self.generation,
            "claim_id": Ulid::new().to_string(),
        });
        let claimed = self.call(Method::PUT, &format!("jobs/{job}/claim"), &claim).await?;
        assert!(claimed["grant"]["signatures"].is_array() && claimed["manifest"].is_object());
        Some(claimed["execution"].as_str().unwrap().parse().unwrap())
    }

    /// Say that it began and that it is done.
    pub async fn finish(&self, job: JobId, execution: ExecutionId) {
        let sha256 = hex::encode(Sha256::digest(b""));
        let done = json!({"outcome": "succeeded", "log_len": 0, "log_sha256": sha256});
        for (seq, name, payload) in [(1, "started", json!({})), (2, "finished", done)] {
            let report = json!({
                "execution": execution, "seq": seq, "log_len": 0, "type": name, "payload": payload,
            });
            self.ok(Method::POST, &format!("jobs/{job}/events"), &report).await;
        }
    }

    async fn ok(&self, method: Method, path: &str, body: &Value) -> Value {
        let answer = self.call(method, path, body).await;
        answer.unwrap_or_else(|| panic!("{path} was refused"))
    }

    async fn call(&self, method: Method, path: &str, body: &Value) -> Option<Value> {
        self.send(method, path, body).await.unwrap()
    }

    /// `None` when the server has nothing to say or another runner was first.
    async fn send(
        &self,
        method: Method,
        path: &str,
        body: &Value,
    ) -> reqwest::Result<Option<Value>> {
        let url = format!("{}/runner/v1/{path}", self.server);
        loop {
            let call = self.http.request(method.clone(), &url).bearer_auth(&self.token).json(body);
            let answer = call.send().await?;
            match answer.status() {
                StatusCode::NO_CONTENT | StatusCode::CONFLICT | StatusCode::GONE => {
                    return Ok(None);
                }
                // As a runner does: later, and not all at once.
                StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                    ASKED_TO_WAIT.fetch_add(1, Ordering::Relaxed);
                    let some = rand::thread_rng().gen_range(0.5..1.5);
                    tokio::time::sleep(Duration::from_secs_f64(some)).await;
                }
                status if status.is_success() => return Ok(Some(answer.json().await?)),
                status => panic!("{path}: {status} {}", answer.text().await.unwrap_or_default()),
            }
        }
    }
}
