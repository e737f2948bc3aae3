//! Moments at which something has to be done. A due timer is a command like any other; the aggregate
//! refuses what comes too late, so a timer may fire twice.
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

use crate::{Cell, Class, Fact, Projection, Recorded, Type, table::select};

/// The view.
#[derive(Debug)]
pub struct Timers;

/// Everything that has to be done for one job or run, and when.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// By a name of their own.
    pub timers: BTreeMap<String, Due>,
    /// How long the job may wait for a runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_ttl_ms: Option<u64>,
    /// Who has the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<ExecutionId>,
}

/// What has to be done, and when.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Due {
    /// When.
    pub at: Timestamp,
    /// What.
    pub timer: Timer,
}

/// What has to be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Timer {
    /// Nobody took the job in time.
    QueueExpiry {
        /// Which job.
        job: JobId,
        /// The attempt that was waited for.
        attempt: u32,
    },
    /// The execution has to be over.
    Deadline {
        /// Which job.
        job: JobId,
        /// Which execution.
        execution: ExecutionId,
    },
    /// The runner had long enough to confirm a cancel.
    CancelConfirmation {
        /// Which job.
        job: JobId,
        /// Which execution.
        execution: ExecutionId,
    },
    /// The log is not waited for any longer.
    LogFinalization {
        /// Which job.
        job: JobId,
        /// Whose log.
        execution: ExecutionId,
    },
    /// Nobody answered a plan in time.
    ApprovalExpiry {
        /// Which run.
        run: RunId,
        /// Which step.
        step: StepId,
        /// Which plan.
        digest: Digest,
    },
    /// The back-off of an automatic retry is over.
    StepRetry {
        /// The run.
        run: RunId,
        /// The step.
        step: StepId,
        /// Number of the retry.
        attempt: u32,
    },
}

/// The longest grace that a manifest gives, and a minute.
const CANCEL_MS: u64 = 360_000;
/// With force there is no grace.
const FORCED_CANCEL_MS: u64 = 60_000;
/// How long a log is waited for after the end.
const SEAL_MS: u64 = 600_000;

impl Timer {
    /// As it is written everywhere.
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
    /// When the next of them is due.
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

    /// An execution is over: only its log is waited for.
    fn ends(&mut self, job: JobId, execution: Option<ExecutionId>, at: Timestamp) {
        self.stop(&["queue", "deadline", "cancel"]);
        self.execution = None;
        if let Some(execution) = execution {
            let timer = Timer::LogFinalization { job, execution };
            self.set(seal(execution), after(at, SEAL_MS), timer);
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
            // Its runner may still bring the log, with the outcome.
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
            JobEvent::LogFinalized(log) => self.stop(&[&seal(log.execution)]),
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

    fn keys(event: &Recorded) -> Vec<String> {
        match &event.fact {
            Fact::Job(job, _) => vec![job.to_string()],
            Fact::Run(run, _) => vec![run.to_string()],
            Fact::Access(..)
            | Fact::App(..)
            | Fact::Build(..)
            | Fact::Component(..)
            | Fact::Enrolment(..)
            | Fact::Install(..)
            | Fact::Name(..)
            | Fact::Runner(..)
            | Fact::Subject(..) => vec![],
        }
    }

    fn apply(_key: &str, row: Option<Row>, event: &Recorded) -> Option<Row> {
        let mut row = row.unwrap_or_default();
        match &event.fact {
            Fact::Job(job, fact) => row.job(*job, fact, event.at),
            Fact::Run(run, fact) => row.run(*run, fact),
            Fact::Access(..)
            | Fact::App(..)
            | Fact::Build(..)
            | Fact::Component(..)
            | Fact::Enrolment(..)
            | Fact::Install(..)
            | Fact::Name(..)
            | Fact::Runner(..)
            | Fact::Subject(..) => {}
        }
        Some(row).filter(|row| *row != Row::default())
    }

    fn cells(row: &Row) -> Vec<Cell> {
        vec![Cell::Time(row.next())]
    }
}

fn seal(execution: ExecutionId) -> String {
    format!("seal {execution}")
}

fn after(moment: Timestamp, wait_ms: u64) -> Timestamp {
    i64::try_from(wait_ms)
        .ok()
        .and_then(TimeDelta::try_milliseconds)
        .and_then(|wait| moment.checked_add_signed(wait))
        .unwrap_or(Timestamp::MAX_UTC)
}

/// What is due now, the longest overdue first; of at most `limit` jobs and runs.
///
/// # Errors
/// If the database does not answer.
pub async fn due(
    executor: impl PgExecutor<'_>,
    now: Timestamp,
    limit: u32,
) -> Result<Vec<Due>, sqlx::Error> {
    overdue(executor, "", now, limit).await
}

/// The same of runs only, so that no job stands before an approval.
///
/// # Errors
/// If the database does not answer.
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
