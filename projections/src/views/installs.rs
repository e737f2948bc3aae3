//! Installs, with their actual state, reservations and open runs.
use std::collections::{BTreeSet, HashMap};

use domain::{
    decider::{Decider, Timestamp},
    ids::{AppId, InstallId, RunId, RunnerId, StepId},
    install::{Install, InstallEvent},
    run::{Outcome, RunKind},
};
use serde::{Deserialize, Serialize};
use sqlx::PgExecutor;

use crate::{
    Cell, Class, DomainEvent, Projection, RecordedEvent, Type,
    table::{Where, get, select},
};

mod state;
pub use state::State;

#[derive(Debug)]
pub struct Installs;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub install: InstallId,
    /// State of the aggregate.
    pub state: Install,
    /// Components that a teardown or deprovision destroyed, and that no run has deployed since.
    pub torn_down: BTreeSet<String>,
    /// Last run that determines the state of the install; `None` before the first such run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<LastRun>,
    /// Open runs that deployed or destroyed something.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub changed_by: BTreeSet<RunId>,
    /// Steps of open runs whose apply has started. Until such a step ends, its effect on the
    /// component is unknown.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub begun: BTreeSet<(RunId, StepId)>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// Position of the last event that changed the row.
    pub position: u64,
}

/// Last run that determines the state of the install. It succeeded or failed. A cancelled, denied
/// or expired run counts only if it had changed something or started an apply.
///
/// Other runs leave the state unchanged. Actions are never the last run, because an action changes
/// no component.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LastRun {
    pub run: RunId,
    pub kind: RunKind,
    pub outcome: Outcome,
    /// Time of a later change of the desired state that needed no run, because the install already
    /// matched it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superseded_at: Option<Timestamp>,
}

impl Row {
    pub fn runner(&self) -> Option<RunnerId> {
        self.state.stack.as_ref().map(|stack| stack.runner)
    }

    pub fn install_state(&self) -> State {
        State::of(&self.state, self.last_run.as_ref(), !self.torn_down.is_empty())
    }

    /// Applies the outcome of a run.
    fn close(&mut self, run: RunId, outcome: Outcome) {
        let began = self.begun.iter().any(|(by, _)| *by == run);
        self.begun.retain(|(by, _)| *by != run);
        let changed = self.changed_by.remove(&run) || began;
        let counts = match outcome {
            Outcome::Succeeded | Outcome::Failed => true,
            Outcome::Cancelled | Outcome::Denied | Outcome::Expired => changed,
        };
        let kind = self.state.runs.get(&run).map(|run| run.kind);
        if let Some(kind) =
            kind.filter(|kind| counts && !matches!(kind, RunKind::Action | RunKind::Drift))
        {
            self.last_run = Some(LastRun { run, kind, outcome, superseded_at: None });
        }
    }

    /// Records the time of the first change of the desired state after the last run, if the install
    /// has deployed resources. A change that needs a run admits the run in the same commit;
    /// [`Row::admit`] then removes the time.
    fn supersede(&mut self, at: Timestamp) {
        let is_there = self.state.sandbox.is_some() || !self.state.components.is_empty();
        if let Some(last) = self.last_run.as_mut().filter(|_| is_there) {
            last.superseded_at.get_or_insert(at);
        }
    }

    /// Applies the admission of a run. Removes the time of a change of the desired state in the
    /// same commit, because the install does not match the new state yet.
    fn admit(&mut self, at: Timestamp) {
        if let Some(last) = &mut self.last_run {
            last.superseded_at = last.superseded_at.filter(|superseded| *superseded != at);
        }
    }
}

fn takes_down(kind: RunKind) -> bool {
    match kind {
        RunKind::Teardown | RunKind::Deprovision => true,
        RunKind::Provision
        | RunKind::Reprovision
        | RunKind::Deploy
        | RunKind::InputUpdate
        | RunKind::Upgrade
        | RunKind::Rollback
        | RunKind::Action
        | RunKind::Drift => false,
    }
}

