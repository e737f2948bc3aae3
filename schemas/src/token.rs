//! Claims of assertions and tokens, and their compact signature (JWS with `EdDSA`).
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as URL};
use domain::ids::{ExecutionId, InstallId, JobId, RunnerId, SessionId};
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{manifest::Fence, runner::RunnerMode};

/// Audience of a [`TokenAssertion`].
pub const AUD_TOKEN: &str = "stead-token";
/// Audience of a [`SessionAssertion`].
pub const AUD_SESSION: &str = "stead-session";
/// Audience of a [`RekeyAssertion`].
pub const AUD_REKEY: &str = "stead-rekey";
/// Audience of an access token ([`AccessClaims`]).
pub const AUD_RUNNER: &str = "stead-runner";
/// Audience of a job token ([`JobClaims`]).
pub const AUD_JOB: &str = "stead-job";

const HEADER: &str = r#"{"alg":"EdDSA","typ":"JWT"}"#;

/// Assertion that a runner signs with its identity key to get an access token. An assertion is
/// valid for 60 s and for one use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TokenAssertion {
    /// Subject: id of the runner.
    pub sub: RunnerId,
    /// Audience, [`AUD_TOKEN`].
    pub aud: String,
    /// Random id of 1 to 64 characters. The server rejects a second use.
    pub jti: String,
    /// Issue time, Unix time in seconds.
    pub iat: i64,
    /// Expiry time, at most `iat` + 60.
    pub exp: i64,
    /// Generation of the session for which the runner requests a token.
    pub generation: u64,
}

/// Assertion that a runner signs with its identity key to open a session.
///
/// An access token cannot open a session, so the thief of an access token cannot replace the
/// runner. A repeated request with the same session id returns the same session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionAssertion {
    /// Subject: id of the runner.
    pub sub: RunnerId,
    /// Audience, [`AUD_SESSION`].
    pub aud: String,
    /// Issue time, Unix time in seconds.
    pub iat: i64,
    /// Expiry time, at most `iat` + 60.
    pub exp: i64,
    /// Random id of the session. The runner repeats the request with the same id until it gets the
    /// response.
    pub session: SessionId,
    /// Boot id of the host, which changes at each boot.
    pub boot_id: String,
    /// Random id of the journal. Another id than before means that the runner lost its journal.
    pub journal_id: String,
    /// Random id of the agent process. If a copy of the data directory runs as a second agent, the
    /// process ids differ.
    pub process_id: String,
}

/// Assertion that a runner signs to replace its identity key, once with the current and once with
/// the new key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RekeyAssertion {
    /// Subject: id of the runner.
    pub sub: RunnerId,
    /// Audience, [`AUD_REKEY`].
    pub aud: String,
    /// Issue time, Unix time in seconds.
    pub iat: i64,
    /// Expiry time, at most `iat` + 60.
    pub exp: i64,
    /// New Ed25519 public key, 64 hexadecimal digits.
    pub identity_key: String,
}

/// Claims of an access token, which authenticates a runner for 15 minutes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AccessClaims {
    /// Subject: id of the runner.
    pub sub: RunnerId,
    /// Audience, [`AUD_RUNNER`].
    pub aud: String,
    /// Issuer, `stead/<log_id>`.
    pub iss: String,
    /// Random id of the token.
    pub jti: String,
    /// Issue time, Unix time in seconds.
    pub iat: i64,
    /// Expiry time, Unix time in seconds.
    pub exp: i64,
    /// Generation of the session. A newer session of the runner invalidates the token.
    pub generation: u64,
    /// Mode of the runner: an install's runner, or a build runner.
    pub mode: RunnerMode,
    /// Id of the runner's install. Absent for a build runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install: Option<InstallId>,
}

/// Claims of a job token, which gives one execution access to the registry and to its blobs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobClaims {
    /// Subject: id of the runner.
    pub sub: RunnerId,
    /// Audience, [`AUD_JOB`].
    pub aud: String,
    /// Issuer, `stead/<log_id>`.
    pub iss: String,
    /// Issue time, Unix time in seconds.
    pub iat: i64,
    /// Expiry time: 10 minutes after the deadline, Unix time in seconds.
    pub exp: i64,
    /// Id of the execution's job.
    pub job: JobId,
    /// Id of the execution. A newer execution of the job invalidates the token.
    pub execution: ExecutionId,
    /// Fencing token of the grant.
    pub fence: Fence,
}

