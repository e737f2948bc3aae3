//! Timeouts of jobs and runs. A timeout that is due becomes a command. The aggregate rejects a
//! command that is outdated, so a timeout may fire twice.
use std::collections::BTreeMap;

use chrono::TimeDelta;
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

/// Timeouts of one job or run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub timers: BTreeMap<String, Due>,
    /// Maximum time in the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_ttl_ms: Option<u64>,
    /// Execution that holds the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<ExecutionId>,
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
    /// No runner claimed the job in time.
    QueueExpiry {
        job: JobId,
        /// Attempt that waited.
        attempt: u32,
    },
    /// The execution exceeded its deadline.
    Deadline { job: JobId, execution: ExecutionId },
    /// The runner did not confirm a cancel in time.
    CancelConfirmation { job: JobId, execution: ExecutionId },
    /// The job log did not become complete in time and is finalized as it is.
    LogFinalization { job: JobId, execution: ExecutionId },
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

/// Time in which a runner must confirm a cancel: the longest grace period of a manifest, plus one
/// minute.
const CANCEL_MS: u64 = 360_000;
/// Time in which a runner must confirm a forced cancel, which has no grace period.
const FORCED_CANCEL_MS: u64 = 60_000;
/// Time after the end of an execution in which its log may become complete.
const LOG_FINALIZE_MS: u64 = 600_000;

impl Timer {
    /// Name in the API and in logs.
    pub fn kind(&self) -> &'static str {
        match self {
            Timer::QueueExpiry { .. } => "queue_expiry",
            Timer::Deadline { .. } => "deadline",
            Timer::CancelConfirmation { .. } => "cancel_confirmation",
            Timer::LogFinalization { .. } => "log_finalization",
            Timer::ApprovalExpiry { .. } => "approval_expiry",
            Timer::StepRetry { .. } => "step_retry",
        }
    }
}

impl Row {
    /// Time at which the next timeout is due.
    pub fn next(&self) -> Option<Timestamp> {
        self.timers.values().map(|due| due.at).min()
    }

    fn set(&mut self, name: impl Into<String>, at: Timestamp, timer: Timer) {
        self.timers.insert(name.into(), Due { at, timer });
    }

    fn stop(&mut self, names: &[&str]) {
        self.timers.retain(|name, _| !names.contains(&&**name));
    }

    fn waits(&mut self, job: JobId, attempt: u32, since: Timestamp) {
        if let Some(ttl) = self.queue_ttl_ms {
            self.set("queue", after(since, ttl), Timer::QueueExpiry { job, attempt });
        }
    }

    /// Applies the end of an execution. Only the timeout of its log remains.
    fn ends(&mut self, job: JobId, execution: Option<ExecutionId>, at: Timestamp) {
        self.stop(&["queue", "deadline", "cancel"]);
        self.execution = None;
        if let Some(execution) = execution {
            let timer = Timer::LogFinalization { job, execution };
            self.set(finalize_timer(execution), after(at, LOG_FINALIZE_MS), timer);
        }
    }

    fn job(&mut self, job: JobId, fact: &JobEvent, at: Timestamp) {
        match fact {
            JobEvent::Queued(work) => {
                self.queue_ttl_ms = Some(work.queue_ttl_ms);
                self.waits(job, 1, at);
            }
            JobEvent::Claimed { execution, deadline, .. } => {
                let execution = *execution;
                self.stop(&["queue"]);
                self.execution = Some(execution);
                self.set("deadline", *deadline, Timer::Deadline { job, execution });
            }
            JobEvent::Requeued { execution, attempt, .. } => {
                self.ends(job, Some(*execution), at);
                self.waits(job, *attempt, at);
            }
            // The runner may still send the log and the result.
            JobEvent::OutcomeUnknown { .. } => self.stop(&["deadline", "cancel"]),
            JobEvent::CancelRequested { force, .. } => {
                if let Some(execution) = self.execution {
                    let wait = if *force { FORCED_CANCEL_MS } else { CANCEL_MS };
                    let timer = Timer::CancelConfirmation { job, execution };
                    self.set("cancel", after(at, wait), timer);
                }
            }
            JobEvent::CancelUnconfirmed { .. } => self.stop(&["cancel"]),
            JobEvent::Succeeded { execution, .. } | JobEvent::Lost { execution, .. } => {
                self.queue_ttl_ms = None;
                self.ends(job, Some(*execution), at);
            }
            JobEvent::Failed { execution, .. } | JobEvent::Cancelled { execution, .. } => {
                self.queue_ttl_ms = None;
                self.ends(job, *execution, at);
            }
            JobEvent::LogFinalized(log) => self.stop(&[&finalize_timer(log.execution)]),
            JobEvent::Started { .. }
            | JobEvent::PhaseEntered { .. }
            | JobEvent::PlanProduced { .. }
            | JobEvent::OutputsReported { .. }
            | JobEvent::StateReported { .. }
            | JobEvent::ArtifactPushed { .. }
            | JobEvent::Disconnected { .. }
            | JobEvent::Reattached { .. }
            | JobEvent::OutcomeResolved { .. }
            | JobEvent::LogDiverged { .. }
            | JobEvent::LateResultReported { .. } => {}
        }
    }

