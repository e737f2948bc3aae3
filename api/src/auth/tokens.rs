//! Tokens that the server signs and verifies without a lookup.
use std::{
    collections::HashMap,
    sync::{PoisonError, RwLock},
};

use domain::{
    decider::Timestamp,
    ids::{ExecutionId, InstallId, JobId, RunnerId},
};
use ed25519_dalek::{SigningKey, VerifyingKey};
use schemas::{
    keys::KeyUse,
    manifest::Fence,
    runner::RunnerMode,
    token::{AUD_JOB, AUD_RUNNER, AccessClaims, JobClaims, TokenError, sign, verify},
};
use serde::{Serialize, de::DeserializeOwned};

use super::secret;
use crate::{
    ids,
    keys::KeySet,
    problem::{Code, Problem},
};

/// Lifetime of an access token in seconds.
pub(crate) const ACCESS_SECONDS: u64 = 15 * 60;
/// Seconds for which a job token stays valid after the deadline of its execution, for the last
/// report.
const GRACE_SECONDS: i64 = 10 * 60;
/// Maximum number of cached verified tokens. With the cache, a request costs a hash instead of a
/// signature verification.
const MAX_CACHED: usize = 32_768;

/// Signs and verifies the access tokens and job tokens of one log.
pub(crate) struct Tokens {
    keys: RwLock<TokenKeys>,
    issuer: String,
    access: ClaimsCache<AccessClaims>,
    jobs: ClaimsCache<JobClaims>,
}

/// Signing key, and former keys with the time until which they are valid.
struct TokenKeys {
    signing_key: SigningKey,
    former: Vec<(VerifyingKey, Timestamp)>,
}

type ClaimsCache<C> = RwLock<HashMap<[u8; 32], CachedClaims<C>>>;

/// Claims of a token, and the end of the validity of its key. `until` is `None` for the current
/// key.
#[derive(Clone)]
struct CachedClaims<C> {
    claims: C,
    until: Option<Timestamp>,
}

impl Tokens {
    /// Creates the signer and verifier of tokens for one log.
    pub(crate) fn new(keys: &KeySet, log_id: &str) -> Self {
        let (access, jobs) = (RwLock::default(), RwLock::default());
        let keys = RwLock::new(TokenKeys::of(keys));
        Tokens { keys, issuer: format!("stead/{log_id}"), access, jobs }
    }

