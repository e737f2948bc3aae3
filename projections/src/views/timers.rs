//! Timeouts of runs, and jobs whose logs are not finalized. A timeout that is due becomes a
//! command. The aggregate rejects a command that is outdated, so a timeout may fire twice. The
//! dispatcher knows all other timeouts of jobs, because it tracks every open job.
use std::collections::{BTreeMap, BTreeSet};

use domain::{
    decider::{Decider, Timestamp},
    digest::Digest,
    ids::{ExecutionId, JobId, RunId, StepId},
    job::{Job, JobEvent},
    run::{Run, RunEvent},
};
use serde::{Deserialize, Serialize};
use sqlx::PgExecutor;

use crate::{Cell, Class, DomainEvent, Projection, RecordedEvent, Type, table::select};

#[derive(Debug)]
pub struct Timers;

/// Timeouts of one run, or open logs of one job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Timeouts by step.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub timers: BTreeMap<StepId, Due>,
    /// Ended executions whose logs are not finalized.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub open_logs: BTreeSet<ExecutionId>,
}

/// A timeout and the time at which it is due.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Due {
    pub at: Timestamp,
    pub timer: Timer,
}

/// Kinds of timeouts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Timer {
    /// No principal decided on a plan in time.
    ApprovalExpiry { run: RunId, step: StepId, digest: Digest },
    /// The back-off of an automatic retry is over.
    StepRetry {
        run: RunId,
        step: StepId,
        /// Number of the retry.
        attempt: u32,
    },
}

impl Row {
    /// Time at which the next timeout is due.
    pub fn next(&self) -> Option<Timestamp> {
        self.timers.values().map(|due| due.at).min()
    }

    fn job(&mut self, domain_event: &JobEvent) {
        match domain_event {
            JobEvent::Requeued { execution, .. }
            | JobEvent::Succeeded { execution, .. }
            | JobEvent::Lost { execution, .. } => {
                self.open_logs.insert(*execution);
            }
            JobEvent::Failed { execution, .. } | JobEvent::Cancelled { execution, .. } => {
                self.open_logs.extend(*execution);
            }
            JobEvent::LogFinalized(log) => {
                self.open_logs.remove(&log.execution);
            }
            JobEvent::Queued(_)
            | JobEvent::Claimed { .. }
            | JobEvent::Started { .. }
            | JobEvent::PhaseEntered { .. }
            | JobEvent::PlanProduced { .. }
            | JobEvent::OutputsReported { .. }
            | JobEvent::StateReported { .. }
            | JobEvent::ArtifactPushed { .. }
            | JobEvent::ChecksReported { .. }
            | JobEvent::Disconnected { .. }
            | JobEvent::Reattached { .. }
            | JobEvent::OutcomeUnknown { .. }
            | JobEvent::OutcomeResolved { .. }
            | JobEvent::CancelRequested { .. }
            | JobEvent::CancelUnconfirmed { .. }
            | JobEvent::LogDiverged { .. }
            | JobEvent::LateResultReported { .. } => {}
        }
    }

    fn run(&mut self, run: RunId, domain_event: &RunEvent) {
        match domain_event {
            RunEvent::ApprovalRequested { step, digest, expires_at } => {
                let timer = Timer::ApprovalExpiry { run, step: *step, digest: digest.clone() };
                self.timers.insert(*step, Due { at: *expires_at, timer });
            }
            RunEvent::StepRetryScheduled { step, attempt, not_before, .. } => {
                let timer = Timer::StepRetry { run, step: *step, attempt: *attempt };
                self.timers.insert(*step, Due { at: *not_before, timer });
            }
            RunEvent::Approved { step, .. }
            | RunEvent::StepRetried { step, .. }
            | RunEvent::Denied { step, .. }
            | RunEvent::ApprovalExpired { step, .. }
            | RunEvent::PlanInvalidated { step, .. }
            | RunEvent::StepSucceeded { step, .. }
            | RunEvent::StepFailed { step, .. }
            | RunEvent::StepSkipped { step, .. } => {
                self.timers.remove(step);
            }
            RunEvent::Finished { .. } => self.timers.clear(),
            RunEvent::Requested { .. }
            | RunEvent::Planned { .. }
            | RunEvent::PreflightStarted { .. }
            | RunEvent::PreflightPassed { .. }
            | RunEvent::PreflightFailed { .. }
            | RunEvent::StepStarted { .. }
            | RunEvent::PlanProduced { .. }
            | RunEvent::ApplyStarted { .. }
            | RunEvent::CancelRequested { .. } => {}
        }
    }
}