    fn run(&mut self, run: RunId, fact: &RunEvent) {
        match fact {
            RunEvent::ApprovalRequested { step, digest, expires_at } => {
                let timer = Timer::ApprovalExpiry { run, step: *step, digest: digest.clone() };
                self.set(step.to_string(), *expires_at, timer);
            }
            RunEvent::StepRetryScheduled { step, attempt, not_before, .. } => {
                let timer = Timer::StepRetry { run, step: *step, attempt: *attempt };
                self.set(step.to_string(), *not_before, timer);
            }
            RunEvent::Approved { step, .. }
            | RunEvent::StepRetried { step, .. }
            | RunEvent::Denied { step, .. }
            | RunEvent::ApprovalExpired { step, .. }
            | RunEvent::PlanInvalidated { step, .. }
            | RunEvent::StepSucceeded { step, .. }
            | RunEvent::StepFailed { step, .. }
            | RunEvent::StepSkipped { step, .. } => self.stop(&[&step.to_string()]),
            RunEvent::Finished { .. } => self.timers.clear(),
            RunEvent::Requested { .. }
            | RunEvent::Planned { .. }
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
        match &event.fact {
            DomainEvent::Job(job, _) => vec![job.to_string()],
            DomainEvent::Run(run, _) => vec![run.to_string()],
            DomainEvent::Access(..)
            | DomainEvent::App(..)
            | DomainEvent::Build(..)
            | DomainEvent::Component(..)
            | DomainEvent::Enrolment(..)
            | DomainEvent::Install(..)
            | DomainEvent::Name(..)
            | DomainEvent::Runner(..)
            | DomainEvent::Subject(..) => vec![],
        }
    }

    fn apply(_key: &str, row: Option<Row>, event: &RecordedEvent) -> Option<Row> {
        let mut row = row.unwrap_or_default();
        match &event.fact {
            DomainEvent::Job(job, fact) => row.job(*job, fact, event.at),
            DomainEvent::Run(run, fact) => row.run(*run, fact),
            DomainEvent::Access(..)
            | DomainEvent::App(..)
            | DomainEvent::Build(..)
            | DomainEvent::Component(..)
            | DomainEvent::Enrolment(..)
            | DomainEvent::Install(..)
            | DomainEvent::Name(..)
            | DomainEvent::Runner(..)
            | DomainEvent::Subject(..) => {}
        }
        Some(row).filter(|row| *row != Row::default())
    }

    fn cells(row: &Row) -> Vec<Cell> {
        vec![Cell::Time(row.next())]
    }
}

fn finalize_timer(execution: ExecutionId) -> String {
    format!("seal {execution}")
}

fn after(moment: Timestamp, wait_ms: u64) -> Timestamp {
    i64::try_from(wait_ms)
        .ok()
        .and_then(TimeDelta::try_milliseconds)
        .and_then(|wait| moment.checked_add_signed(wait))
        .unwrap_or(Timestamp::MAX_UTC)
}

/// Returns the timeouts that are due, the longest overdue first, for at most `limit` jobs and
/// runs.
///
/// # Errors
/// If a database operation fails.
pub async fn due(
    executor: impl PgExecutor<'_>,
    now: Timestamp,
    limit: u32,
) -> Result<Vec<Due>, sqlx::Error> {
    overdue(executor, "", now, limit).await
}

/// Returns the due timeouts of runs only, so that jobs do not delay approval timeouts.
///
/// # Errors
/// If a database operation fails.
pub async fn due_of_runs(
    executor: impl PgExecutor<'_>,
    now: Timestamp,
    limit: u32,
) -> Result<Vec<Due>, sqlx::Error> {
    overdue(executor, RunId::PREFIX, now, limit).await
}

async fn overdue(
    executor: impl PgExecutor<'_>,
    prefix: &str,
    now: Timestamp,
    limit: u32,
) -> Result<Vec<Due>, sqlx::Error> {
    let rest = "where due_at <= $1 and starts_with(key, $2) order by due_at limit $3";
    let binds = vec![Cell::Time(Some(now)), Cell::text(prefix), Cell::number(limit.into())];
    let rows = select::<Timers>(executor, rest, binds).await?;
    let all = rows.into_iter().flat_map(|row| row.timers.into_values());
    let mut due: Vec<Due> = all.filter(|due| due.at <= now).collect();
    due.sort_by_key(|due| due.at);
    Ok(due)
}
