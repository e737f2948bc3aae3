//! Installs: what is in each account, who holds what, and what happens to it now.
use std::collections::{BTreeSet, HashMap};

use domain::{
    decider::{Decider, Timestamp},
    ids::{AppId, InstallId, RunId, RunnerId},
    install::{Install, InstallEvent},
    run::{Outcome, RunKind},
};
use serde::{Deserialize, Serialize};
use sqlx::PgExecutor;

use crate::{
    Cell, Class, Fact, Projection, Recorded, Type,
    table::{Where, get, select},
};

/// The view.
#[derive(Debug)]
pub struct Installs;

/// An install.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Its id.
    pub install: InstallId,
    /// Everything that its aggregate knows.
    pub state: Install,
    /// Components that were there and are not any more.
    pub torn_down: BTreeSet<String>,
    /// The run that ended last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<LastRun>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was changed last.
    pub updated_at: Timestamp,
    /// Of the event that changed it last.
    pub position: u64,
}

/// The run that ended last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LastRun {
    /// Which.
    pub run: RunId,
    /// What it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<RunKind>,
    /// How it ended.
    pub outcome: Outcome,
}

impl Row {
    /// The runner that speaks for it.
    pub fn runner(&self) -> Option<RunnerId> {
        self.state.stack.as_ref().map(|stack| stack.runner)
    }

    /// Its state in one word: `waiting_for_runner`, `provisioning`, `active`, `failed`, `torn_down`,
    /// `deprovisioned` or `empty`.
    pub fn word(&self) -> &'static str {
        let there = self.state.sandbox.is_some() || !self.state.components.is_empty();
        let provisions = |kind: RunKind| matches!(kind, RunKind::Provision | RunKind::Reprovision);
        let failed = self.last_run.as_ref().is_some_and(|last| last.outcome == Outcome::Failed);
        if self.state.deprovisioned {
            "deprovisioned"
        } else if self.state.stack.is_none() {
            "waiting_for_runner"
        } else if self.state.runs.values().any(|run| provisions(run.kind)) {
            "provisioning"
        } else if failed {
            "failed"
        } else if self.state.components.is_empty() && !self.torn_down.is_empty() {
            "torn_down"
        } else if there {
            "active"
        } else {
            "empty"
        }
    }
}

impl Projection for Installs {
    const NAME: &'static str = "installs";
    const VERSION: i32 = 1;
    const CLASS: Class = Class::Asynchronous;
    const AGGREGATES: &'static [&'static str] = &[Install::NAME];
    const COLUMNS: &'static [(&'static str, Type)] =
        &[("app", Type::Text), ("name", Type::Text), ("runner", Type::Text)];
    type Row = Row;

    fn keys(event: &Recorded) -> Vec<String> {
        let Fact::Install(install, _) = &event.fact else { return vec![] };
        vec![install.to_string()]
    }

    fn apply(_key: &str, row: Option<Row>, event: &Recorded) -> Option<Row> {
        let Fact::Install(install, fact) = &event.fact else { return row };
        let mut row = row.unwrap_or_else(|| Row {
            install: *install,
            state: Install::default(),
            torn_down: BTreeSet::new(),
            last_run: None,
            created_at: event.at,
            updated_at: event.at,
            position: event.position,
        });
        match fact {
            InstallEvent::RunClosed { run, outcome } => {
                let kind = row.state.runs.get(run).map(|run| run.kind);
                row.last_run = Some(LastRun { run: *run, kind, outcome: *outcome });
            }
            InstallEvent::ComponentDeployed { name, .. } => {
                row.torn_down.remove(name);
            }
            InstallEvent::ComponentDestroyed { name, .. } => {
                row.torn_down.insert(name.clone());
            }
            InstallEvent::Created { .. }
            | InstallEvent::InputsChanged { .. }
            | InstallEvent::ConfigPinned { .. }
            | InstallEvent::ApprovalChanged { .. }
            | InstallEvent::StackReported { .. }
            | InstallEvent::StackGiven { .. }
            | InstallEvent::RunAdmitted { .. }
            | InstallEvent::ComponentReserved { .. }
            | InstallEvent::ComponentReleased { .. }
            | InstallEvent::SandboxReserved { .. }
            | InstallEvent::SandboxReleased { .. }
            | InstallEvent::SandboxChanging { .. }
            | InstallEvent::SandboxUnchanged { .. }
            | InstallEvent::ComponentChanging { .. }
            | InstallEvent::ComponentUnchanged { .. }
            | InstallEvent::SandboxProvisioned { .. }
            | InstallEvent::SandboxDestroyed { .. }
            | InstallEvent::ActionCompleted { .. }
            | InstallEvent::Deprovisioned { .. } => {}
        }
        row.state.evolve(fact.clone());
        (row.updated_at, row.position) = (event.at, event.position);
        Some(row)
    }

    fn cells(row: &Row) -> Vec<Cell> {
        vec![
            Cell::text(row.state.app.map(|app| app.to_string()).unwrap_or_default()),
            Cell::text(&row.state.name),
            Cell::maybe(row.runner()),
        ]
    }
}

/// One install.
///
/// # Errors
/// If the database does not answer.
pub async fn install(
    executor: impl PgExecutor<'_>,
    install: InstallId,
) -> Result<Option<Row>, sqlx::Error> {
    get::<Installs>(executor, install).await
}

/// The install of this name.
///
/// # Errors
/// If the database does not answer.
pub async fn by_name(
    executor: impl PgExecutor<'_>,
    name: &str,
) -> Result<Option<Row>, sqlx::Error> {
    Ok(select::<Installs>(executor, "where name = $1", vec![Cell::text(name)]).await?.pop())
}

/// How many installs each of these apps has; an app without one is left out.
///
/// # Errors
/// If the database does not answer.
pub async fn counts(
    executor: impl PgExecutor<'_>,
    apps: impl IntoIterator<Item = AppId>,
) -> Result<HashMap<AppId, u64>, sqlx::Error> {
    let apps: Vec<_> = apps.into_iter().map(|app| app.to_string()).collect();
    let sql = "select app, count(*) from view_installs where app = any($1) group by app";
    let rows: Vec<(String, i64)> = sqlx::query_as(sql).bind(apps).fetch_all(executor).await?;
    let count = |(app, count): (String, i64)| Some((app.parse().ok()?, count.unsigned_abs()));
    Ok(rows.into_iter().filter_map(count).collect())
}

/// Installs of an app, or all, after one, the oldest first.
///
/// # Errors
/// If the database does not answer.
pub async fn page(
    executor: impl PgExecutor<'_>,
    app: Option<AppId>,
    after: Option<InstallId>,
    limit: u32,
) -> Result<Vec<Row>, sqlx::Error> {
    let asked = Where::default().and("app = ?", app).and("key > ?", after);
    asked.first::<Installs>(executor, "key", limit).await
}