/// Reason to reject a token.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TokenError {
    /// The token does not have three base64url parts, or its header or claims differ from the
    /// expected ones.
    #[error("the token is malformed")]
    Malformed,
    /// None of the keys signed the token.
    #[error("the token is not signed by a known key")]
    Signature,
}

/// Signs claims as a compact JWS. The caller sets issue and expiry time.
pub fn sign<C: Serialize>(claims: &C, key: &SigningKey) -> Result<String, TokenError> {
    let claims = serde_json::to_vec(claims).map_err(|_| TokenError::Malformed)?;
    let signed = format!("{}.{}", URL.encode(HEADER), URL.encode(claims));
    let signature = key.sign(signed.as_bytes()).to_bytes();
    Ok(format!("{signed}.{}", URL.encode(signature)))
}

/// Returns the claims of a token that one of the keys signed. The caller must check `aud` and
/// `exp`.
pub fn verify<C: DeserializeOwned>(token: &str, keys: &[VerifyingKey]) -> Result<C, TokenError> {
    let (signed, signature) = token.rsplit_once('.').ok_or(TokenError::Malformed)?;
    let (header, claims) = signed.split_once('.').ok_or(TokenError::Malformed)?;
    // A token must not choose the algorithm of its verification, so only the fixed header is
    // accepted.
    if URL.decode(header).ok().as_deref() != Some(HEADER.as_bytes()) {
        return Err(TokenError::Malformed);
    }
    let signature = URL.decode(signature).map_err(|_| TokenError::Malformed)?;
    let signature = Signature::from_slice(&signature).map_err(|_| TokenError::Malformed)?;
    if !keys.iter().any(|key| key.verify_strict(signed.as_bytes(), &signature).is_ok()) {
        return Err(TokenError::Signature);
    }
    let claims = URL.decode(claims).map_err(|_| TokenError::Malformed)?;
    serde_json::from_slice(&claims).map_err(|_| TokenError::Malformed)
}

/// Returns the claims of a token without verification of its signature. The caller must not trust
/// them.
pub fn claims_unverified<C: DeserializeOwned>(token: &str) -> Option<C> {
    serde_json::from_slice(&URL.decode(token.split('.').nth(1)?).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims() -> TokenAssertion {
        let sub = "rnr_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap();
        TokenAssertion {
            sub,
            aud: AUD_TOKEN.into(),
            jti: "x".into(),
            iat: 1,
            exp: 61,
            generation: 1,
        }
    }

    #[test]
    fn a_token_is_valid_only_with_the_key_of_its_signer() {
        let (signer, other) = (SigningKey::from_bytes(&[1; 32]), SigningKey::from_bytes(&[2; 32]));
        let token = sign(&claims(), &signer).unwrap();
        let both = [other.verifying_key(), signer.verifying_key()];
        assert_eq!(verify::<TokenAssertion>(&token, &both).unwrap(), claims());
        assert_eq!(verify::<TokenAssertion>(&token, &both[..1]), Err(TokenError::Signature));
    }

    #[test]
    fn a_token_never_chooses_how_it_is_verified() {
        let key = SigningKey::from_bytes(&[1; 32]);
        let token = sign(&claims(), &key).unwrap();
        let (_, rest) = token.split_once('.').unwrap();
        let none = format!("{}.{rest}", URL.encode(r#"{"alg":"none","typ":"JWT"}"#));
        assert_eq!(
            verify::<TokenAssertion>(&none, &[key.verifying_key()]),
            Err(TokenError::Malformed)
        );
        for broken in ["", "a.b", "a.b.c", &token[..token.len() - 4]] {
            assert!(verify::<TokenAssertion>(broken, &[key.verifying_key()]).is_err(), "{broken}");
        }
    }
}
