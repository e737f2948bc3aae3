//! A simulated runner that speaks the protocol and does no work.
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use bytes::Bytes;
use domain::ids::{ExecutionId, JobId, RunnerId, SessionId};
use ed25519_dalek::SigningKey;
use http_body_util::Full;
use hyper::{
    Method, Request, StatusCode,
    header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_RANGE, CONTENT_TYPE},
    http::request,
};
use rand::Rng as _;
use schemas::{
    runner::{EXECUTION, Outcome, REPR_DIGEST},
    token::{AUD_SESSION, SessionAssertion, sign},
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use ulid::Ulid;

use crate::{
    chunk::Chunk,
    wire::{Error, HttpResponse, Wire},
};

/// More slots than any real runner has. The server prefers the runner with the most free slots. A
/// runner that just got a job therefore comes last, so that no runner exceeds its poll rate.
pub const MANY_SLOTS: u32 = 1_000_000;

/// Timeout of a long poll in seconds.
const POLL_TIMEOUT_S: u32 = 50;

/// Number of responses that asked for a later retry.
pub static RETRY_LATER_RESPONSES: AtomicU64 = AtomicU64::new(0);

/// An enrolled runner with a session.
pub struct Agent {
    wire: Wire,
    token: String,
    session: SessionId,
    generation: u64,
    acks: Vec<Value>,
    free: u32,
}

impl Agent {
    /// Enrols, gets a token and opens a session, over its own connection.
    pub async fn enrol(server: &str, token: &str) -> Agent {
        Agent::enrol_over(Wire::to(server), token, MANY_SLOTS).await
    }

    /// Enrols over this connection, with this number of slots.
    pub async fn enrol_over(wire: Wire, token: &str, slots: u32) -> Agent {
        let key = SigningKey::generate(&mut rand::rngs::OsRng);
        let mut agent = Agent {
            wire,
            token: String::new(),
            session: SessionId(Ulid::new()),
            generation: 0,
            acks: Vec::new(),
            free: slots,
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
        let opening =
            SessionAssertion { sub, aud, iat, exp, session, boot_id, journal_id, process_id };
        let open = json!({
            "assertion": sign(&opening, &key).unwrap(), "pid": 1, "version": "1.0.0",
            "protocol": {"min": 1, "max": 1}, "slots": slots, "journal": [], "capabilities": ["build"],
            "features": [schemas::secret::FEATURE],
        });
        let opened = agent.ok(Method::POST, "sessions", &open).await;
        agent.token = opened["access_token"].as_str().unwrap().to_string();
        agent.generation = opened["generation"].as_u64().unwrap();
        agent
    }

    /// Waits for work and returns the offered jobs.
    pub async fn poll(&mut self) -> Vec<JobId> {
        self.poll_for(POLL_TIMEOUT_S).await
    }

    /// Waits for work for this number of seconds.
    pub async fn poll_for(&mut self, seconds: u32) -> Vec<JobId> {
        self.try_poll(seconds).await.unwrap()
    }

    /// Waits for work across server restarts. Like a real runner, retries after a random delay.
    pub async fn poll_on(&mut self) -> Vec<JobId> {
        let mut pause = Duration::from_millis(250);
        loop {
            if let Ok(jobs) = self.try_poll(POLL_TIMEOUT_S).await {
                return jobs;
            }
            let some = rand::thread_rng().gen_range(0.0..1.0);
            tokio::time::sleep(pause.mul_f64(some)).await;
            pause = (pause * 2).min(Duration::from_secs(10));
        }
    }

    async fn try_poll(&mut self, seconds: u32) -> Result<Vec<JobId>, Error> {
        let poll = json!({
            "session_id": self.session, "generation": self.generation, "free_slots": self.free,
            "ack": std::mem::take(&mut self.acks),
        });
        let path = format!("poll?wait={seconds}");
        let Some(response) = self.send(Method::POST, &path, &poll).await? else {
            return Ok(Vec::new());
        };
        // Skips a delay of zero, because each sleep lasts at least a millisecond.
        if let Some(delay @ 1..) = response["next"]["delay_ms"].as_u64() {
            tokio::time::sleep(Duration::from_millis(delay)).await;
        }
        let directives = response["directives"].as_array().cloned().unwrap_or_default();
        self.acks = directives.iter().map(|one| one["id"].clone()).collect();
        let offers = directives.iter().filter(|one| one["type"] == "offer");
        let jobs: Vec<_> =
            offers.map(|offer| offer["job"].as_str().unwrap().parse().unwrap()).collect();
        self.free -= u32::try_from(jobs.len()).unwrap();
        Ok(jobs)
    }

    /// Increases the number of free slots that the next poll reports.
    pub fn free(&mut self, slots: usize) {
        self.free += u32::try_from(slots).unwrap();
    }

    /// Claims a job and checks that the response has the manifest and a grant. `None` if another
    /// runner has claimed the job, or the job has finished.
    pub async fn claim(&mut self, job: JobId) -> Option<ExecutionId> {
        let claim = json!({
            "session_id": self.session, "generation": self.generation,
            "claim_id": Ulid::new().to_string(),
        });
        let claimed = self.call(Method::PUT, &format!("jobs/{job}/claim"), &claim).await?;
        assert!(claimed["grant"]["signatures"].is_array() && claimed["manifest"].is_object());
        Some(claimed["execution"].as_str().unwrap().parse().unwrap())
    }

    /// Reports start and success, with an empty log.
    pub async fn finish(&mut self, job: JobId, execution: ExecutionId) {
        self.began(job, execution).await;
        self.ended(job, execution, Outcome::Succeeded, b"").await;
    }

    /// Reports the start.
    pub async fn began(&mut self, job: JobId, execution: ExecutionId) {
        self.report(job, execution, (1, "started"), &json!({}), 0).await;
    }

    /// Reports the result. `log` is the whole log, which the server already has.
    pub async fn ended(
        &mut self,
        job: JobId,
        execution: ExecutionId,
        outcome: Outcome,
        log: &[u8],
    ) {
        let sha256 = hex::encode(Sha256::digest(log));
        let ended = json!({"outcome": outcome, "log_len": log.len(), "log_sha256": sha256});
        self.report(job, execution, (2, "finished"), &ended, log.len()).await;
    }

    async fn report(
        &mut self,
        job: JobId,
        execution: ExecutionId,
        (seq, name): (u32, &str),
        payload: &Value,
        log_len: usize,
    ) {
        let report = json!({
            "execution": execution, "seq": seq, "log_len": log_len, "type": name, "payload": payload,
        });
        self.ok(Method::POST, &format!("jobs/{job}/events"), &report).await;
    }

    /// Sends a chunk of the log. `start` is the offset of the chunk's first byte in the log.
    pub async fn log(&mut self, job: JobId, execution: ExecutionId, start: u64, chunk: &Chunk) {
        let last = start + chunk.length - 1;
        loop {
            let request = self.request(Method::PATCH, &format!("jobs/{job}/log"));
            let request = request
                .header(EXECUTION, execution.to_string())
                .header(CONTENT_RANGE, format!("bytes {start}-{last}/*"))
                .header(REPR_DIGEST, &chunk.digest)
                .header(CONTENT_TYPE, "application/x-ndjson")
                .header(CONTENT_ENCODING, "zstd");
            let request = request.body(Full::new(chunk.packed.clone())).unwrap();
            let response = self.wire.send(request).await.unwrap();
            if !must_wait(&response).await {
                response.ok();
                return;
            }
        }
    }

    async fn ok(&mut self, method: Method, path: &str, body: &Value) -> Value {
        let response = self.call(method, path, body).await;
        response.unwrap_or_else(|| panic!("{path}: the server rejected the request"))
    }

    async fn call(&mut self, method: Method, path: &str, body: &Value) -> Option<Value> {
        self.send(method, path, body).await.unwrap()
    }

    fn request(&self, method: Method, path: &str) -> request::Builder {
        let request = Request::builder().method(method).uri(format!("/runner/v1/{path}"));
        request.header(AUTHORIZATION, format!("Bearer {}", self.token))
    }

    async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Result<Option<Value>, Error> {
        let body = Bytes::from(body.to_string());
        loop {
            let request =
                self.request(method.clone(), path).header(CONTENT_TYPE, "application/json");
            let response = self.wire.send(request.body(Full::new(body.clone())).unwrap()).await?;
            match response.status {
                // No work, a job that another runner claimed, or a job that has already finished.
                StatusCode::NO_CONTENT | StatusCode::CONFLICT | StatusCode::GONE => {
                    return Ok(None);
                }
                _ if must_wait(&response).await => {}
                _ => return Ok(Some(response.ok().json())),
            }
        }
    }
}

/// Waits for a random delay if the server asked to retry later. Returns `true` in this case.
async fn must_wait(response: &HttpResponse) -> bool {
    let busy = [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE];
    if !busy.contains(&response.status) {
        return false;
    }
    RETRY_LATER_RESPONSES.fetch_add(1, Ordering::Relaxed);
    // Randomized as in a real runner, so that runners do not retry at the same time.
    let some = rand::thread_rng().gen_range(0.5..1.5);
    tokio::time::sleep(Duration::from_secs_f64(some)).await;
    true
}
