//! State of a job, folded from its events.
use std::fmt;

use bincode::{Decode, Encode};
use chrono::TimeDelta;
use serde::{Deserialize, Serialize};

use super::{FailureReason, FinalizedLog, JobClass, JobEvent, JobKind, LossReason, Work};
use crate::{
    actor::Actor,
    decider::Timestamp,
    ids::{ExecutionId, RunnerId, SessionId},
};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Job {
    /// Work of the job. `None` before the job is queued.
    pub work: Option<Work>,
    /// Executions that lost this job. A lost execution never gets the job back, so its late reports
    /// have no effect.
    pub lost: Vec<Execution>,
    /// True if a lost execution may have started a process.
    pub may_have_run: bool,
    /// Reports of the last execution, in order of their sequence numbers, from 1.
    pub reports: Vec<JobEvent>,
    /// Finalized logs, at most one for each execution.
    pub logs: Vec<FinalizedLog>,
    /// Last execution of the job, with its runner. Also set after the end of the job.
    pub last: Option<(ExecutionId, RunnerId)>,
    /// Executions that sent bytes that differ from the stored bytes of their log.
    pub diverged: Vec<ExecutionId>,
    /// Executions with a recorded late result.
    pub late: Vec<ExecutionId>,
    pub state: State,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub enum State {
    #[default]
    NotCreated,
    /// The job waits for a runner to claim it.
    Queued {
        /// Number of the next attempt, from 1.
        attempt: u32,
    },
    Claimed(Execution),
    /// The plugin started its work.
    Running(Execution),
    /// The server gave up the execution, and the work may have had effects.
    OutcomeUnknown(Execution),
    /// The job has ended. Only finalized logs, divergent logs and late results are still recorded.
    Ended {
        outcome: Outcome,
        /// Execution with the final result. `None` if the job ended while it waited for a runner.
        execution: Option<ExecutionId>,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Execution {
    /// Id of the execution, which is the fencing token.
    pub id: ExecutionId,
    pub runner: RunnerId,
    /// Session that claimed the job.
    pub session: SessionId,
    /// Random id from the runner's journal.
    pub claim_id: String,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Time by which the execution must end.
    #[bincode(with_serde)]
    pub deadline: Timestamp,
    /// True if the runner reported the start of the plugin.
    pub started: bool,
    /// Contact of the runner about this execution.
    pub contact: Contact,
    /// Last cancel request.
    pub cancel: Option<CancelRequest>,
}

/// Contact of a runner about an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
pub enum Contact {
    /// The runner calls within its lease.
    Connected,
    /// The lease elapsed without a call.
    Disconnected,
}

/// Request to cancel an execution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
pub struct CancelRequest {
    pub by: Actor,
    pub reason: String,
    /// True to shorten the grace period between SIGTERM and SIGKILL.
    pub force: bool,
    /// True if the runner did not confirm the cancellation in time.
    pub unconfirmed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The runner reported success, or an actor resolved the outcome as succeeded.
    Succeeded,
    /// The runner reported a failure, an actor resolved the outcome as failed, or no runner claimed
    /// the job in time.
    Failed,
    /// The runner stopped the job on request, or the job was cancelled while it waited for a
    /// runner.
    Cancelled,
    /// The server gave up on the job. The loss is safe: the work is pure, or no process started.
    Lost,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Outcome::Succeeded => "succeeded",
            Outcome::Failed => "failed",
            Outcome::Cancelled => "cancelled",
            Outcome::Lost => "lost",
        })
    }
}

impl Job {
    /// Returns the class of the work. Before the job is queued, returns the strictest class.
    pub fn class(&self) -> JobClass {
        self.work.as_ref().map_or(JobClass::Unsafe, |work| work.class)
    }

    /// Returns the maximum number of attempts, or 0 before the job is queued.
    pub fn attempts(&self) -> u32 {
        self.work.as_ref().map_or(0, |work| work.attempts)
    }

