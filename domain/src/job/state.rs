//! State of a job, folded from its events.
use std::fmt;

use bincode::{Decode, Encode};
use chrono::TimeDelta;
use serde::{Deserialize, Serialize};

use super::{FailureReason, FinalizedLog, JobClass, JobEvent, LossReason, Work};
use crate::{
    actor::Actor,
    decider::Timestamp,
    ids::{ExecutionId, RunnerId, SessionId},
};

/// One unit of work for one runner.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Job {
    /// Work to do; none before the job is queued.
    pub work: Option<Work>,
    /// Executions that lost this job. They never get the job back, so their late reports have no
    /// effect.
    pub lost: Vec<Execution>,
    /// True if a lost execution may have run without a report.
    pub may_have_run: bool,
    /// Reports of the last execution, in order; the first has `seq` 1.
    pub reports: Vec<JobEvent>,
    /// Finalized logs, at most one per execution.
    pub logs: Vec<FinalizedLog>,
    /// Last execution of this job and its runner, also after the job has ended.
    pub last: Option<(ExecutionId, RunnerId)>,
    /// Executions that sent other bytes for a part of the log that the server has stored.
    pub diverged: Vec<ExecutionId>,
    /// Executions whose result arrived too late.
    pub late: Vec<ExecutionId>,
    /// Lifecycle state.
    pub state: State,
}

/// Lifecycle state of a job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub enum State {
    /// Does not exist yet.
    #[default]
    NotCreated,
    /// The job waits for a runner.
    Queued {
        /// Number of the next attempt, from 1.
        attempt: u32,
    },
    /// A runner claimed the job.
    Claimed(Execution),
    /// The child process runs.
    Running(Execution),
    /// The outcome is unknown and must be resolved.
    OutcomeUnknown(Execution),
    /// The job has ended. Only its logs may change.
    Ended {
        outcome: Outcome,
        /// Execution with the final result; none if no runner held the job at its end.
        execution: Option<ExecutionId>,
    },
}

/// One attempt at a job by one runner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Execution {
    /// The fencing token.
    pub id: ExecutionId,
    /// Runner of the execution.
    pub runner: RunnerId,
    /// Session that claimed the job.
    pub session: SessionId,
    /// Claim id that the runner chose.
    pub claim_id: String,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Time by which the execution must have ended.
    #[bincode(with_serde)]
    pub deadline: Timestamp,
    /// True if the runner reported that the child process has started.
    pub started: bool,
    /// Contact of the runner.
    pub contact: Contact,
    /// Cancel request, if there is one.
    pub cancel: Option<CancelRequest>,
}

/// Contact of a runner with the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
pub enum Contact {
    /// The runner calls.
    Connected,
    /// The runner no longer calls.
    Disconnected,
}

/// Request to cancel an execution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
pub struct CancelRequest {
    /// Actor of the request.
    pub by: Actor,
    /// Reason that was given.
    pub reason: String,
    /// True to shorten the grace period.
    pub force: bool,
    /// True if the runner did not confirm the cancel in time.
    pub unconfirmed: bool,
}

