//! Principals and their roles.
use std::collections::BTreeSet;

use domain::{
    access::{Access, AccessEvent, PrincipalKind, Role},
    decider::{Decider, Timestamp},
    ids::PrincipalId,
};
use serde::{Deserialize, Serialize};
use sqlx::PgExecutor;

use crate::{Cell, Class, DomainEvent, Projection, RecordedEvent, Type, table::get};

#[derive(Debug)]
pub struct Principals;

/// An API caller.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub principal: PrincipalId,
    /// User or service.
    pub kind: PrincipalKind,
    pub roles: BTreeSet<Role>,
    /// Reference to the name, which is stored outside the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name_ref: Option<String>,
    pub added_at: Timestamp,
}

impl Projection for Principals {
    const NAME: &'static str = "principals";
    const VERSION: i32 = 1;
    const CLASS: Class = Class::Synchronous;
    const AGGREGATES: &'static [&'static str] = &[Access::NAME];
    const COLUMNS: &'static [(&'static str, Type)] = &[];
    type Row = Row;

    fn keys(event: &RecordedEvent) -> Vec<String> {
        let DomainEvent::Access(principal, _) = &event.domain_event else { return vec![] };
        vec![principal.to_string()]
    }

    fn apply(_key: &str, row: Option<Row>, event: &RecordedEvent) -> Option<Row> {
        let DomainEvent::Access(principal, domain_event) = &event.domain_event else { return row };
        match domain_event {
            AccessEvent::PrincipalAdded { kind, name_ref } => Some(Row {
                principal: *principal,
                kind: *kind,
                roles: BTreeSet::new(),
                name_ref: name_ref.clone(),
                added_at: event.at,
            }),
            AccessEvent::RoleGranted { role } => row.map(|mut row| {
                row.roles.insert(*role);
                row
            }),
            AccessEvent::RoleRevoked { role } => row.map(|mut row| {
                row.roles.remove(role);
                row
            }),
            AccessEvent::TokenIssued(_) | AccessEvent::TokenRevoked { .. } => row,
        }
    }

    fn cells(_row: &Row) -> Vec<Cell> {
        vec![]
    }
}

/// Returns the row of a principal, if the principal exists.
///
/// # Errors
/// If a database operation fails.
pub async fn principal(
    executor: impl PgExecutor<'_>,
    principal: PrincipalId,
) -> Result<Option<Row>, sqlx::Error> {
    get::<Principals>(executor, principal).await
}