    /// Returns the execution that holds the job, also while its outcome is unknown.
    pub fn execution(&self) -> Option<&Execution> {
        match &self.state {
            State::Claimed(held) | State::Running(held) | State::OutcomeUnknown(held) => Some(held),
            State::NotCreated | State::Queued { .. } | State::Ended { .. } => None,
        }
    }

    /// Returns the runner of an execution of this job, also of a former execution.
    pub fn runner_of(&self, execution: ExecutionId) -> Option<RunnerId> {
        let lost = self.lost.iter().map(|lost| (lost.id, lost.runner));
        let mut all = self.last.into_iter().chain(lost);
        all.find(|(id, _)| *id == execution).map(|(_, runner)| runner)
    }

    /// Returns true if this execution held the job and lost it.
    pub fn has_lost(&self, execution: ExecutionId) -> bool {
        self.lost.iter().any(|lost| lost.id == execution)
    }

    /// Returns true if the job has ended and certainly changed nothing. Either no process ran, or
    /// the runner refused the job or found the plan stale before the apply began. A sync that did not
    /// succeed changed nothing that is deployed.
    pub fn changed_nothing(&self) -> bool {
        let State::Ended { outcome, execution } = &self.state else { return false };
        if self.work.as_ref().is_some_and(|work| work.kind == JobKind::Sync) {
            return *outcome != Outcome::Succeeded;
        }
        if self.may_have_run {
            return false;
        }
        let has_started =
            || self.reports.iter().any(|event| matches!(event, JobEvent::Started { .. }));
        match (outcome, self.reports.last()) {
            (Outcome::Succeeded, _) => false,
            (Outcome::Failed | Outcome::Cancelled, _) if execution.is_none() => true,
            // Mutating and unsafe work is lost only if no process started.
            (Outcome::Lost, _) => self.class() != JobClass::Pure,
            (Outcome::Failed, Some(JobEvent::Failed { reason, .. })) => match reason {
                FailureReason::PlanStale | FailureReason::Refused => true,
                // The final report may arrive without the start report, so a missing start report
                // proves nothing. `SpawnFailed` itself states that no process started.
                FailureReason::SpawnFailed => !has_started(),
                FailureReason::ExitCode
                | FailureReason::Signal
                | FailureReason::TimedOut
                | FailureReason::MemoryLimit
                | FailureReason::ProcessLimit
                | FailureReason::ToolMissing
                | FailureReason::ArtifactUnavailable
                | FailureReason::PluginFailed
                | FailureReason::AgentStopped
                | FailureReason::QueueExpired
                | FailureReason::Resolved
                | FailureReason::Internal => false,
            },
            // An actor resolved the outcome, or the job was cancelled after a runner claimed it.
            (Outcome::Failed | Outcome::Cancelled, _) => false,
        }
    }

    /// Returns the deadline of an execution that claims the job at this time.
    pub(super) fn deadline(&self, claimed_at: Timestamp) -> Timestamp {
        let duration = self.work.as_ref().and_then(|work| i64::try_from(work.deadline_ms).ok());
        duration
            .and_then(TimeDelta::try_milliseconds)
            .and_then(|duration| claimed_at.checked_add_signed(duration))
            .unwrap_or(Timestamp::MAX_UTC)
    }