/// Outcome of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The work succeeded.
    Succeeded,
    /// The work failed, or no runner claimed the job in time.
    Failed,
    /// The job was cancelled on request.
    Cancelled,
    /// The outcome is unknown, and giving up was safe.
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
    /// Returns the class of the work; the strictest one before the work is known.
    pub fn class(&self) -> JobClass {
        self.work.as_ref().map_or(JobClass::Unsafe, |work| work.class)
    }

    /// Returns the maximum number of attempts.
    pub fn attempts(&self) -> u32 {
        self.work.as_ref().map_or(0, |work| work.attempts)
    }

    /// Returns the execution that holds the job now, if one does.
    pub fn execution(&self) -> Option<&Execution> {
        match &self.state {
            State::Claimed(held) | State::Running(held) | State::OutcomeUnknown(held) => Some(held),
            State::NotCreated | State::Queued { .. } | State::Ended { .. } => None,
        }
    }

    /// Returns the runner that has or had this execution.
    pub fn runner_of(&self, execution: ExecutionId) -> Option<RunnerId> {
        let lost = self.lost.iter().map(|lost| (lost.id, lost.runner));
        let mut all = self.last.into_iter().chain(lost);
        all.find(|(id, _)| *id == execution).map(|(_, runner)| runner)
    }

    /// Returns true if this execution held the job and lost it.
    pub fn has_lost(&self, execution: ExecutionId) -> bool {
        self.lost.iter().any(|lost| lost.id == execution)
    }

    /// Returns true if the job has ended and changed nothing. Either no child process ran, or the
    /// runner found the plan stale or refused the job, both before the apply began.
    pub fn changed_nothing(&self) -> bool {
        let State::Ended { outcome, execution } = &self.state else { return false };
        if self.may_have_run {
            return false;
        }
        let ran = || self.reports.iter().any(|said| matches!(said, JobEvent::Started { .. }));
        match (outcome, self.reports.last()) {
            (Outcome::Succeeded, _) => false,
            (Outcome::Failed | Outcome::Cancelled, _) if execution.is_none() => true,
            // Mutating and unsafe work is lost only if it never ran.
            (Outcome::Lost, _) => self.class() != JobClass::Pure,
            (Outcome::Failed, Some(JobEvent::Failed { reason, .. })) => match reason {
                FailureReason::PlanStale | FailureReason::Refused => true,
                // A missing start report alone proves nothing, because only the final report of a
                // job may arrive. This reason itself says that nothing started.
                FailureReason::SpawnFailed => !ran(),
                FailureReason::ExitCode
                | FailureReason::Signal
                | FailureReason::TimedOut
                | FailureReason::ToolMissing
                | FailureReason::ArtifactUnavailable
                | FailureReason::PluginFailed
                | FailureReason::AgentStopped
                | FailureReason::QueueExpired
                | FailureReason::Resolved
                | FailureReason::Internal => false,
            },
            // An actor resolved the outcome without the runner, or the job was cancelled while it
            // ran.
            (Outcome::Failed | Outcome::Cancelled, _) => false,
        }
    }

    /// Returns the deadline of an execution that is claimed at this time.
    pub(super) fn deadline(&self, claimed_at: Timestamp) -> Timestamp {
        let length = self.work.as_ref().and_then(|work| i64::try_from(work.deadline_ms).ok());
        length
            .and_then(TimeDelta::try_milliseconds)
            .and_then(|length| claimed_at.checked_add_signed(length))
            .unwrap_or(Timestamp::MAX_UTC)
    }

    pub(super) fn apply(&mut self, event: JobEvent) {
        self.remember(&event);
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
                if let Some(held) = self.held() {
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
            | JobEvent::ArtifactPushed { .. } => {}
            JobEvent::Disconnected { .. } => {
                if let Some(held) = self.held() {
                    held.contact = Contact::Disconnected;
                }
            }
            JobEvent::Reattached { .. } => {
                if let Some(held) = self.held() {
                    held.contact = Contact::Connected;
                }
            }
            JobEvent::Requeued { attempt, loss_reason, .. } => {
                self.may_have_run |= loss_reason != Some(LossReason::NeverSpawned);
                let lost = self.held().map(|held| held.clone());
                self.lost.extend(lost);
                self.state = State::Queued { attempt };
            }
            JobEvent::OutcomeUnknown { .. } => {
                if let Some(held) = self.held() {
                    self.state = State::OutcomeUnknown(held.clone());
                }
            }
            // The next event records the consequence.
            JobEvent::OutcomeResolved { .. } => {}
            JobEvent::CancelRequested { by, reason, force } => {
                if let Some(held) = self.held() {
                    held.cancel = Some(CancelRequest { by, reason, force, unconfirmed: false });
                }
            }
            JobEvent::CancelUnconfirmed { .. } => {
                if let Some(cancel) = self.held().and_then(|held| held.cancel.as_mut()) {
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

    /// Stores a report as the runner sent it, to distinguish a repeated report from a different
    /// one.
    fn remember(&mut self, event: &JobEvent) {
        match event {
            JobEvent::Claimed { .. } => self.reports.clear(),
            JobEvent::Started { .. }
            | JobEvent::PhaseEntered { .. }
            | JobEvent::PlanProduced { .. }
            | JobEvent::OutputsReported { .. }
            | JobEvent::StateReported { .. }
            | JobEvent::ArtifactPushed { .. }
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

    fn held(&mut self) -> Option<&mut Execution> {
        match &mut self.state {
            State::Claimed(held) | State::Running(held) | State::OutcomeUnknown(held) => Some(held),
            State::NotCreated | State::Queued { .. } | State::Ended { .. } => None,
        }
    }

    fn end(&mut self, outcome: Outcome, execution: Option<ExecutionId>) {
        self.state = State::Ended { outcome, execution };
    }
}
