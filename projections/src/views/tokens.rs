//! Tokens that speak for principals, found by the digest of the secret.
use domain::{
    access::{Access, AccessEvent},
    decider::{Decider, Timestamp},
    digest::Digest,
    ids::{PrincipalId, TokenId},
};
use serde::{Deserialize, Serialize};
use sqlx::{PgConnection, PgExecutor};

use super::principals;
use crate::{
    Cell, Class, Fact, Projection, Recorded, Type,
    table::{Where, select},
};

/// The view.
#[derive(Debug)]
pub struct Tokens;

/// A token that was given out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Its id.
    pub token: TokenId,
    /// For whom it speaks.
    pub principal: PrincipalId,
    /// Of the secret.
    pub sha256: Digest,
    /// When it was given out.
    pub issued_at: Timestamp,
    /// After this moment it is heard no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Whether it is heard no more.
    pub revoked: bool,
}

impl Row {
    /// Whether it is heard at this moment.
    pub fn is_heard(&self, now: Timestamp) -> bool {
        !self.revoked && self.expires_at.is_none_or(|end| now < end)
    }
}

impl Projection for Tokens {
    const NAME: &'static str = "tokens";
    const VERSION: i32 = 1;
    const CLASS: Class = Class::Synchronous;
    const AGGREGATES: &'static [&'static str] = &[Access::NAME];
    const COLUMNS: &'static [(&'static str, Type)] = &[
        ("token", Type::Text),
        ("sha256", Type::Text),
        ("principal", Type::Text),
        ("revoked", Type::Boolean),
    ];
    type Row = Row;

    fn keys(event: &Recorded) -> Vec<String> {
        let Fact::Access(principal, fact) = &event.fact else { return vec![] };
        // With the principal, so that the row is a function of the principal's stream only.
        match fact {
            AccessEvent::TokenIssued(token) => vec![format!("{principal}/{}", token.token)],
            AccessEvent::TokenRevoked { token } => vec![format!("{principal}/{token}")],
            AccessEvent::PrincipalAdded { .. }
            | AccessEvent::RoleGranted { .. }
            | AccessEvent::RoleRevoked { .. } => vec![],
        }
    }

    fn apply(_key: &str, row: Option<Row>, event: &Recorded) -> Option<Row> {
        let Fact::Access(principal, fact) = &event.fact else { return row };
        match fact {
            AccessEvent::TokenIssued(issued) => Some(Row {
                token: issued.token,
                principal: *principal,
                sha256: issued.sha256.clone(),
                issued_at: event.at,
                expires_at: issued.expires_at,
                revoked: false,
            }),
            AccessEvent::TokenRevoked { .. } => row.map(|row| Row { revoked: true, ..row }),
            AccessEvent::PrincipalAdded { .. }
            | AccessEvent::RoleGranted { .. }
            | AccessEvent::RoleRevoked { .. } => row,
        }
    }

    fn cells(row: &Row) -> Vec<Cell> {
        vec![
            Cell::text(row.token),
            Cell::text(&row.sha256),
            Cell::text(row.principal),
            Cell::Boolean(row.revoked),
        ]
    }
}

/// The token with this secret, revoked or not, and whom it speaks for.
///
/// # Errors
/// If the database does not answer.
pub async fn by_secret(
    connection: &mut PgConnection,
    sha256: &Digest,
) -> Result<Option<(Row, principals::Row)>, sqlx::Error> {
    let binds = vec![Cell::text(sha256)];
    let found = select::<Tokens>(&mut *connection, "where sha256 = $1", binds).await?.pop();
    let Some(token) = found else { return Ok(None) };
    let principal = principals::principal(connection, token.principal).await?;
    Ok(principal.map(|principal| (token, principal)))
}

/// One token.
///
/// # Errors
/// If the database does not answer.
pub async fn token(
    executor: impl PgExecutor<'_>,
    token: TokenId,
) -> Result<Option<Row>, sqlx::Error> {
    Ok(select::<Tokens>(executor, "where token = $1", vec![Cell::text(token)]).await?.pop())
}

/// Tokens after one, in the order of their ids.
///
/// # Errors
/// If the database does not answer.
pub async fn page(
    executor: impl PgExecutor<'_>,
    after: Option<TokenId>,
    limit: u32,
) -> Result<Vec<Row>, sqlx::Error> {
    Where::default().and("token > ?", after).first::<Tokens>(executor, "token", limit).await
}