    pub(super) fn apply(&mut self, event: JobEvent) {
        self.store_report(&event);
        match event {
            JobEvent::Queued(work) => {
                let (work, state) = (Some(work), State::Queued { attempt: 1 });
                *self = Job { work, state, ..Job::default() };
            }
            JobEvent::Claimed { execution: id, runner, session, claim_id, attempt, deadline } => {
                self.last = Some((id, runner));
                let (started, contact, cancel) = (false, Contact::Connected, None);
                self.state = State::Claimed(Execution {
                    id,
                    runner,
                    session,
                    claim_id,
                    attempt,
                    deadline,
                    started,
                    contact,
                    cancel,
                });
            }
            JobEvent::Started { .. } => {
                if let Some(held) = self.current_mut() {
                    held.started = true;
                }
                if let State::Claimed(held) = &self.state {
                    self.state = State::Running(held.clone());
                }
            }
            JobEvent::PhaseEntered { .. }
            | JobEvent::PlanProduced { .. }
            | JobEvent::OutputsReported { .. }
            | JobEvent::StateReported { .. }
            | JobEvent::ArtifactPushed { .. }
            | JobEvent::ChecksReported { .. } => {}
            JobEvent::Disconnected { .. } => {
                if let Some(held) = self.current_mut() {
                    held.contact = Contact::Disconnected;
                }
            }
            JobEvent::Reattached { .. } => {
                if let Some(held) = self.current_mut() {
                    held.contact = Contact::Connected;
                }
            }
            JobEvent::Requeued { attempt, loss_reason, .. } => {
                self.may_have_run |= loss_reason != Some(LossReason::NeverSpawned);
                let lost = self.current_mut().map(|held| held.clone());
                self.lost.extend(lost);
                self.state = State::Queued { attempt };
            }
            JobEvent::OutcomeUnknown { .. } => {
                if let Some(held) = self.current_mut() {
                    self.state = State::OutcomeUnknown(held.clone());
                }
            }
            // The next event records the consequence.
            JobEvent::OutcomeResolved { .. } => {}
            JobEvent::CancelRequested { by, reason, force } => {
                if let Some(held) = self.current_mut() {
                    held.cancel = Some(CancelRequest { by, reason, force, unconfirmed: false });
                }
            }
            JobEvent::CancelUnconfirmed { .. } => {
                if let Some(cancel) = self.current_mut().and_then(|held| held.cancel.as_mut()) {
                    cancel.unconfirmed = true;
                }
            }
            JobEvent::Succeeded { execution, .. } => self.end(Outcome::Succeeded, Some(execution)),
            JobEvent::Failed { execution, .. } => self.end(Outcome::Failed, execution),
            JobEvent::Cancelled { execution, .. } => self.end(Outcome::Cancelled, execution),
            JobEvent::Lost { execution, .. } => self.end(Outcome::Lost, Some(execution)),
            JobEvent::LogFinalized(log) => self.logs.push(log),
            JobEvent::LogDiverged { execution, .. } => self.diverged.push(execution),
            JobEvent::LateResultReported { execution, .. } => self.late.push(execution),
        }
    }

    /// Stores a report, to distinguish a repeated report from a different report with the same
    /// number.
    fn store_report(&mut self, event: &JobEvent) {
        match event {
            JobEvent::Claimed { .. } => self.reports.clear(),
            JobEvent::Started { .. }
            | JobEvent::PhaseEntered { .. }
            | JobEvent::PlanProduced { .. }
            | JobEvent::OutputsReported { .. }
            | JobEvent::StateReported { .. }
            | JobEvent::ArtifactPushed { .. }
            | JobEvent::ChecksReported { .. }
            | JobEvent::Succeeded { seq: Some(_), .. }
            | JobEvent::Failed { seq: Some(_), .. }
            | JobEvent::Cancelled { seq: Some(_), .. } => self.reports.push(event.clone()),
            JobEvent::Queued(_)
            | JobEvent::Disconnected { .. }
            | JobEvent::Reattached { .. }
            | JobEvent::Requeued { .. }
            | JobEvent::OutcomeUnknown { .. }
            | JobEvent::OutcomeResolved { .. }
            | JobEvent::CancelRequested { .. }
            | JobEvent::CancelUnconfirmed { .. }
            | JobEvent::Succeeded { seq: None, .. }
            | JobEvent::Failed { seq: None, .. }
            | JobEvent::Cancelled { seq: None, .. }
            | JobEvent::Lost { .. }
            | JobEvent::LogFinalized(_)
            | JobEvent::LogDiverged { .. }
            | JobEvent::LateResultReported { .. } => {}
        }
    }

    fn current_mut(&mut self) -> Option<&mut Execution> {
        match &mut self.state {
            State::Claimed(held) | State::Running(held) | State::OutcomeUnknown(held) => Some(held),
            State::NotCreated | State::Queued { .. } | State::Ended { .. } => None,
        }
    }

    fn end(&mut self, outcome: Outcome, execution: Option<ExecutionId>) {
        self.state = State::Ended { outcome, execution };
    }
}
