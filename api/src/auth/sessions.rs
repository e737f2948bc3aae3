//! Sessions of the dashboard, shared by all servers of a database.
//!
//! A session belongs to a token and ends with it. The browser has the secret of the session in a
//! cookie, and the database has only its SHA-256.
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use chrono::TimeDelta;
use domain::{
    decider::Timestamp,
    ids::{PrincipalId, TokenId},
};
use sha2::{Digest as _, Sha256};
use sqlx::{PgPool, Row as _};
use subtle::ConstantTimeEq as _;

use super::{Identity, secret};

/// Time without a request after which a session ends.
const IDLE_LIMIT: TimeDelta = TimeDelta::hours(2);
/// Maximum lifetime of a session.
const LIFETIME: TimeDelta = TimeDelta::hours(12);
/// Maximum number of sessions of a token. A further login ends the one that was unused for the longest time.
const SESSIONS_PER_TOKEN: i64 = 20;
/// Interval at which the time of the last request is stored.
const TOUCH_INTERVAL: TimeDelta = TimeDelta::minutes(1);
/// Lifetime of a one-time code.
const CODE_LIFETIME: TimeDelta = TimeDelta::minutes(5);

/// Session of a request.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub principal: PrincipalId,
    pub token: TokenId,
    secret: String,
}

impl Session {
    /// Returns the value that every form of the session sends back. Another site cannot know the
    /// value, so it cannot forge a form.
    pub(crate) fn form_token(&self) -> String {
        hex::encode(Sha256::digest(format!("form\n{}", self.secret)))
    }

    /// Compares the value of a form in constant time.
    pub(crate) fn accepts(&self, form_token: &str) -> bool {
        self.form_token().as_bytes().ct_eq(form_token.as_bytes()).into()
    }
}

/// Starts a session for the owner of a token. Returns its secret.
///
/// # Errors
/// If a database operation fails.
pub(crate) async fn start(
    pool: &PgPool,
    identity: &Identity,
    now: Timestamp,
) -> Result<String, sqlx::Error> {
    // A token could otherwise fill the database with sessions.
    let delete = "delete from ui_session where created_at < $1 or used_at < $2 \
                  or secret_sha256 in (select secret_sha256 from ui_session where token = $3 \
                                       order by used_at desc offset $4)";
    sqlx::query(delete)
        .bind(now - LIFETIME)
        .bind(now - IDLE_LIMIT)
        .bind(identity.token.to_string())
        .bind(SESSIONS_PER_TOKEN - 1)
        .execute(pool)
        .await?;
    let secret = secret::random();
    let insert = "insert into ui_session (secret_sha256, principal, token, created_at, used_at) \
                  values ($1, $2, $3, $4, $4)";
    sqlx::query(insert)
        .bind(secret::hash(&secret))
        .bind(identity.principal.to_string())
        .bind(identity.token.to_string())
        .bind(now)
        .execute(pool)
        .await?;
    Ok(secret)
}

/// Reason of a request, which decides whether the session counts it as activity of its user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    /// The user opened a page or sent a form.
    User,
    /// An open page refreshes itself.
    Refresh,
}

/// Returns the session of a secret, unless it has ended.
///
/// # Errors
/// If a database operation fails.
pub(crate) async fn find(
    pool: &PgPool,
    secret: &str,
    request: Request,
    now: Timestamp,
) -> Result<Option<Session>, sqlx::Error> {
    let select = "select principal, token, used_at from ui_session \
                  where secret_sha256 = $1 and created_at > $2 and used_at > $3";
    let row = sqlx::query(select)
        .bind(secret::hash(secret))
        .bind(now - LIFETIME)
        .bind(now - IDLE_LIMIT)
        .fetch_optional(pool)
        .await?;
    let Some(row) = row else { return Ok(None) };
    let (principal, token): (String, String) = (row.try_get(0)?, row.try_get(1)?);
    let (Ok(principal), Ok(token)) = (principal.parse(), token.parse()) else { return Ok(None) };
    let used_at: Timestamp = row.try_get(2)?;
    if request == Request::User && now - used_at > TOUCH_INTERVAL {
        sqlx::query("update ui_session set used_at = $2 where secret_sha256 = $1")
            .bind(secret::hash(secret))
            .bind(now)
            .execute(pool)
            .await?;
    }
    Ok(Some(Session { principal, token, secret: secret.to_owned() }))
}

/// Ends a session.
///
/// # Errors
/// If a database operation fails.
pub(crate) async fn end(pool: &PgPool, session: &Session) -> Result<(), sqlx::Error> {
    sqlx::query("delete from ui_session where secret_sha256 = $1")
        .bind(secret::hash(&session.secret))
        .execute(pool)
        .await?;
    Ok(())
}

/// One-time codes of this server, by their SHA-256. A code logs in a caller on the same machine
/// once.
#[derive(Default)]
pub(crate) struct LoginCodes(Mutex<HashMap<[u8; 32], (Identity, Timestamp)>>);

impl LoginCodes {
    /// Creates a code for the owner of a token.
    pub(crate) fn issue(&self, identity: Identity, now: Timestamp) -> String {
        let code = secret::random();
        let mut codes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        codes.insert(secret::hash(&code), (identity, now + CODE_LIFETIME));
        code
    }

    /// Returns the identity of a code, and removes the code. The caller ensures that the peer is on
    /// the same machine.
    pub(crate) fn redeem(&self, code: &str, now: Timestamp) -> Option<Identity> {
        let mut codes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        codes.retain(|_, (_, expires_at)| *expires_at > now);
        codes.remove(&secret::hash(code)).map(|(identity, _)| identity)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use ulid::Ulid;

    use super::*;

    fn identity() -> Identity {
        let (principal, token) = (PrincipalId(Ulid::new()), TokenId(Ulid::new()));
        Identity { principal, roles: BTreeSet::new(), token }
    }

    #[test]
    fn code_is_accepted_once_and_in_time() {
        let (codes, now) = (LoginCodes::default(), Timestamp::from_timestamp(0, 0).unwrap());
        let code = codes.issue(identity(), now);
        assert_eq!(codes.redeem("another", now), None);
        assert!(codes.redeem(&code, now).is_some());
        assert_eq!(codes.redeem(&code, now), None);
        let late = codes.issue(identity(), now);
        assert_eq!(codes.redeem(&late, now + CODE_LIFETIME), None);
    }

    #[test]
    fn form_token_reveals_no_secret_and_differs_by_session() {
        let session = |secret: &str| Session {
            principal: PrincipalId(Ulid::nil()),
            token: TokenId(Ulid::nil()),
            secret: secret.into(),
        };
        let (one, other) = (session("a"), session("b"));
        assert!(one.accepts(&one.form_token()));
        assert!(!one.accepts(&other.form_token()) && !one.accepts(""));
        assert!(!one.form_token().contains(&hex::encode(secret::hash("a"))));
    }
}