impl Projection for Timers {
    const NAME: &'static str = "timers";
    const VERSION: i32 = 1;
    const CLASS: Class = Class::Synchronous;
    const AGGREGATES: &'static [&'static str] = &[Job::NAME, Run::NAME];
    const COLUMNS: &'static [(&'static str, Type)] = &[("due_at", Type::Time)];
    type Row = Row;

    fn keys(event: &RecordedEvent) -> Vec<String> {
        match &event.domain_event {
            DomainEvent::Job(job, _) => vec![job.to_string()],
            DomainEvent::Run(run, _) => vec![run.to_string()],
            DomainEvent::Access(..)
            | DomainEvent::App(..)
            | DomainEvent::Build(..)
            | DomainEvent::Component(..)
            | DomainEvent::Enrolment(..)
            | DomainEvent::Install(..)
            | DomainEvent::Name(..)
            | DomainEvent::Plugin(..)
            | DomainEvent::Runner(..)
            | DomainEvent::Subject(..)
            | DomainEvent::Webhook(..) => vec![],
        }
    }

    fn apply(_key: &str, row: Option<Row>, event: &RecordedEvent) -> Option<Row> {
        let mut row = row.unwrap_or_default();
        match &event.domain_event {
            DomainEvent::Job(_, domain_event) => row.job(domain_event),
            DomainEvent::Run(run, domain_event) => row.run(*run, domain_event),
            DomainEvent::Access(..)
            | DomainEvent::App(..)
            | DomainEvent::Build(..)
            | DomainEvent::Component(..)
            | DomainEvent::Enrolment(..)
            | DomainEvent::Install(..)
            | DomainEvent::Name(..)
            | DomainEvent::Plugin(..)
            | DomainEvent::Runner(..)
            | DomainEvent::Subject(..)
            | DomainEvent::Webhook(..) => {}
        }
        Some(row).filter(|row| *row != Row::default())
    }

    fn cells(row: &Row) -> Vec<Cell> {
        vec![Cell::Time(row.next())]
    }
}

/// Returns the timeouts that are due, the longest overdue first, for at most `limit` runs.
///
/// # Errors
/// If a database operation fails.
pub async fn due(
    executor: impl PgExecutor<'_>,
    now: Timestamp,
    limit: u32,
) -> Result<Vec<Due>, sqlx::Error> {
    let rest = "where due_at <= $1 order by due_at limit $2";
    let binds = vec![Cell::Time(Some(now)), Cell::number(limit.into())];
    let rows = select::<Timers>(executor, rest, binds).await?;
    let all = rows.into_iter().flat_map(|row| row.timers.into_values());
    let mut due: Vec<Due> = all.filter(|due| due.at <= now).collect();
    due.sort_by_key(|due| due.at);
    Ok(due)
}

/// Returns the jobs with a log that is not finalized.
///
/// # Errors
/// If a database operation fails.
pub async fn jobs_with_open_logs(executor: impl PgExecutor<'_>) -> Result<Vec<JobId>, sqlx::Error> {
    let sql = format!("select key from {} where starts_with(key, $1)", Timers::table());
    let keys: Vec<String> =
        sqlx::query_scalar(&sql).bind(JobId::PREFIX).fetch_all(executor).await?;
    let parsed = keys.iter().map(|key| key.parse());
    parsed.collect::<Result<_, _>>().map_err(|error| sqlx::Error::Decode(Box::new(error)))
}
