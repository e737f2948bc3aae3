//! Runs, with their steps, plans and decisions.
use std::collections::{BTreeMap, HashMap};

use domain::{
    actor::Actor,
    check::Check,
    decider::{Decider, Timestamp},
    digest::Digest,
    ids::{InstallId, RunId, StepId},
    run::{Outcome, Run, RunEvent, StepPlan, StepState},
};
use serde::{Deserialize, Serialize};
use sqlx::PgExecutor;

use crate::{
    Cell, Class, DomainEvent, Projection, RecordedEvent, Type,
    table::{Where, get, select},
};

pub const STATES: [&str; 9] = [
    "requested",
    "running",
    "waiting_for_approval",
    "cancelling",
    "succeeded",
    "failed",
    "cancelled",
    "denied",
    "expired",
];

#[derive(Debug)]
pub struct Runs;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub run: RunId,
    /// State of the aggregate.
    pub state: Run,
    /// Latest plan of each step.
    pub plans: BTreeMap<StepId, StepPlan>,
    /// Decision on the latest plan of each step.
    pub decisions: BTreeMap<StepId, Decision>,
    /// Start and end of each step.
    pub times: BTreeMap<StepId, Times>,
    /// Result of the preflight, and its start and end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preflight: Option<PreflightResult>,
    pub requested_at: Timestamp,
    /// Time at which the run finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// Position of the last event that changed the row.
    pub position: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    pub digest: Digest,
    pub verdict: DecisionKind,
    pub by: Actor,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Time of the decision.
    pub at: Timestamp,
}

/// Result of a decision on a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecisionKind {
    Approved,
    Denied,
    /// No decision was made in time.
    Expired,
}

/// Result of a preflight, with its start and end.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PreflightResult {
    /// Checks of the runner, or of the server.
    pub checks: Vec<Check>,
    /// Explanation of the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    #[serde(flatten)]
    pub times: Times,
}

/// Start and end of a step.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Time at which the first job of the step was queued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// Time at which the latest plan of the step was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planned_at: Option<Timestamp>,
    /// Time at which the step finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}

impl DecisionKind {
    /// Name in the API and in output.
    pub fn as_str(self) -> &'static str {
        match self {
            DecisionKind::Approved => "approved",
            DecisionKind::Denied => "denied",
            DecisionKind::Expired => "expired",
        }
    }
}

impl Row {
    /// Name of the state: `requested`, `running`, `waiting_for_approval`, `cancelling`,
    /// `succeeded`, `failed`, `cancelled`, `denied` or `expired`.
    pub fn state_name(&self) -> &'static str {
        let any = |is: fn(&StepState) -> bool| self.state.steps.iter().any(|s| is(&s.state));
        match self.state.outcome {
            Some(Outcome::Succeeded) => "succeeded",
            Some(Outcome::Failed) => "failed",
            Some(Outcome::Cancelled) => "cancelled",
            Some(Outcome::Denied) => "denied",
            Some(Outcome::Expired) => "expired",
            None if self.state.cancel.is_some() => "cancelling",
            None if self.state.preflight.running_job().is_some() => "running",
            None if any(|state| state.job().is_some()) => "running",
            None if self.state.awaits_plans() => "running",
            None if any(|state| matches!(state, StepState::AwaitingApproval { .. })) => {
                "waiting_for_approval"
            }
            None if any(|state| !matches!(state, StepState::Waiting)) => "running",
            None => "requested",
        }
    }

    pub fn install(&self) -> Option<InstallId> {
        self.state.request.as_ref().map(|request| request.install)
    }
}