    /// Replaces the keys after a rotation.
    pub(crate) fn replace_keys(&self, keys: &KeySet) {
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = TokenKeys::of(keys);
        // The cached tokens may have a shorter validity now.
        self.access.write().unwrap_or_else(PoisonError::into_inner).clear();
        self.jobs.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn sign<C: Serialize>(&self, claims: &C) -> Result<String, TokenError> {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        sign(claims, &keys.signing_key)
    }

    /// Issues an access token for the Runner API. The token belongs to one session and is valid for
    /// 15 minutes.
    pub(crate) fn access(
        &self,
        runner: RunnerId,
        (mode, install): (RunnerMode, Option<InstallId>),
        generation: u64,
        now: Timestamp,
    ) -> Result<String, TokenError> {
        let (iat, aud) = (now.timestamp(), AUD_RUNNER.to_string());
        let exp = iat.saturating_add_unsigned(ACCESS_SECONDS);
        let (iss, jti) = (self.issuer.clone(), ids::new_ulid().to_string());
        let sub = runner;
        self.sign(&AccessClaims { sub, aud, iss, jti, iat, exp, generation, mode, install })
    }

    /// Issues a job token for the registry and the blobs of one execution, valid until ten minutes
    /// after the deadline.
    pub(crate) fn job(
        &self,
        runner: RunnerId,
        job: JobId,
        execution: ExecutionId,
        fence: Fence,
        deadline: Timestamp,
        now: Timestamp,
    ) -> Result<String, TokenError> {
        let (iat, aud, iss) = (now.timestamp(), AUD_JOB.to_string(), self.issuer.clone());
        let exp = deadline.timestamp().saturating_add(GRACE_SECONDS);
        self.sign(&JobClaims { sub: runner, aud, iss, iat, exp, job, execution, fence })
    }

    /// Verifies an access token and returns its claims.
    pub(crate) fn read_access(&self, token: &str, now: Timestamp) -> Result<AccessClaims, Problem> {
        let claims: AccessClaims = self.read(&self.access, token, now, |claims| claims.exp)?;
        check(&claims.aud, AUD_RUNNER, &claims.iss, &self.issuer, claims.exp, now)?;
        // The server signs no token with a longer lifetime.
        if claims.exp.saturating_sub(claims.iat) > ACCESS_SECONDS.cast_signed() {
            let detail = "token rejected: its lifetime is longer than this server permits; request a new access token";
            return Err(Problem::new(Code::TokenUnknown, detail));
        }
        Ok(claims)
    }

    /// Verifies a job token and returns its claims.
    pub(crate) fn read_job(&self, token: &str, now: Timestamp) -> Result<JobClaims, Problem> {
        let claims: JobClaims = self.read(&self.jobs, token, now, |claims| claims.exp)?;
        check(&claims.aud, AUD_JOB, &claims.iss, &self.issuer, claims.exp, now)?;
        Ok(claims)
    }

    /// Verifies a job token without its expiry, for a caller that checks in the log whether the
    /// execution still has its job. The clocks of two servers can differ by more than the lifetime of
    /// a token.
    pub(crate) fn read_job_of_any_time(
        &self,
        token: &str,
        now: Timestamp,
    ) -> Result<JobClaims, Problem> {
        let claims: JobClaims = self.read(&self.jobs, token, now, |claims| claims.exp)?;
        check(&claims.aud, AUD_JOB, &claims.iss, &self.issuer, i64::MAX, now)?;
        Ok(claims)
    }

    fn read<C: DeserializeOwned + Clone>(
        &self,
        cache: &ClaimsCache<C>,
        token: &str,
        now: Timestamp,
        exp: impl Fn(&C) -> i64,
    ) -> Result<C, Problem> {
        let hash = secret::hash(token);
        let known = cache.read().unwrap_or_else(PoisonError::into_inner).get(&hash).cloned();
        if let Some(known) = known.filter(|known| known.until.is_none_or(|until| now < until)) {
            return Ok(known.claims);
        }
        // Holds the keys until the token is cached. Otherwise a token of a withdrawn key could be
        // cached after the cache was cleared.
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        let cached: CachedClaims<C> = keys.verify(token, now).map_err(|error| match error {
            TokenError::Malformed => Problem::new(
                Code::TokenTypeMismatch,
                "token rejected: it is not a signed token; use an access token or a job token",
            ),
            TokenError::Signature => Problem::new(
                Code::TokenUnknown,
                "token rejected: this server did not issue it; use a token of this server",
            ),
        })?;
        let mut cache = cache.write().unwrap_or_else(PoisonError::into_inner);
        if cache.len() >= MAX_CACHED {
            cache.retain(|_, cached| exp(&cached.claims) > now.timestamp());
        }
        if cache.len() < MAX_CACHED {
            cache.insert(hash, cached.clone());
        }
        Ok(cached.claims)
    }
}

impl TokenKeys {
    fn of(keys: &KeySet) -> Self {
        let former = keys.former(KeyUse::Tokens).map(|former| (former.key, former.ended_at));
        TokenKeys { signing_key: keys.tokens().clone(), former: former.collect() }
    }

