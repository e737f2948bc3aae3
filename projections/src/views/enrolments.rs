//! Enrolment tokens of runners, found by the digest of the secret.
use domain::{
    decider::{Decider, Timestamp},
    digest::Digest,
    enrolment::{Enrolment, EnrolmentEvent, EnrolmentToken, Purpose, Redemption},
    ids::{InstallId, TokenId},
};
use serde::{Deserialize, Serialize};
use sqlx::PgExecutor;

use crate::{
    Cell, Class, DomainEvent, Projection, RecordedEvent, Type,
    table::{Where, get, select},
};

#[derive(Debug)]
pub struct Enrolments;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub token: TokenId,
    /// Purpose, digest and expiry of the token.
    pub issue: EnrolmentToken,
    pub issued_at: Timestamp,
    /// Enrolment that used the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redeemed: Option<Redemption>,
    pub revoked: bool,
}

impl Projection for Enrolments {
    const NAME: &'static str = "enrolments";
    const VERSION: i32 = 1;
    const CLASS: Class = Class::Synchronous;
    const AGGREGATES: &'static [&'static str] = &[Enrolment::NAME];
    const COLUMNS: &'static [(&'static str, Type)] =
        &[("sha256", Type::Text), ("install", Type::Text)];
    type Row = Row;

    fn keys(event: &RecordedEvent) -> Vec<String> {
        let DomainEvent::Enrolment(token, _) = &event.domain_event else { return vec![] };
        vec![token.to_string()]
    }

    fn apply(_key: &str, row: Option<Row>, event: &RecordedEvent) -> Option<Row> {
        let DomainEvent::Enrolment(token, domain_event) = &event.domain_event else { return row };
        match domain_event {
            EnrolmentEvent::Issued(issue) => Some(Row {
                token: *token,
                issue: issue.clone(),
                issued_at: event.at,
                redeemed: None,
                revoked: false,
            }),
            EnrolmentEvent::Redeemed(by) => {
                row.map(|row| Row { redeemed: Some(by.clone()), ..row })
            }
            EnrolmentEvent::RecoveryOffered => row,
            EnrolmentEvent::Revoked { .. } => row.map(|row| Row { revoked: true, ..row }),
        }
    }

    fn cells(row: &Row) -> Vec<Cell> {
        let install = match row.issue.purpose {
            Purpose::Install { install } => Some(install),
            Purpose::Build => None,
        };
        vec![Cell::text(&row.issue.sha256), Cell::maybe(install)]
    }
}

/// Returns the enrolment token with this secret, even if it was used.
///
/// # Errors
/// If a database operation fails.
pub async fn by_secret(
    executor: impl PgExecutor<'_>,
    sha256: &Digest,
) -> Result<Option<Row>, sqlx::Error> {
    let binds = vec![Cell::text(sha256)];
    Ok(select::<Enrolments>(executor, "where sha256 = $1", binds).await?.pop())
}

/// Returns the row of an enrolment token, if the token exists.
///
/// # Errors
/// If a database operation fails.
pub async fn token(
    executor: impl PgExecutor<'_>,
    token: TokenId,
) -> Result<Option<Row>, sqlx::Error> {
    get::<Enrolments>(executor, token).await
}

/// Returns the enrolment tokens of an install, oldest first.
///
/// # Errors
/// If a database operation fails.
pub async fn of_install(
    executor: impl PgExecutor<'_>,
    install: InstallId,
) -> Result<Vec<Row>, sqlx::Error> {
    let binds = vec![Cell::text(install)];
    select::<Enrolments>(executor, "where install = $1 order by key", binds).await
}

/// Returns the enrolment tokens before `before`, newest first.
///
/// # Errors
/// If a database operation fails.
pub async fn page(
    executor: impl PgExecutor<'_>,
    before: Option<TokenId>,
    limit: u32,
) -> Result<Vec<Row>, sqlx::Error> {
    Where::default().and("key < ?", before).first::<Enrolments>(executor, "key desc", limit).await
}
