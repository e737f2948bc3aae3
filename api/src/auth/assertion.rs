//! Verifies the assertions that runners sign to get access tokens, open sessions and replace keys.
//! Each assertion is valid for a short time, and a token assertion only once.
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use domain::{decider::Timestamp, ids::RunnerId};
use ed25519_dalek::VerifyingKey;
use schemas::{
    moment,
    runner::RekeyRequest,
    token::{
        AUD_REKEY, AUD_SESSION, AUD_TOKEN, RekeyAssertion, SessionAssertion, TokenAssertion,
        claims_unverified, verify,
    },
};
use serde::{Deserialize, de::DeserializeOwned};

use crate::problem::{Code, Problem};

/// Maximum difference between the clocks of a runner and the server, in seconds.
const MAX_SKEW: i64 = 5 * 60;
/// Maximum lifetime of an assertion, in seconds.
const MAX_LIFETIME: i64 = 60;
/// Time for which the server remembers a used assertion, in seconds. An assertion expires earlier.
const REPLAY_WINDOW_SECONDS: i64 = 2 * MAX_SKEW + 60;

#[derive(Deserialize)]
struct UnverifiedSubject {
    sub: RunnerId,
}

/// Used assertions, by runner and assertion id, so that each is accepted only once.
#[derive(Default)]
pub(crate) struct Assertions(Mutex<HashMap<(RunnerId, String), i64>>);

impl Assertions {
    /// Runner id in an assertion. Not verified: use it only to find the key for
    /// [`Assertions::verify`].
    ///
    /// # Errors
    /// 401 if the assertion cannot be parsed.
    pub(crate) fn subject(assertion: &str) -> Result<RunnerId, Problem> {
        let read: Option<UnverifiedSubject> = claims_unverified(assertion);
        read.map(|claims| claims.sub).ok_or_else(|| invalid("it cannot be parsed"))
    }

    /// Returns the claims of an assertion. Checks its signature, audience and time, and that it was
    /// not used before.
    ///
    /// # Errors
    /// 401, with `server_time` if the clocks differ too much or the assertion has expired.
    pub(crate) fn verify(
        &self,
        assertion: &str,
        identity_key: &str,
        now: Timestamp,
    ) -> Result<TokenAssertion, Problem> {
        let claims: TokenAssertion = verify_signature(assertion, identity_key)?;
        check_audience(&claims.aud, AUD_TOKEN)?;
        if claims.jti.is_empty() || claims.jti.len() > 64 {
            return Err(invalid("its jti must have 1 to 64 characters"));
        }
        check_time(claims.iat, claims.exp, now)?;
        if self.was_used(claims.sub, &claims.jti, now) {
            let detail =
                "assertion rejected: it was used before; sign a new assertion for each token";
            return Err(Problem::new(Code::AssertionReplayed, detail));
        }
        Ok(claims)
    }

    /// Returns the claims of a session opening. Checks its signature, audience and time. A runner
    /// may send the same opening again, because the session's row shows whether it was used.
    ///
    /// # Errors
    /// 401, with `server_time` if the clocks differ too much or the assertion has expired.
    pub(crate) fn verify_opening(
        assertion: &str,
        identity_key: &str,
        now: Timestamp,
    ) -> Result<SessionAssertion, Problem> {
        let claims: SessionAssertion = verify_signature(assertion, identity_key)?;
        check_audience(&claims.aud, AUD_SESSION)?;
        check_time(claims.iat, claims.exp, now)?;
        Ok(claims)
    }

    /// Returns the new key of a runner. Both the old and the new key must sign the request. If the
    /// server has already recorded the new key and the response was lost, the signature of the new
    /// key is enough.
    ///
    /// # Errors
    ///
    /// 401, with `server_time` if the clocks differ too much or the assertion has expired.
    pub(crate) fn verify_rekey(
        request: &RekeyRequest,
        identity_key: &str,
        now: Timestamp,
    ) -> Result<String, Problem> {
        let unverified: RekeyAssertion =
            claims_unverified(&request.proof).ok_or_else(|| invalid("it cannot be parsed"))?;
        let signed_by_new_key: RekeyAssertion =
            verify_signature(&request.proof, &unverified.identity_key)?;
        if signed_by_new_key.identity_key != identity_key {
            let signed_by_old_key: RekeyAssertion =
                verify_signature(&request.assertion, identity_key)?;
            if signed_by_old_key != signed_by_new_key {
                return Err(invalid("the claims signed by the two keys differ"));
            }
        }
        check_audience(&signed_by_new_key.aud, AUD_REKEY)?;
        check_time(signed_by_new_key.iat, signed_by_new_key.exp, now)?;
        let canonical =
            signed_by_new_key.identity_key.to_lowercase() == signed_by_new_key.identity_key;
        canonical
            .then_some(signed_by_new_key.identity_key)
            .ok_or_else(|| invalid("the new key must be in lower case"))
    }

    fn was_used(&self, runner: RunnerId, name: &str, now: Timestamp) -> bool {
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        used.retain(|_, forget_at| *forget_at > now.timestamp());
        used.insert((runner, name.to_owned()), now.timestamp() + REPLAY_WINDOW_SECONDS).is_some()
    }
}

fn verify_signature<C: DeserializeOwned>(
    assertion: &str,
    identity_key: &str,
) -> Result<C, Problem> {
    let key = hex::decode(identity_key).ok().and_then(|bytes| bytes.try_into().ok());
    let key = key.and_then(|bytes: [u8; 32]| VerifyingKey::from_bytes(&bytes).ok());
    let key = key.ok_or_else(|| invalid("the runner's key is not a valid public key"))?;
    verify(assertion, &[key]).map_err(|reason| invalid(&reason.to_string()))
}