    fn verify<C: DeserializeOwned>(
        &self,
        token: &str,
        now: Timestamp,
    ) -> Result<CachedClaims<C>, TokenError> {
        let mut read = verify(token, &[self.signing_key.verifying_key()])
            .map(|claims| CachedClaims { claims, until: None });
        for (key, until) in self.former.iter().filter(|(_, until)| now < *until) {
            if !matches!(read, Err(TokenError::Signature)) {
                break;
            }
            let until = Some(*until);
            read = verify(token, &[*key]).map(|claims| CachedClaims { claims, until });
        }
        read
    }
}

fn check(
    aud: &str,
    audience: &str,
    iss: &str,
    issuer: &str,
    exp: i64,
    now: Timestamp,
) -> Result<(), Problem> {
    if aud != audience {
        let detail = format!(
            "token rejected: it is for {aud}, but this request requires a token for {audience}"
        );
        return Err(Problem::new(Code::TokenTypeMismatch, detail));
    }
    if iss != issuer {
        return Err(Problem::new(
            Code::TokenUnknown,
            "token rejected: it belongs to another log; use a token of this server",
        ));
    }
    if exp <= now.timestamp() {
        return Err(Problem::new(
            Code::TokenExpired,
            "token rejected: it has expired; get a new token",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use ulid::Ulid;

    use super::*;
    use crate::keys::{Keys, rotate};

    const LOG: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAV";

    fn now() -> Timestamp {
        Timestamp::from_timestamp(1_700_000_000, 0).unwrap()
    }

    fn keys() -> (tempfile::TempDir, Keys) {
        let dir = tempfile::tempdir().unwrap();
        let keys = Keys::open(dir.path(), now()).unwrap();
        (dir, keys)
    }

    #[test]
    fn former_key_token_is_valid_until_its_key_ends() {
        let (dir, keys) = keys();
        let tokens = Tokens::new(&keys.current(), LOG);
        let runner = RunnerId(Ulid::new());
        let token = tokens.access(runner, (RunnerMode::Build, None), 1, now()).unwrap();
        tokens.read_access(&token, now()).unwrap();
        let end = now() + chrono::TimeDelta::minutes(5);
        rotate(dir.path(), KeyUse::Tokens, end, now()).unwrap();
        tokens.replace_keys(&keys.reload_if_changed().unwrap().unwrap());
        // The second iteration reads from the cache.
        for _ in 0..2 {
            assert_eq!(tokens.read_access(&token, now()).unwrap().sub, runner);
            assert_eq!(tokens.read_access(&token, end).unwrap_err().code, Code::TokenUnknown);
        }
        let next = tokens.access(runner, (RunnerMode::Build, None), 1, end).unwrap();
        assert_eq!(tokens.read_access(&next, end).unwrap().sub, runner);
    }

    #[test]
    fn verified_token_is_cached_before_keys_can_be_replaced() {
        let (_dir, keys) = keys();
        let tokens = Tokens::new(&keys.current(), LOG);
        let runner = RunnerId(Ulid::new());
        let token = tokens.access(runner, (RunnerMode::Build, None), 1, now()).unwrap();
        // Given a request that has verified its token and waits to cache the claims.
        let held = tokens.access.read().unwrap();
        std::thread::scope(|scope| {
            let reading = scope.spawn(|| tokens.read_access(&token, now()).map(|_| ()));
            let since = std::time::Instant::now();
            // A waiting writer blocks new readers.
            while tokens.access.try_read().is_ok() {
                assert!(since.elapsed() < std::time::Duration::from_secs(10));
                std::thread::yield_now();
            }
            // Then the keys cannot be replaced yet.
            assert!(tokens.keys.try_write().is_err());
            drop(held);
            reading.join().unwrap().unwrap();
        });
        assert!(tokens.keys.try_write().is_ok());
    }

    #[test]
    fn access_token_with_longer_lifetime_is_rejected() {
        let (_dir, keys) = keys();
        let tokens = Tokens::new(&keys.current(), LOG);
        let runner = RunnerId(Ulid::new());
        let token = tokens.access(runner, (RunnerMode::Build, None), 1, now()).unwrap();
        let mut claims = tokens.read_access(&token, now()).unwrap();
        claims.exp += 1;
        let token = tokens.sign(&claims).unwrap();
        assert_eq!(tokens.read_access(&token, now()).unwrap_err().code, Code::TokenUnknown);
    }

    #[test]
    fn access_token_is_valid_for_fifteen_minutes_on_this_server() {
        let (_dir, own_keys) = keys();
        let tokens = Tokens::new(&own_keys.current(), LOG);
        let runner = RunnerId(Ulid::new());
        let token = tokens.access(runner, (RunnerMode::Build, None), 1, now()).unwrap();
        // The second iteration reads from the cache.
        for _ in 0..2 {
            assert_eq!(tokens.read_access(&token, now()).unwrap().sub, runner);
            let later = now() + chrono::TimeDelta::minutes(15);
            assert_eq!(tokens.read_access(&token, later).unwrap_err().code, Code::TokenExpired);
        }
        let (_dir, other_keys) = keys();
        let other_key = Tokens::new(&other_keys.current(), LOG);
        assert_eq!(other_key.read_access(&token, now()).unwrap_err().code, Code::TokenUnknown);
        let other_log = Tokens::new(&own_keys.current(), "01ARZ3NDEKTSV4RRFFQ69G5FAW");
        assert_eq!(other_log.read_access(&token, now()).unwrap_err().code, Code::TokenUnknown);
    }

    #[test]
    fn job_tokens_and_access_tokens_are_not_interchangeable() {
        let (_dir, keys_of_server) = keys();
        let tokens = Tokens::new(&keys_of_server.current(), LOG);
        let (runner, job) = (RunnerId(Ulid::new()), JobId(Ulid::new()));
        let (execution, fence) = (ExecutionId(Ulid::new()), Fence { epoch: 1, position: 9 });
        let job_token = tokens.job(runner, job, execution, fence, now(), now()).unwrap();
        assert_eq!(tokens.read_job(&job_token, now()).unwrap().fence, fence);
        assert_eq!(
            tokens.read_access(&job_token, now()).unwrap_err().code,
            Code::TokenTypeMismatch
        );
        let access = tokens.access(runner, (RunnerMode::Build, None), 1, now()).unwrap();
        assert_eq!(tokens.read_job(&access, now()).unwrap_err().code, Code::TokenTypeMismatch);
        let late = now() + chrono::TimeDelta::minutes(10);
        assert_eq!(tokens.read_job(&job_token, late).unwrap_err().code, Code::TokenExpired);
        assert_eq!(tokens.read_job_of_any_time(&job_token, late).unwrap().fence, fence);
        let other = tokens.read_job_of_any_time(&access, late).unwrap_err();
        assert_eq!(other.code, Code::TokenTypeMismatch);
    }
}
