//! Runners, with their state.
use domain::{
    decider::{Decider, Timestamp},
    ids::{InstallId, RunnerId},
    runner::{Runner, RunnerEvent, RunnerMode},
};
use serde::{Deserialize, Serialize};
use sqlx::PgExecutor;

use crate::{
    Cell, Class, DomainEvent, Projection, RecordedEvent, Type,
    table::{Where, get, select},
};

#[derive(Debug)]
pub struct Runners;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub runner: RunnerId,
    /// State of the aggregate.
    pub state: Runner,
    /// Reason of the last disable or revocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub enrolled_at: Timestamp,
    /// Position of the last event that changed the row.
    pub position: u64,
}

/// Names of the states.
pub const STATES: [&str; 6] =
    ["active", "disconnected", "stopped", "drained", "disabled", "revoked"];

impl Row {
    /// Name of the state: `active`, `disconnected`, `stopped`, `drained`, `disabled` or `revoked`.
    pub fn state_name(&self) -> &'static str {
        if self.state.revoked {
            "revoked"
        } else if !self.state.disabled.is_empty() {
            "disabled"
        } else if self.state.disconnected_since.is_some() && self.state.stopped {
            "stopped"
        } else if self.state.disconnected_since.is_some() {
            "disconnected"
        } else if self.state.draining {
            "drained"
        } else {
            "active"
        }
    }

    /// Install of the runner, or `None` for a build runner.
    pub fn install(&self) -> Option<InstallId> {
        self.state.identity.as_ref().and_then(|identity| identity.install)
    }
}

impl Projection for Runners {
    const NAME: &'static str = "runners";
    const VERSION: i32 = 2;
    const CLASS: Class = Class::Asynchronous;
    const AGGREGATES: &'static [&'static str] = &[Runner::NAME];
    const COLUMNS: &'static [(&'static str, Type)] =
        &[("mode", Type::Text), ("install", Type::Text), ("state", Type::Text)];
    type Row = Row;

    fn keys(event: &RecordedEvent) -> Vec<String> {
        let DomainEvent::Runner(runner, _) = &event.domain_event else { return vec![] };
        vec![runner.to_string()]
    }

    fn apply(_key: &str, row: Option<Row>, event: &RecordedEvent) -> Option<Row> {
        let DomainEvent::Runner(runner, domain_event) = &event.domain_event else { return row };
        let mut row = row.unwrap_or_else(|| Row {
            runner: *runner,
            state: Runner::default(),
            reason: None,
            enrolled_at: event.at,
            position: event.position,
        });
        match domain_event {
            RunnerEvent::Disabled { reason, .. } | RunnerEvent::Revoked { reason, .. } => {
                row.reason = Some(reason.clone());
            }
            RunnerEvent::Enabled { .. } => row.reason = None,
            RunnerEvent::Enrolled(_)
            | RunnerEvent::Rekeyed { .. }
            | RunnerEvent::InstallKeysReplaced(_)
            | RunnerEvent::RecoveryRecipientsChanged { .. }
            | RunnerEvent::RekeyRequested { .. }
            | RunnerEvent::Disconnected { .. }
            | RunnerEvent::Reconnected
            | RunnerEvent::Drained { .. }
            | RunnerEvent::Resumed { .. }
            | RunnerEvent::Refused(_)
            | RunnerEvent::CloneSuspected { .. }
            | RunnerEvent::ForgerySuspected { .. } => {}
        }
        row.state.evolve(domain_event.clone());
        row.position = event.position;
        Some(row)
    }

    fn cells(row: &Row) -> Vec<Cell> {
        let mode = match row.state.identity.as_ref().map(|identity| identity.mode) {
            Some(RunnerMode::Install) => "install",
            Some(RunnerMode::Build) | None => "build",
        };
        vec![Cell::text(mode), Cell::maybe(row.install()), Cell::text(row.state_name())]
    }
}

/// Returns the row of a runner, if the runner exists.
///
/// # Errors
/// If a database operation fails.
pub async fn runner(
    executor: impl PgExecutor<'_>,
    runner: RunnerId,
) -> Result<Option<Row>, sqlx::Error> {
    get::<Runners>(executor, runner).await
}

/// Returns the runners that enrolled for an install, oldest first.
///
/// # Errors
/// If a database operation fails.
pub async fn of_install(
    executor: impl PgExecutor<'_>,
    install: InstallId,
) -> Result<Vec<Row>, sqlx::Error> {
    let rest = "where install = $1 order by key";
    select::<Runners>(executor, rest, vec![Cell::text(install)]).await
}

/// Returns all build runners.
///
/// # Errors
/// If a database operation fails.
pub async fn of_builds(executor: impl PgExecutor<'_>) -> Result<Vec<Row>, sqlx::Error> {
    select::<Runners>(executor, "where mode = 'build' order by key", vec![]).await
}

/// Returns the runners after `after`, oldest first.
///
/// # Errors
/// If a database operation fails.
pub async fn page(
    executor: impl PgExecutor<'_>,
    after: Option<RunnerId>,
    limit: u32,
) -> Result<Vec<Row>, sqlx::Error> {
    Where::default().and("key > ?", after).first::<Runners>(executor, "key", limit).await
}
