//! Callers of the Control API. Each grants and revokes a role of its own principal. It repeats each
//! change with the same idempotency key until it gets a response, so it knows the required content
//! of the log.
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use reqwest::{Client, Method};
use serde_json::{Value, json};
use tokio::{
    runtime::{Builder, Runtime},
    sync::{RwLock, RwLockWriteGuard},
    time::{sleep, timeout},
};
use ulid::Ulid;

use crate::oracle::{CallerWrite, WriteResult};

/// Timeout of one call before it is repeated.
const CALL_TIMEOUT: Duration = Duration::from_secs(4);
const RETRY_PAUSE: Duration = Duration::from_millis(100);
const GRANTED: &str = "access.role_granted";
const REVOKED: &str = "access.role_revoked";

/// Running callers.
pub struct Callers {
    shared: Arc<Shared>,
    runtime: Runtime,
}

struct Shared {
    http: Client,
    /// Shared address first, then each server's own.
    addresses: Vec<String>,
    token: String,
    responses: Mutex<Vec<CallerWrite>>,
    retries: AtomicU64,
    stopped: AtomicBool,
    /// Lock that each change holds until its response.
    change_lock: RwLock<()>,
}

impl Callers {
    /// Starts this many callers with this token. Most calls go to the first address, the rest to a
    /// random one.
    pub fn start(number: u64, seed: u64, addresses: Vec<String>, token: &str) -> Callers {
        // Fails if another test of this process has installed the provider.
        let _first = rustls::crypto::ring::default_provider().install_default();
        // One connection per call, so that the next call can reach another server.
        let http = Client::builder().no_proxy().pool_max_idle_per_host(0).timeout(CALL_TIMEOUT);
        let shared = Arc::new(Shared {
            http: http.build().unwrap(),
            addresses,
            token: token.to_string(),
            responses: Mutex::default(),
            retries: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            change_lock: RwLock::default(),
        });
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().unwrap();
        for number in 1..=number {
            let random = StdRng::seed_from_u64(seed.wrapping_add(number));
            runtime.spawn(Caller { shared: Arc::clone(&shared), random }.call());
        }
        Callers { shared, runtime }
    }

    /// Waits until every started change has a response. No change starts while the returned guard
    /// is held.
    pub fn pause(&self, limit: Duration) -> Option<RwLockWriteGuard<'_, ()>> {
        self.runtime.block_on(async { timeout(limit, self.shared.change_lock.write()).await.ok() })
    }

    /// Returns the responses so far.
    pub fn responses(&self) -> Vec<CallerWrite> {
        self.shared.responses.lock().unwrap().clone()
    }

    /// Returns the number of repeated calls.
    pub fn retries(&self) -> u64 {
        self.shared.retries.load(Ordering::Relaxed)
    }

    /// Stops new changes.
    pub fn stop(&self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
    }
}

struct Caller {
    shared: Arc<Shared>,
    random: StdRng,
}

impl Caller {
    async fn call(mut self) {
        let shared = Arc::clone(&self.shared);
        let principal = {
            let _change_lock = shared.change_lock.read().await;
            let made = self
                .send_until_confirmed(Method::POST, "/v1/tokens", &json!({"role": "auditor"}))
                .await;
            let (principal, position) = (text(&made, "principal"), number(&made));
            let all = ["access.principal_added", GRANTED, "access.token_issued"];
            for (event, position) in all.into_iter().zip(position - 2..) {
                shared.record(&principal, WriteResult::Written { event: event.into(), position });
            }
            principal
        };
        let path = format!("/v1/principals/{principal}/roles/auditor");
        while !shared.stopped.load(Ordering::SeqCst) {
            let change_lock = shared.change_lock.read().await;
            // On average, half of the requests match the existing state and change nothing.
            let (method, event) = match self.random.gen_bool(0.5) {
                true => (Method::PUT, GRANTED),
                false => (Method::DELETE, REVOKED),
            };
            let done = self.send_until_confirmed(method, &path, &Value::Null).await;
            let (event, position) = (event.to_string(), number(&done));
            let result = match done["changed"].as_bool().unwrap() {
                true => WriteResult::Written { event, position },
                false => WriteResult::Already {
                    event,
                    among: vec![GRANTED.into(), REVOKED.into()],
                    position,
                },
            };
            shared.record(&principal, result);
            drop(change_lock);
            sleep(Duration::from_millis(self.random.gen_range(0..60))).await;
        }
    }

    /// Sends a change to varying servers until one confirms it.
    async fn send_until_confirmed(&mut self, method: Method, path: &str, body: &Value) -> Value {
        let key = Ulid::new().to_string();
        loop {
            // Most calls go to the shared address. Some go directly to a server that the balancer
            // may currently avoid.
            let at = match self.random.gen_bool(0.6) {
                true => 0,
                false => self.random.gen_range(0..self.shared.addresses.len()),
            };
            let url = format!("{}{path}", self.shared.addresses[at]);
            let call =
                self.shared.http.request(method.clone(), url).header("idempotency-key", &key);
            let call = if body.is_null() { call } else { call.json(body) };
            if let Ok(response) = call.bearer_auth(&self.shared.token).send().await
                && response.status().is_success()
                && let Ok(done) = response.json().await
            {
                return done;
            }
            self.shared.retries.fetch_add(1, Ordering::Relaxed);
            sleep(RETRY_PAUSE).await;
        }
    }
}

impl Shared {
    fn record(&self, principal: &str, result: WriteResult) {
        let stream = format!("access/{principal}");
        self.responses.lock().unwrap().push(CallerWrite { stream, result });
    }
}

fn text(response: &Value, name: &str) -> String {
    response[name].as_str().unwrap().to_string()
}

fn number(response: &Value) -> u64 {
    response["position"].as_u64().unwrap()
}