impl Projection for Installs {
    const NAME: &'static str = "installs";
    const VERSION: i32 = 4;
    const CLASS: Class = Class::Asynchronous;
    const AGGREGATES: &'static [&'static str] = &[Install::NAME];
    const COLUMNS: &'static [(&'static str, Type)] = &[
        ("app", Type::Text),
        ("name", Type::Text),
        ("runner", Type::Text),
        ("state", Type::Text),
        ("version", Type::Bigint),
    ];
    type Row = Row;

    fn keys(event: &RecordedEvent) -> Vec<String> {
        let DomainEvent::Install(install, _) = &event.domain_event else { return vec![] };
        vec![install.to_string()]
    }

    fn apply(_key: &str, row: Option<Row>, event: &RecordedEvent) -> Option<Row> {
        let DomainEvent::Install(install, domain_event) = &event.domain_event else { return row };
        let mut row = row.unwrap_or_else(|| Row {
            install: *install,
            state: Install::default(),
            torn_down: BTreeSet::new(),
            last_run: None,
            changed_by: BTreeSet::new(),
            begun: BTreeSet::new(),
            created_at: event.at,
            updated_at: event.at,
            position: event.position,
        });
        match domain_event {
            InstallEvent::RunAdmitted { .. } => row.admit(event.at),
            InstallEvent::RunFinished { run, outcome } => row.close(*run, *outcome),
            InstallEvent::ComponentDeployed { name, run, .. } => {
                row.changed_by.insert(*run);
                row.torn_down.remove(name);
            }
            InstallEvent::ComponentDestroyed { name, run, .. } => {
                row.changed_by.insert(*run);
                if row.state.runs.get(run).is_some_and(|run| takes_down(run.kind)) {
                    row.torn_down.insert(name.clone());
                }
            }
            InstallEvent::SandboxProvisioned { run, .. }
            | InstallEvent::SandboxDestroyed { run, .. } => {
                row.changed_by.insert(*run);
            }
            InstallEvent::ComponentApplyStarted { run, step, .. }
            | InstallEvent::SandboxApplyStarted { run, step, .. } => {
                row.begun.insert((*run, *step));
            }
            InstallEvent::ComponentApplyNotRun { run, step, .. }
            | InstallEvent::SandboxApplyNotRun { run, step } => {
                row.begun.remove(&(*run, *step));
            }
            InstallEvent::InputsChanged { .. }
            | InstallEvent::ConfigPinned { .. }
            | InstallEvent::StackOutputsSet { .. } => row.supersede(event.at),
            InstallEvent::Created { .. }
            | InstallEvent::AutoApproveChanged { .. }
            | InstallEvent::FirstProvisionAutoApproved { .. }
            | InstallEvent::ComponentDisabled { .. }
            | InstallEvent::ComponentEnabled { .. }
            | InstallEvent::StackOutputsReported { .. }
            | InstallEvent::ComponentReserved { .. }
            | InstallEvent::ComponentReleased { .. }
            | InstallEvent::SandboxReserved { .. }
            | InstallEvent::SandboxReleased { .. }
            | InstallEvent::ActionCompleted { .. }
            | InstallEvent::StateRecorded { .. }
            | InstallEvent::StateAccepted { .. }
            | InstallEvent::StateAwaited { .. }
            | InstallEvent::StateArrived { .. }
            | InstallEvent::Recovered(_)
            | InstallEvent::Deprovisioned { .. } => {}
        }
        row.state.evolve(domain_event.clone());
        (row.updated_at, row.position) = (event.at, event.position);
        Some(row)
    }

    fn cells(row: &Row) -> Vec<Cell> {
        vec![
            Cell::text(row.state.app.map(|app| app.to_string()).unwrap_or_default()),
            Cell::text(&row.state.name),
            Cell::maybe(row.runner()),
            Cell::text(row.install_state().as_str()),
            Cell::number(row.state.config_version.into()),
        ]
    }
}

