//! Enrolment tokens: each one enrols a single runner.
//!
//! A token is `stead_enrol_<ULID>_<64 hexadecimal digits>`. The ULID names the stream of the
//! enrolment, so no table of tokens is needed. The digits are 256 random bits. The log stores only
//! the SHA-256 of the token.
use domain::{
    digest::Digest,
    enrolment::{Enrolment, EnrolmentCommand, EnrolmentError, EnrolmentToken, Purpose},
    ids::{RunnerId, TokenId},
};
use futures::FutureExt as _;
use rand::RngCore as _;

use crate::{
    execute::{Call, Done, UnitOfWork},
    ids,
    problem::{Code, Problem},
    state::App,
};

const PREFIX: &str = "stead_enrol_";
/// Lifetime of an enrolment token.
pub(crate) const TTL: chrono::TimeDelta = chrono::TimeDelta::hours(1);

/// New token with its secret value. The log has only a hash of the value.
#[derive(Debug, Clone)]
pub struct NewEnrolment {
    pub id: TokenId,
    pub token: String,
    pub expires_at: domain::decider::Timestamp,
}

/// Creates an enrolment token in its own commit.
pub async fn issue(
    app: &App,
    call: &Call,
    purpose: Purpose,
) -> Result<Done<NewEnrolment>, Problem> {
    let engine = &app.engine;
    engine.transact(call, move |unit| issue_in(unit, purpose, None).boxed()).await
}

/// Revokes a token that no runner has used yet.
pub(crate) async fn revoke(
    app: &App,
    call: &Call,
    token: TokenId,
    reason: String,
) -> Result<Done<()>, Problem> {
    let by = call.meta.actor.clone();
    let revoked = app.engine.transact(call, move |unit| {
        let revoke = EnrolmentCommand::Revoke { by: by.clone(), reason: reason.clone() };
        async move {
            let refused = match unit.try_handle::<Enrolment>(token, revoke).await? {
                Ok(_) => return Ok(()),
                Err(refused) => refused,
            };
            let used = unit.load::<Enrolment>(token).await?.redeemed.as_ref().map(|by| by.runner);
            Err(match (refused, used) {
                (EnrolmentError::NotFound, _) => Problem::not_found(token),
                (EnrolmentError::AlreadyUsed, Some(runner)) => {
                    let detail = format!(
                        "cannot revoke the token: {runner} already enrolled with it; if you do not know this \
                         runner, revoke the runner: `stead runners revoke {runner}`"
                    );
                    Problem::new(Code::EnrolmentRedeemed, detail)
                }
                (other, _) => other.into(),
            })
        }
        .boxed()
    });
    revoked.await
}

/// Creates a token within a larger unit of work. Its holder can recover the keys of `recover_from`,
/// which the caller has checked.
pub(crate) async fn issue_in(
    unit: &mut UnitOfWork,
    purpose: Purpose,
    recover_from: Option<RunnerId>,
) -> Result<NewEnrolment, Problem> {
    let (id, token) = generate();
    let expires_at = unit.now() + TTL;
    let issue = EnrolmentToken { purpose, sha256: hash(&token)?, expires_at, recover_from };
    unit.create::<Enrolment>(id, EnrolmentCommand::Issue(issue)).await?;
    Ok(NewEnrolment { id, token, expires_at })
}

/// Id in an enrolment token. `None` if the string is not an enrolment token.
pub(crate) fn id_of(token: &str) -> Option<TokenId> {
    let (ulid, secret) = token.strip_prefix(PREFIX)?.split_once('_')?;
    let plain = secret.len() == 64 && secret.bytes().all(|b| b.is_ascii_hexdigit());
    plain.then(|| format!("{}{ulid}", TokenId::PREFIX).parse().ok()).flatten()
}

/// Digest of a token, as stored in the log.
pub(crate) fn hash(token: &str) -> Result<Digest, Problem> {
    event_log::blob::digest(token.as_bytes()).map_err(Problem::internal)
}

fn generate() -> (TokenId, String) {
    let id = ids::new_ulid();
    let mut secret = [0; 32];
    rand::rngs::OsRng.fill_bytes(&mut secret);
    (TokenId(id), format!("{PREFIX}{id}_{}", hex::encode(secret)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_contains_its_enrolment_id() {
        let (id, token) = generate();
        assert_eq!(id_of(&token), Some(id));
        assert_ne!(generate().1, token);
        for other in ["", "stead_enrol_", "stead_x", &token[..40], &format!("{token}0")] {
            assert_eq!(id_of(other), None, "{other}");
        }
    }
}