fn check_audience(aud: &str, expected: &str) -> Result<(), Problem> {
    if aud == expected {
        Ok(())
    } else {
        Err(invalid(&format!("its audience is {aud:?}, but {expected:?} is required")))
    }
}

/// Checks the issue time and the lifetime.
fn check_time(iat: i64, exp: i64, now: Timestamp) -> Result<(), Problem> {
    if iat.abs_diff(now.timestamp()) > MAX_SKEW.unsigned_abs() {
        let detail = "assertion rejected: the clocks of runner and server differ by more than 5 min; sign again with the time in server_time";
        return Err(Problem::new(Code::ClockSkew, detail).with("server_time", moment::text(&now)));
    }
    if !(0..=MAX_LIFETIME).contains(&exp.saturating_sub(iat)) {
        return Err(invalid("its exp must be 0 to 60 s after its iat"));
    }
    if exp <= now.timestamp() {
        let detail = "assertion rejected: it has expired; sign again with the time in server_time";
        return Err(Problem::new(Code::ClockSkew, detail).with("server_time", moment::text(&now)));
    }
    Ok(())
}

fn invalid(reason: &str) -> Problem {
    Problem::new(Code::AssertionInvalid, format!("invalid assertion: {reason}"))
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::SigningKey;
    use schemas::token::sign;
    use ulid::Ulid;

    use super::*;

    const NOW: i64 = 1_700_000_000;

    fn by(sub: RunnerId, aud: &str, jti: &str, iat: i64, key: u8) -> String {
        let (exp, generation) = (iat.saturating_add(60), 1);
        let claims = TokenAssertion { sub, aud: aud.into(), jti: jti.into(), iat, exp, generation };
        sign(&claims, &SigningKey::from_bytes(&[key; 32])).unwrap()
    }

    #[test]
    fn assertion_is_accepted_once_from_its_signer_within_the_skew() {
        let (used, runner) = (Assertions::default(), RunnerId(Ulid::new()));
        let key = hex::encode(SigningKey::from_bytes(&[1; 32]).verifying_key().as_bytes());
        let now = Timestamp::from_timestamp(NOW, 0).unwrap();
        let verified = |assertion: &str| {
            used.verify(assertion, &key, now).map(|claims| claims.sub).map_err(|no| no.code)
        };

        let good = by(runner, AUD_TOKEN, "a", NOW, 1);
        assert_eq!(Assertions::subject(&good).unwrap(), runner);
        assert_eq!(verified(&good), Ok(runner));
        assert_eq!(verified(&good), Err(Code::AssertionReplayed));
        assert_eq!(verified(&by(runner, AUD_TOKEN, "b", NOW - 59, 1)), Ok(runner));
        assert_eq!(verified(&by(runner, AUD_TOKEN, "c", NOW + 299, 1)), Ok(runner));
        assert_eq!(verified(&by(runner, AUD_TOKEN, "d", NOW - 301, 1)), Err(Code::ClockSkew));
        assert_eq!(verified(&by(runner, AUD_TOKEN, "e", i64::MAX, 1)), Err(Code::ClockSkew));
        assert_eq!(verified(&by(runner, AUD_TOKEN, "f", NOW, 2)), Err(Code::AssertionInvalid));
        assert_eq!(verified(&by(runner, "stead-job", "g", NOW, 1)), Err(Code::AssertionInvalid));
        assert_eq!(verified("rubbish"), Err(Code::AssertionInvalid));
    }

    #[test]
    fn pentest_expired_assertion_is_rejected() {
        let now = Timestamp::from_timestamp(NOW, 0).unwrap();
        check_time(NOW - 59, NOW + 1, now).unwrap();
        for (iat, exp) in [(NOW - 60, NOW), (NOW - 299, NOW - 239), (NOW - 10, NOW - 5)] {
            let problem = check_time(iat, exp, now).unwrap_err();
            // After a rejection because of a slow clock, the runner signs again with the server's
            // time.
            assert_eq!((problem.code, problem.members.len()), (Code::ClockSkew, 1), "{iat} {exp}");
        }
    }

    #[test]
    fn assertion_lifetime_is_limited_to_a_minute() {
        let now = Timestamp::from_timestamp(NOW, 0).unwrap();
        for (exp, accepted) in [(NOW + 60, true), (NOW + 61, false), (NOW - 1, false)] {
            assert_eq!(check_time(NOW, exp, now).is_ok(), accepted, "{exp}");
        }
    }

    #[test]
    fn opening_may_be_repeated_and_is_not_a_token_assertion() {
        let (used, runner) = (Assertions::default(), RunnerId(Ulid::new()));
        let signer = SigningKey::from_bytes(&[1; 32]);
        let key = hex::encode(signer.verifying_key().as_bytes());
        let now = Timestamp::from_timestamp(NOW, 0).unwrap();
        let session = domain::ids::SessionId(Ulid::new());
        let [boot_id, journal_id, process_id] = ["b", "j", "p"].map(String::from);
        let (aud, iat, exp) = (AUD_SESSION.to_string(), NOW, NOW + 60);
        let claims = SessionAssertion {
            sub: runner,
            aud,
            iat,
            exp,
            session,
            boot_id,
            journal_id,
            process_id,
        };
        let text = sign(&claims, &signer).unwrap();
        for _ in 0..2 {
            assert_eq!(Assertions::verify_opening(&text, &key, now).unwrap(), claims);
        }
        assert!(used.verify(&text, &key, now).is_err());
        let token = by(runner, AUD_TOKEN, "a", NOW, 1);
        assert!(Assertions::verify_opening(&token, &key, now).is_err());
    }
}
