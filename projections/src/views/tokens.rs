//! API tokens of principals, found by the digest of the secret.
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
    Cell, Class, DomainEvent, Projection, RecordedEvent, Type,
    table::{Where, select},
};

#[derive(Debug)]
pub struct Tokens;

/// An API token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub token: TokenId,
    pub principal: PrincipalId,
    /// Digest of the secret.
    pub sha256: Digest,
    pub issued_at: Timestamp,
    /// End of the token's validity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    pub revoked: bool,
}

impl Row {
    /// Returns true if the token is valid at this time.
    pub fn is_valid(&self, now: Timestamp) -> bool {
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

    fn keys(event: &RecordedEvent) -> Vec<String> {
        let DomainEvent::Access(principal, domain_event) = &event.domain_event else {
            return vec![];
        };
        // The key starts with the principal, so that the row derives from the principal's stream
        // only.
        match domain_event {
            AccessEvent::TokenIssued(token) => vec![format!("{principal}/{}", token.token)],
            AccessEvent::TokenRevoked { token } => vec![format!("{principal}/{token}")],
            AccessEvent::PrincipalAdded { .. }
            | AccessEvent::RoleGranted { .. }
            | AccessEvent::RoleRevoked { .. } => vec![],
        }
    }

    fn apply(_key: &str, row: Option<Row>, event: &RecordedEvent) -> Option<Row> {
        let DomainEvent::Access(principal, domain_event) = &event.domain_event else { return row };
        match domain_event {
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

/// Returns the token with this secret and its principal, even if the token was revoked.
///
/// # Errors
/// If a database operation fails.
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

/// Returns the row of a token, if the token exists.
///
/// # Errors
/// If a database operation fails.
pub async fn token(
    executor: impl PgExecutor<'_>,
    token: TokenId,
) -> Result<Option<Row>, sqlx::Error> {
    Ok(select::<Tokens>(executor, "where token = $1", vec![Cell::text(token)]).await?.pop())
}

/// Returns the tokens after `after`, ordered by id.
///
/// # Errors
/// If a database operation fails.
pub async fn page(
    executor: impl PgExecutor<'_>,
    after: Option<TokenId>,
    limit: u32,
) -> Result<Vec<Row>, sqlx::Error> {
    Where::default().and("token > ?", after).first::<Tokens>(executor, "token", limit).await
}