/// Returns the row of an install, if the install exists.
///
/// # Errors
/// If a database operation fails.
pub async fn install(
    executor: impl PgExecutor<'_>,
    install: InstallId,
) -> Result<Option<Row>, sqlx::Error> {
    get::<Installs>(executor, install).await
}

/// Returns the install with this name.
///
/// # Errors
/// If a database operation fails.
pub async fn by_name(
    executor: impl PgExecutor<'_>,
    name: &str,
) -> Result<Option<Row>, sqlx::Error> {
    Ok(select::<Installs>(executor, "where name = $1", vec![Cell::text(name)]).await?.pop())
}

/// Returns the number of installs of each of these apps, except apps without installs.
///
/// # Errors
/// If a database operation fails.
pub async fn counts(
    executor: impl PgExecutor<'_>,
    apps: impl IntoIterator<Item = AppId>,
) -> Result<HashMap<AppId, u64>, sqlx::Error> {
    let apps: Vec<_> = apps.into_iter().map(|app| app.to_string()).collect();
    let sql = "select app, count(*) from projection_installs where app = any($1) group by app";
    let rows: Vec<(String, i64)> = sqlx::query_as(sql).bind(apps).fetch_all(executor).await?;
    let count = |(app, count): (String, i64)| Some((app.parse().ok()?, count.unsigned_abs()));
    Ok(rows.into_iter().filter_map(count).collect())
}

/// Criteria for a list of installs.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    pub app: Option<AppId>,
    /// Part of the name, in upper or lower case.
    pub search: Option<String>,
    pub version: Option<u32>,
    pub state: Option<String>,
    pub runner: Option<RunnerFilter>,
    /// True to select only installs that are failed or incomplete, or whose runner is disconnected.
    pub attention: bool,
    pub order: Order,
}

/// Order of a list of installs. A key has the time of the creation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Order {
    #[default]
    Key,
    KeyDescending,
    Name,
    NameDescending,
}

impl Order {
    /// Condition on the rows after the row with the key `?`, and the order. The name of an install
    /// never changes, and a deprovisioned install can have the same one.
    fn sql(self) -> (&'static str, &'static str) {
        match self {
            Order::Key => ("key > ?", "key"),
            Order::KeyDescending => ("key < ?", "key desc"),
            Order::Name => (
                "(name, key) > (select name, key from projection_installs where key = ?)",
                "name, key",
            ),
            Order::NameDescending => (
                "(name, key) < (select name, key from projection_installs where key = ?)",
                "name desc, key desc",
            ),
        }
    }
}

/// Criterion for the runner of an install.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunnerFilter {
    /// No runner has enrolled.
    None,
    /// The recorded state of the runner.
    State(String),
}

/// Returns the installs that match the filter after `after`, in the order of the filter.
///
/// # Errors
/// If a database operation fails.
pub async fn page(
    executor: impl PgExecutor<'_>,
    filter: &Filter,
    after: Option<InstallId>,
    limit: u32,
) -> Result<Vec<Row>, sqlx::Error> {
    const RUNNER: &str = "runner in (select key from projection_runners where state = ?)";
    const ATTENTION: &str = "(state in ('failed', 'incomplete') or runner in \
        (select key from projection_runners where state = 'disconnected'))";
    let Filter { app, search, version, state, runner, attention, order } = filter;
    let mut filtered = Where::default()
        .and("app = ?", *app)
        .and("position(lower(?) in lower(name)) > 0", search.as_ref())
        .and("version = ?::bigint", *version)
        .and("state = ?", state.as_ref());
    filtered = match runner {
        None => filtered,
        Some(RunnerFilter::None) => filtered.holds("runner is null"),
        Some(RunnerFilter::State(state)) => filtered.and(RUNNER, Some(state)),
    };
    if *attention {
        filtered = filtered.holds(ATTENTION);
    }
    let (later, order) = order.sql();
    filtered.and(later, after).first::<Installs>(executor, order, limit).await
}
