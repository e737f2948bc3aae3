//! What a runner signs to get an access token: good once, and only around now.
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use domain::{decider::Timestamp, ids::RunnerId};
use ed25519_dalek::VerifyingKey;
use schemas::{
    moment,
    token::{AUD_TOKEN, Assertion, peek, verify},
};

use crate::problem::{Code, Problem};

/// How far a runner's clock may be off, seconds.
const SKEW: i64 = 5 * 60;
/// How long a used assertion is remembered, seconds: longer than it could be accepted.
const MEMORY: i64 = 2 * SKEW + 60;

/// The assertions that were used lately.
#[derive(Default)]
pub struct Assertions(Mutex<HashMap<(RunnerId, String), i64>>);

impl Assertions {
    /// Who says that it calls. Not proven: only for finding the key to [`Assertions::verify`] with.
    ///
    /// # Errors
    /// 401.
    pub fn subject(assertion: &str) -> Result<RunnerId, Problem> {
        let read: Option<Assertion> = peek(assertion);
        read.map(|claims| claims.sub).ok_or_else(|| invalid("it is no assertion"))
    }

    /// Whether this key signed it, for us, around now, and for the first time.
    ///
    /// # Errors
    /// 401, with `server_time` when it is only the clock.
    pub fn verify(
        &self,
        assertion: &str,
        identity_key: &str,
        now: Timestamp,
    ) -> Result<RunnerId, Problem> {
        let key = hex::decode(identity_key).ok().and_then(|bytes| bytes.try_into().ok());
        let key = key.and_then(|bytes: [u8; 32]| VerifyingKey::from_bytes(&bytes).ok());
        let key = key.ok_or_else(|| invalid("the runner's key is no key"))?;
        let claims: Assertion =
            verify(assertion, &[key]).map_err(|reason| invalid(&reason.to_string()))?;
        if claims.aud != AUD_TOKEN {
            return Err(invalid("it was made for another purpose"));
        }
        if claims.jti.is_empty() || claims.jti.len() > 64 {
            return Err(invalid("its jti must have 1 to 64 characters"));
        }
        let seconds = now.timestamp();
        if claims.iat.abs_diff(seconds) > SKEW.unsigned_abs() {
            let detail = "the runner's clock is more than 5 min off; sign again with server_time";
            return Err(
                Problem::new(Code::ClockSkew, detail).with("server_time", moment::text(&now))
            );
        }
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        used.retain(|_, forget_at| *forget_at > seconds);
        if used.insert((claims.sub, claims.jti), seconds + MEMORY).is_some() {
            let detail = "this assertion was used before; sign a new one for each token";
            return Err(Problem::new(Code::AssertionReplayed, detail));
        }
        Ok(claims.sub)
    }
}

fn invalid(reason: &str) -> Problem {
    Problem::new(Code::AssertionInvalid, format!("the assertion is not taken: {reason}"))
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::SigningKey;
    use schemas::token::sign;
    use ulid::Ulid;

    use super::*;

    const NOW: i64 = 1_700_000_000;

    fn signed(sub: RunnerId, aud: &str, jti: &str, iat: i64, key: u8) -> String {
        let claims =
            Assertion { sub, aud: aud.into(), jti: jti.into(), iat, exp: iat.saturating_add(60) };
        sign(&claims, &SigningKey::from_bytes(&[key; 32])).unwrap()
    }

    #[test]
    fn an_assertion_is_taken_once_from_its_signer_around_now() {
        let (used, runner) = (Assertions::default(), RunnerId(Ulid::new()));
        let key = hex::encode(SigningKey::from_bytes(&[1; 32]).verifying_key().as_bytes());
        let now = Timestamp::from_timestamp(NOW, 0).unwrap();
        let answer = |assertion: &str| used.verify(assertion, &key, now).map_err(|no| no.code);

        let good = signed(runner, AUD_TOKEN, "a", NOW, 1);
        assert_eq!(Assertions::subject(&good).unwrap(), runner);
        assert_eq!(answer(&good), Ok(runner));
        assert_eq!(answer(&good), Err(Code::AssertionReplayed));
        assert_eq!(answer(&signed(runner, AUD_TOKEN, "b", NOW - 299, 1)), Ok(runner));
        assert_eq!(answer(&signed(runner, AUD_TOKEN, "c", NOW + 299, 1)), Ok(runner));
        assert_eq!(answer(&signed(runner, AUD_TOKEN, "d", NOW - 301, 1)), Err(Code::ClockSkew));
        assert_eq!(answer(&signed(runner, AUD_TOKEN, "e", i64::MAX, 1)), Err(Code::ClockSkew));
        assert_eq!(answer(&signed(runner, AUD_TOKEN, "f", NOW, 2)), Err(Code::AssertionInvalid));
        assert_eq!(answer(&signed(runner, "stead-job", "g", NOW, 1)), Err(Code::AssertionInvalid));
        assert_eq!(answer("rubbish"), Err(Code::AssertionInvalid));
    }
}
