//! The claims of every token, and the compact signature (JWS, `EdDSA`) that they travel in.
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as URL};
use domain::ids::{ExecutionId, InstallId, JobId, RunnerId, SessionId};
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{manifest::Fence, runner::RunnerMode};

/// `aud` of what a runner signs to get an access token.
pub const AUD_TOKEN: &str = "stead-token";
/// `aud` of what a runner signs to open a session.
pub const AUD_SESSION: &str = "stead-session";
/// `aud` of what a runner signs to replace its identity key.
pub const AUD_REKEY: &str = "stead-rekey";
/// `aud` of an access token.
pub const AUD_RUNNER: &str = "stead-runner";
/// `aud` of a job token.
pub const AUD_JOB: &str = "stead-job";

const HEADER: &str = r#"{"alg":"EdDSA","typ":"JWT"}"#;

/// What a runner signs with its identity key, good for 60 s and once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Assertion {
    /// The runner.
    pub sub: RunnerId,
    /// [`AUD_TOKEN`].
    pub aud: String,
    /// Random; a second use is refused.
    pub jti: String,
    /// Seconds since 1970.
    pub iat: i64,
    /// `iat` + 60.
    pub exp: i64,
    /// Of the session that the token is for.
    pub generation: u64,
}

/// What a runner signs with its identity key to open a session: an access token is not enough for that, so
/// whoever steals one cannot take the runner's place. It may be sent again: the same session is the same one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Opening {
    /// The runner.
    pub sub: RunnerId,
    /// [`AUD_SESSION`].
    pub aud: String,
    /// Seconds since 1970.
    pub iat: i64,
    /// `iat` + 60.
    pub exp: i64,
    /// The name of the session, made by the runner for each one that it opens, and kept until it is open.
    pub session: SessionId,
    /// Changes when the host starts anew.
    pub boot_id: String,
    /// Random, made with the journal: another one means that the journal was lost.
    pub journal_id: String,
    /// Random, made when the agent's process starts: a copy of the journal's directory has another one.
    pub process_id: String,
}

/// What a runner signs with its identity key, and once more with the new one, to be known by the new one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rekey {
    /// The runner.
    pub sub: RunnerId,
    /// [`AUD_REKEY`].
    pub aud: String,
    /// Seconds since 1970.
    pub iat: i64,
    /// `iat` + 60.
    pub exp: i64,
    /// The new Ed25519 public key, 64 hexadecimal digits.
    pub identity_key: String,
}

/// What the server signs for a runner: 15 minutes of the Runner API.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AccessClaims {
    /// The runner.
    pub sub: RunnerId,
    /// [`AUD_RUNNER`].
    pub aud: String,
    /// `stead/<log_id>`.
    pub iss: String,
    /// Random, for the audit.
    pub jti: String,
    /// Seconds since 1970.
    pub iat: i64,
    /// Seconds since 1970.
    pub exp: i64,
    /// The session that it is for: a newer one makes this token stale.
    pub generation: u64,
    /// What the runner is for.
    pub mode: RunnerMode,
    /// The install that it belongs to; absent for a build runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install: Option<InstallId>,
}

/// What the server signs for one execution: its registry, its blobs, its state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobClaims {
    /// The runner.
    pub sub: RunnerId,
    /// [`AUD_JOB`].
    pub aud: String,
    /// `stead/<log_id>`.
    pub iss: String,
    /// Seconds since 1970.
    pub iat: i64,
    /// The deadline and ten minutes.
    pub exp: i64,
    /// The job.
    pub job: JobId,
    /// The execution; a newer one makes this token stale.
    pub execution: ExecutionId,
    /// The fence of the grant.
    pub fence: Fence,
}

/// Why a token is not taken.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TokenError {
    /// Not three parts, not base64url, not the claims that were expected.
    #[error("the token is malformed")]
    Malformed,
    /// None of the keys signed it.
    #[error("the token is signed by no key that is known here")]
    Signature,
}

/// Sign claims. Times inside them are the caller's business.
pub fn sign<C: Serialize>(claims: &C, key: &SigningKey) -> Result<String, TokenError> {
    let claims = serde_json::to_vec(claims).map_err(|_| TokenError::Malformed)?;
    let signed = format!("{}.{}", URL.encode(HEADER), URL.encode(claims));
    let signature = key.sign(signed.as_bytes()).to_bytes();
    Ok(format!("{signed}.{}", URL.encode(signature)))
}

/// Read the claims of a token that one of the keys signed. `aud` and `exp` are left to the caller, who
/// knows the clock and the purpose.
pub fn verify<C: DeserializeOwned>(token: &str, keys: &[VerifyingKey]) -> Result<C, TokenError> {
    let (signed, signature) = token.rsplit_once('.').ok_or(TokenError::Malformed)?;
    let (header, claims) = signed.split_once('.').ok_or(TokenError::Malformed)?;
    // Exactly our header: a token never chooses how it is verified.
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

/// The claims of a token without its proof: for showing, never for deciding.
pub fn peek<C: DeserializeOwned>(token: &str) -> Option<C> {
    serde_json::from_slice(&URL.decode(token.split('.').nth(1)?).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims() -> Assertion {
        let sub = "rnr_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap();
        Assertion { sub, aud: AUD_TOKEN.into(), jti: "x".into(), iat: 1, exp: 61, generation: 1 }
    }

    #[test]
    fn a_token_is_taken_from_its_signer_and_from_nobody_else() {
        let (ours, other) = (SigningKey::from_bytes(&[1; 32]), SigningKey::from_bytes(&[2; 32]));
        let token = sign(&claims(), &ours).unwrap();
        let both = [other.verifying_key(), ours.verifying_key()];
        assert_eq!(verify::<Assertion>(&token, &both).unwrap(), claims());
        assert_eq!(verify::<Assertion>(&token, &both[..1]), Err(TokenError::Signature));
    }

    #[test]
    fn a_token_never_chooses_how_it_is_verified() {
        let key = SigningKey::from_bytes(&[1; 32]);
        let token = sign(&claims(), &key).unwrap();
        let (_, rest) = token.split_once('.').unwrap();
        let none = format!("{}.{rest}", URL.encode(r#"{"alg":"none","typ":"JWT"}"#));
        assert_eq!(verify::<Assertion>(&none, &[key.verifying_key()]), Err(TokenError::Malformed));
        for broken in ["", "a.b", "a.b.c", &token[..token.len() - 4]] {
            assert!(verify::<Assertion>(broken, &[key.verifying_key()]).is_err(), "{broken}");
        }
    }
}
