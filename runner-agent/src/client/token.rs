//! Access tokens: asked for with the identity key, used for a few minutes, never written down.
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use domain::ids::RunnerId;
use reqwest::Method;
use schemas::{
    problem::Problem,
    runner::{SessionOpened, TokenRequest, TokenResponse},
    token::{AUD_TOKEN, Assertion},
};
use tokio::sync::Mutex;
use zeroize::Zeroizing;

use super::{Ask, Backoff, Client, Refused};
use crate::{host, keys::IdentityKey};

/// Where a runner's tokens come from.
pub struct Tokens {
    runner: RunnerId,
    identity: IdentityKey,
    /// Of the session that is open.
    generation: AtomicU64,
    held: Mutex<Option<Held>>,
}

struct Held {
    token: Zeroizing<String>,
    renew_at: Instant,
}

impl Held {
    fn of(token: &str, expires_in_s: u64) -> Self {
        let good_for = Duration::from_secs(expires_in_s).mul_f32(0.8);
        Held { token: Zeroizing::new(token.to_owned()), renew_at: Instant::now() + good_for }
    }
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokens").field("runner", &self.runner).finish_non_exhaustive()
    }
}

impl Tokens {
    /// The tokens of one runner.
    pub fn new(runner: RunnerId, identity: IdentityKey) -> Self {
        Tokens { runner, identity, generation: AtomicU64::new(0), held: Mutex::new(None) }
    }

    /// Do not use the token again.
    pub async fn forget(&self) {
        *self.held.lock().await = None;
    }

    /// A session is open: what was got for the former one is good for nothing any more.
    pub async fn opened(&self, opened: &SessionOpened) {
        let mut held = self.held.lock().await;
        self.generation.store(opened.generation, Ordering::Relaxed);
        *held = Some(Held::of(&opened.access_token, opened.expires_in_s));
    }

    /// A token that is good for a while yet. Callers that come together share one request.
    pub async fn current(&self, client: &Client) -> Result<Zeroizing<String>, Refused> {
        let mut held = self.held.lock().await;
        if let Some(held) = held.as_ref().filter(|held| Instant::now() < held.renew_at) {
            return Ok(held.token.clone());
        }
        let fresh = self.fetch(client).await?;
        let fresh = Held::of(&fresh.access_token, fresh.expires_in_s);
        let token = fresh.token.clone();
        *held = Some(fresh);
        Ok(token)
    }

    async fn fetch(&self, client: &Client) -> Result<TokenResponse, Refused> {
        let mut clock_corrected = false;
        // One for all rounds: a server that comes back must not meet everyone at once.
        let mut backoff = Backoff::new(super::IDLE_CAP);
        loop {
            // Signed anew for each round of tries: an assertion is good for 60 s.
            let asked =
                tokio::time::timeout(Duration::from_secs(45), self.ask(client, &mut backoff)).await;
            match asked {
                Ok(Err(refused)) if refused.status == 401 && !clock_corrected => {
                    clock_corrected = true;
                    client.correct_clock(&refused);
                }
                Ok(answered) => return answered,
                Err(_) => {}
            }
        }
    }

    async fn ask(&self, client: &Client, backoff: &mut Backoff) -> Result<TokenResponse, Refused> {
        let now = host::server_now().timestamp();
        let assertion = Assertion {
            sub: self.runner,
            aud: AUD_TOKEN.into(),
            jti: ulid::Ulid::new().to_string(),
            iat: now,
            exp: now + 60,
            generation: self.generation.load(Ordering::Relaxed),
        };
        let assertion = self.identity.assert(&assertion).map_err(|error| ours(&error))?;
        let ask = Ask::json(Method::POST, "/runner/v1/token", &TokenRequest { assertion });
        let ask = ask.map_err(|error| ours(&error))?.without_token().idle();
        let answer = client.send_with::<TokenResponse>(&ask, backoff).await?;
        let body = answer.body.ok_or_else(|| ours(&"the answer is empty"))?;
        host::server_said(body.server_time);
        Ok(body)
    }
}

/// Something that cannot go wrong went wrong on our side.
pub(super) fn ours(why: &dyn std::fmt::Display) -> Refused {
    let problem = Problem::new(0, "internal", "The runner could not ask", why.to_string());
    Refused { status: 0, problem, have: None }
}