impl Projection for Runs {
    const NAME: &'static str = "runs";
    const VERSION: i32 = 2;
    const CLASS: Class = Class::Asynchronous;
    const AGGREGATES: &'static [&'static str] = &[Run::NAME];
    const COLUMNS: &'static [(&'static str, Type)] =
        &[("install", Type::Text), ("state", Type::Text), ("finished", Type::Boolean)];
    type Row = Row;

    fn keys(event: &RecordedEvent) -> Vec<String> {
        let DomainEvent::Run(run, _) = &event.domain_event else { return vec![] };
        vec![run.to_string()]
    }

    fn apply(_key: &str, row: Option<Row>, event: &RecordedEvent) -> Option<Row> {
        let DomainEvent::Run(run, domain_event) = &event.domain_event else { return row };
        let mut row = row.unwrap_or_else(|| Row {
            run: *run,
            state: Run::default(),
            plans: BTreeMap::new(),
            decisions: BTreeMap::new(),
            times: BTreeMap::new(),
            preflight: None,
            requested_at: event.at,
            ended_at: None,
            position: event.position,
        });
        let decision = |verdict, digest: &Digest, by: &Actor, reason: Option<&String>| Decision {
            digest: digest.clone(),
            verdict,
            by: by.clone(),
            reason: reason.cloned(),
            at: event.at,
        };
        match domain_event {
            RunEvent::PreflightStarted { .. } => {
                row.preflight.get_or_insert_default().times.started_at = Some(event.at);
            }
            RunEvent::PreflightPassed { checks, .. } => {
                let result = row.preflight.get_or_insert_default();
                result.checks.clone_from(checks);
                result.times.ended_at = Some(event.at);
            }
            RunEvent::PreflightFailed { checks, detail, .. } => {
                let result = row.preflight.get_or_insert_default();
                result.checks.clone_from(checks);
                result.detail = Some(detail.clone());
                result.times.ended_at = Some(event.at);
            }
            RunEvent::StepStarted { step, .. } => {
                let times = row.times.entry(*step).or_default();
                times.started_at = times.started_at.or(Some(event.at));
                times.ended_at = None;
            }
            RunEvent::PlanProduced { step, plan, .. } => {
                row.plans.insert(*step, plan.clone());
                row.times.entry(*step).or_default().planned_at = Some(event.at);
                row.decisions.remove(step);
            }
            RunEvent::Approved { step, digest, by, reason } => {
                let approved = decision(DecisionKind::Approved, digest, by, Some(reason));
                row.decisions.insert(*step, approved);
            }
            RunEvent::Denied { step, digest, by, reason } => {
                row.decisions
                    .insert(*step, decision(DecisionKind::Denied, digest, by, Some(reason)));
            }
            RunEvent::ApprovalExpired { step, digest } => {
                let expired = decision(DecisionKind::Expired, digest, &event.actor, None);
                row.decisions.insert(*step, expired);
            }
            RunEvent::StepSucceeded { step, .. }
            | RunEvent::StepFailed { step, .. }
            | RunEvent::StepSkipped { step, .. } => {
                row.times.entry(*step).or_default().ended_at = Some(event.at);
            }
            RunEvent::StepRetried { step, .. } => {
                row.times.entry(*step).or_default().ended_at = None;
            }
            RunEvent::Finished { .. } => row.ended_at = Some(event.at),
            RunEvent::Requested { .. }
            | RunEvent::Planned { .. }
            | RunEvent::ApprovalRequested { .. }
            | RunEvent::PlanInvalidated { .. }
            | RunEvent::ApplyStarted { .. }
            | RunEvent::StepRetryScheduled { .. }
            | RunEvent::CancelRequested { .. } => {}
        }
        row.state.evolve(domain_event.clone());
        row.position = event.position;
        Some(row)
    }

    fn cells(row: &Row) -> Vec<Cell> {
        vec![
            Cell::text(row.install().map(|install| install.to_string()).unwrap_or_default()),
            Cell::text(row.state_name()),
            Cell::Boolean(row.state.outcome.is_some()),
        ]
    }
}

/// Returns the row of a run, if the run exists.
///
/// # Errors
/// If a database operation fails.
pub async fn run(executor: impl PgExecutor<'_>, run: RunId) -> Result<Option<Row>, sqlx::Error> {
    get::<Runs>(executor, run).await
}

/// Returns the installs of these runs. Unknown runs are left out.
///
/// # Errors
/// If a database operation fails.
pub async fn installs_of(
    executor: impl PgExecutor<'_>,
    runs: &[RunId],
) -> Result<HashMap<RunId, InstallId>, sqlx::Error> {
    let keys: Vec<String> = runs.iter().map(ToString::to_string).collect();
    let rows = "select key, install from projection_runs where key = any($1)";
    let rows: Vec<(String, Option<String>)> =
        sqlx::query_as(rows).bind(keys).fetch_all(executor).await?;
    let read = |(run, install): (String, Option<String>)| {
        Some((run.parse().ok()?, install?.parse().ok()?))
    };
    Ok(rows.into_iter().filter_map(read).collect())
}

/// Returns the open runs, oldest first.
///
/// # Errors
/// If a database operation fails.
pub async fn open(executor: impl PgExecutor<'_>) -> Result<Vec<Row>, sqlx::Error> {
    select::<Runs>(executor, "where not finished order by key", vec![]).await
}

/// Returns the runs before `before`, newest first, optionally of one install and in one
/// state.
///
/// # Errors
/// If a database operation fails.
pub async fn page(
    executor: impl PgExecutor<'_>,
    install: Option<InstallId>,
    state: Option<&str>,
    before: Option<RunId>,
    limit: u32,
) -> Result<Vec<Row>, sqlx::Error> {
    let filtered = Where::default().and("install = ?", install).and("state = ?", state);
    filtered.and("key < ?", before).first::<Runs>(executor, "key desc", limit).await
}
