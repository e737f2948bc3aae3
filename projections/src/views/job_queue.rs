//! Open jobs: those that wait for a runner, and those that a runner has claimed.
use domain::{
    decider::{Decider, Timestamp},
    ids::{ExecutionId, InstallId, JobId},
    job::{Job, JobClass, JobEvent, JobKind, Origin},
};
use serde::{Deserialize, Serialize};
use sqlx::PgExecutor;

use crate::{
    Cell, Class, DomainEvent, Projection, RecordedEvent, Type,
    table::{get, select},
};

#[derive(Debug)]
pub struct JobQueue;

/// An open job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub job: JobId,
    /// Kind of job, which the runner must support.
    pub kind: JobKind,
    /// Class, which determines whether a lost execution may be repeated.
    pub class: JobClass,
    /// Build or step of the job.
    pub origin: Origin,
    /// Number of the waiting or running attempt.
    pub attempt: u32,
    /// Position of the last event that queued the job.
    pub position: u64,
    /// Time of the last event that queued the job.
    pub queued_at: Timestamp,
    /// Timeout of an execution.
    pub deadline_ms: u64,
    /// Execution that claimed the job, or `None` while the job waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<ExecutionId>,
}

/// Runners that may claim a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    Install(InstallId),
    /// Any build runner.
    Build,
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Target::Install(install) => write!(f, "{install}"),
            Target::Build => f.write_str("build"),
        }
    }
}

impl Row {
    /// Returns the runners that may claim the job.
    pub fn target(&self) -> Target {
        match &self.origin {
            Origin::Build { .. } | Origin::Source { .. } => Target::Build,
            Origin::Preflight { install, .. } | Origin::Step { install, .. } => {
                Target::Install(*install)
            }
        }
    }
}

impl Projection for JobQueue {
    const NAME: &'static str = "job_queue";
    const VERSION: i32 = 1;
    const CLASS: Class = Class::Synchronous;
    const AGGREGATES: &'static [&'static str] = &[Job::NAME];
    const COLUMNS: &'static [(&'static str, Type)] = &[
        ("target", Type::Text),
        ("kind", Type::Text),
        ("waiting", Type::Boolean),
        ("position", Type::Bigint),
    ];
    type Row = Row;

    fn keys(event: &RecordedEvent) -> Vec<String> {
        let DomainEvent::Job(job, _) = &event.domain_event else { return vec![] };
        vec![job.to_string()]
    }

    fn apply(_key: &str, row: Option<Row>, event: &RecordedEvent) -> Option<Row> {
        let DomainEvent::Job(job, domain_event) = &event.domain_event else { return row };
        match domain_event {
            JobEvent::Queued(work) => Some(Row {
                job: *job,
                kind: work.kind,
                class: work.class,
                origin: work.origin.clone(),
                attempt: 1,
                position: event.position,
                queued_at: event.at,
                deadline_ms: work.deadline_ms,
                execution: None,
            }),
            JobEvent::Claimed { execution, .. } => {
                row.map(|row| Row { execution: Some(*execution), ..row })
            }
            JobEvent::Requeued { attempt, .. } => row.map(|row| Row {
                attempt: *attempt,
                position: event.position,
                queued_at: event.at,
                execution: None,
                ..row
            }),
            JobEvent::Succeeded { .. }
            | JobEvent::Failed { .. }
            | JobEvent::Cancelled { .. }
            | JobEvent::Lost { .. } => None,
            JobEvent::Started { .. }
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
            | JobEvent::LogFinalized(_)
            | JobEvent::LogDiverged { .. }
            | JobEvent::LateResultReported { .. } => row,
        }
    }

    fn cells(row: &Row) -> Vec<Cell> {
        vec![
            Cell::text(row.target()),
            Cell::text(row.kind.as_str()),
            Cell::Boolean(row.execution.is_none()),
            Cell::number(row.position),
        ]
    }
}

/// Returns the jobs that wait for a runner of this target, in the order in which they were
/// queued.
///
/// # Errors
/// If a database operation fails.
pub async fn waiting(
    executor: impl PgExecutor<'_>,
    target: Target,
    limit: u32,
) -> Result<Vec<Row>, sqlx::Error> {
    let rest = "where target = $1 and waiting order by position limit $2";
    let binds = vec![Cell::text(target), Cell::number(limit.into())];
    select::<JobQueue>(executor, rest, binds).await
}

/// Returns all jobs that wait for a runner, in the order in which they were queued.
///
/// # Errors
/// If a database operation fails.
pub async fn all_waiting(executor: impl PgExecutor<'_>) -> Result<Vec<Row>, sqlx::Error> {
    select::<JobQueue>(executor, "where waiting order by position", vec![]).await
}

/// Returns the open jobs that a runner has claimed, including those with an unknown outcome.
///
/// # Errors
/// If a database operation fails.
pub async fn all_held(executor: impl PgExecutor<'_>) -> Result<Vec<Row>, sqlx::Error> {
    select::<JobQueue>(executor, "where not waiting order by position", vec![]).await
}

/// Returns the row of a job, if the job is open.
///
/// # Errors
/// If a database operation fails.
pub async fn job(executor: impl PgExecutor<'_>, job: JobId) -> Result<Option<Row>, sqlx::Error> {
    get::<JobQueue>(executor, job).await
}
