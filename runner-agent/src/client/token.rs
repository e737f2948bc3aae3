//! Access tokens. The identity key signs the request for a token. The server limits the lifetime of
//! a token, and the runner never writes a token to disk.
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use domain::ids::RunnerId;
use reqwest::Method;
use schemas::{
    problem::Problem,
    runner::{SessionOpened, TokenRequest, TokenResponse},
    token::{AUD_TOKEN, TokenAssertion},
};
use tokio::sync::Mutex;
use zeroize::Zeroizing;

use super::{ApiRequest, Backoff, Client, ServerRejection};
use crate::{host, ids, keys::IdentityKey};

/// Source of a runner's access tokens.
pub struct Tokens {
    runner: RunnerId,
    identity: IdentityKey,
    /// Generation of the newest session; 0 before the first one.
    generation: AtomicU64,
    cached: Mutex<Option<CachedToken>>,
}

struct CachedToken {
    token: Zeroizing<String>,
    renew_at: Instant,
}

impl CachedToken {
    fn of(token: &str, expires_in_s: u64) -> Self {
        let valid_for = Duration::from_secs(expires_in_s).mul_f32(0.8);
        CachedToken {
            token: Zeroizing::new(token.to_owned()),
            renew_at: Instant::now() + valid_for,
        }
    }
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokens").field("runner", &self.runner).finish_non_exhaustive()
    }
}

impl Tokens {
    pub fn new(runner: RunnerId, identity: IdentityKey) -> Self {
        Tokens { runner, identity, generation: AtomicU64::new(0), cached: Mutex::new(None) }
    }

    /// Returns a source of tokens for a session that another process has opened.
    pub fn of_session(runner: RunnerId, identity: IdentityKey, generation: u64) -> Self {
        let tokens = Tokens::new(runner, identity);
        tokens.generation.store(generation, Ordering::Relaxed);
        tokens
    }

    /// Drops the cached token.
    pub async fn forget(&self) {
        *self.cached.lock().await = None;
    }

    /// Uses the token of a new session. The token of the former session is no longer valid.
    pub async fn opened(&self, opened: &SessionOpened) {
        let mut cached = self.cached.lock().await;
        self.generation.store(opened.generation, Ordering::Relaxed);
        *cached = Some(CachedToken::of(&opened.access_token, opened.expires_in_s));
    }

    /// Returns a token with at least 20 % of its lifetime left. Concurrent callers share one
    /// request.
    pub async fn current(&self, client: &Client) -> Result<Zeroizing<String>, ServerRejection> {
        let mut cached = self.cached.lock().await;
        if let Some(cached) = cached.as_ref().filter(|cached| Instant::now() < cached.renew_at) {
            return Ok(cached.token.clone());
        }
        let fresh = self.fetch(client).await?;
        let fresh = CachedToken::of(&fresh.access_token, fresh.expires_in_s);
        let token = fresh.token.clone();
        *cached = Some(fresh);
        Ok(token)
    }

    async fn fetch(&self, client: &Client) -> Result<TokenResponse, ServerRejection> {
        let mut clock_corrected = false;
        // Share one back-off among all attempts, so that runners do not all call a recovered server
        // at once.
        let mut backoff = Backoff::new(super::IDLE_CAP);
        loop {
            // Sign a new assertion for each attempt, because an assertion is valid for 60 s.
            let attempt = tokio::time::timeout(
                Duration::from_secs(45),
                self.request_token(client, &mut backoff),
            )
            .await;
            match attempt {
                Ok(Err(rejection)) if rejection.status == 401 && !clock_corrected => {
                    clock_corrected = true;
                    client.correct_clock(&rejection);
                }
                Ok(result) => return result,
                Err(_) => {}
            }
        }
    }

    async fn request_token(
        &self,
        client: &Client,
        backoff: &mut Backoff,
    ) -> Result<TokenResponse, ServerRejection> {
        let now = host::server_now().timestamp();
        let assertion = TokenAssertion {
            sub: self.runner,
            aud: AUD_TOKEN.into(),
            jti: ids::new_ulid().to_string(),
            iat: now,
            exp: now + 60,
            generation: self.generation.load(Ordering::Relaxed),
        };
        let assertion = self.identity.assert(&assertion).map_err(|error| local_error(&error))?;
        let request =
            ApiRequest::json(Method::POST, "/runner/v1/token", &TokenRequest { assertion });
        let request = request.map_err(|error| local_error(&error))?.without_token().idle();
        let response = client.send_with::<TokenResponse>(&request, backoff).await?;
        let body = response.body.ok_or_else(|| local_error(&"the response has no body"))?;
        host::set_server_time(body.server_time);
        Ok(body)
    }
}

/// Returns a rejection for an error of the runner itself, for example if it cannot sign the
/// request.
pub(super) fn local_error(why: &dyn std::fmt::Display) -> ServerRejection {
    let problem =
        Problem::new(0, "internal", "The runner cannot complete the request", why.to_string());
    ServerRejection { status: 0, problem, have: None }
}
