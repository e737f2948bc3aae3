//! What we know of a job, and how a fact changes it.
use std::fmt;

use bincode::{Decode, Encode};
use chrono::TimeDelta;
use serde::{Deserialize, Serialize};

use super::{FailureReason, JobClass, JobEvent, LossReason, SealedLog, Work};
use crate::{
    actor::Actor,
    decider::Timestamp,
    ids::{ExecutionId, RunnerId, SessionId},
};

/// One unit of work for one runner.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Job {
    /// What is to be done. Nothing before the job is queued.
    pub work: Option<Work>,
    /// Executions that lost this job. They never get it back, so that no late word of theirs counts.
    pub lost: Vec<Execution>,
    /// Whether one of them may have run unheard.
    pub may_have_run: bool,
    /// What the last execution reported, in its order: the first at `seq` 1.
    pub heard: Vec<JobEvent>,
    /// One for each execution that sealed its own.
    pub logs: Vec<SealedLog>,
    /// The last execution that had this job, and its runner: also when it is over.
    pub last: Option<(ExecutionId, RunnerId)>,
    /// Executions that sent other bytes for a place of their log that is kept.
    pub diverged: Vec<ExecutionId>,
    /// Executions whose last word came too late.
    pub late: Vec<ExecutionId>,
    /// Where it is.
    pub state: State,
}

/// Where a job is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub enum State {
    /// Nowhere yet.
    #[default]
    Unborn,
    /// It waits for a runner.
    Queued {
        /// The attempt to come, 1 first.
        attempt: u32,
    },
    /// A runner has it.
    Claimed(Execution),
    /// Its child runs.
    Running(Execution),
    /// Nobody can say, and somebody must decide.
    OutcomeUnknown(Execution),
    /// Nothing will happen any more, but for logs.
    Ended {
        /// How.
        outcome: Outcome,
        /// The execution that ended it; none when it was never claimed.
        execution: Option<ExecutionId>,
    },
}

/// One attempt at a job by one runner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Execution {
    /// The fencing token.
    pub id: ExecutionId,
    /// Who has it.
    pub runner: RunnerId,
    /// In which life it was claimed.
    pub session: SessionId,
    /// The runner's own name for the claim.
    pub claim_id: String,
    /// 1 first.
    pub attempt: u32,
    /// It must be over by then.
    #[bincode(with_serde)]
    pub deadline: Timestamp,
    /// Whether its child ran.
    pub started: bool,
    /// Whether its runner calls.
    pub contact: Contact,
    /// Whether somebody wants it to end.
    pub cancel: Option<CancelRequest>,
}

/// Whether a runner calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
pub enum Contact {
    /// It does.
    Connected,
    /// It did.
    Disconnected,
}

/// Somebody wants an execution to end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
pub struct CancelRequest {
    /// Who.
    pub by: Actor,
    /// Why.
    pub reason: String,
    /// Whether to leave the work no time to end by itself.
    pub force: bool,
    /// Whether the runner had long enough to confirm, and did not.
    pub unconfirmed: bool,
}

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The work said so.
    Succeeded,
    /// The work said so, or nobody took it.
    Failed,
    /// Somebody asked, and the runner confirmed.
    Cancelled,
    /// Nobody can say, and it was safe to give up.
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
    /// What may be done in doubt; the strictest before anything is known.
    pub fn class(&self) -> JobClass {
        self.work.as_ref().map_or(JobClass::Unsafe, |work| work.class)
    }

    /// How often it may be tried.
    pub fn attempts(&self) -> u32 {
        self.work.as_ref().map_or(0, |work| work.attempts)
    }

    /// The execution that holds the job now, if one does.
    pub fn execution(&self) -> Option<&Execution> {
        match &self.state {
            State::Claimed(held) | State::Running(held) | State::OutcomeUnknown(held) => Some(held),
            State::Unborn | State::Queued { .. } | State::Ended { .. } => None,
        }
    }

    /// The runner that has, or had, this execution.
    pub fn runner_of(&self, execution: ExecutionId) -> Option<RunnerId> {
        let lost = self.lost.iter().map(|lost| (lost.id, lost.runner));
        let mut all = self.last.into_iter().chain(lost);
        all.find(|(id, _)| *id == execution).map(|(_, runner)| runner)
    }

    /// Whether this execution had the job, and lost it.
    pub fn has_lost(&self, execution: ExecutionId) -> bool {
        self.lost.iter().any(|lost| lost.id == execution)
    }

    /// Whether it is over and its child touched nothing: none ever ran, or its runner found the plan stale or refused
    /// the job, which it does before the apply begins.
    pub fn touched_nothing(&self) -> bool {
        let State::Ended { outcome, execution } = &self.state else { return false };
        if self.may_have_run {
            return false;
        }
        let ran = || self.heard.iter().any(|said| matches!(said, JobEvent::Started { .. }));
        match (outcome, self.heard.last()) {
            (Outcome::Succeeded, _) => false,
            (Outcome::Failed | Outcome::Cancelled, _) if execution.is_none() => true,
            // What is not pure is given up as lost only when it never ran.
            (Outcome::Lost, _) => self.class() != JobClass::Pure,
            (Outcome::Failed, Some(JobEvent::Failed { reason, .. })) => match reason {
                FailureReason::PlanStale | FailureReason::Refused => true,
                // That no start was heard proves nothing: of a job that ran the end alone may come through. This one
                // says besides that nothing was begun.
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
            // Somebody said so, and not its runner; or it was cancelled, which only what runs can be.
            (Outcome::Failed | Outcome::Cancelled, _) => false,
        }
    }

    /// The end of an execution that is claimed at this moment.
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
            // Its consequence is the event after it.
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
            JobEvent::LogSealed(log) => self.logs.push(log),
            JobEvent::LogDiverged { execution, .. } => self.diverged.push(execution),
            JobEvent::LateResultReported { execution, .. } => self.late.push(execution),
        }
    }

    /// Reports are kept as they were given, to know a repeated one from one that says something else.
    fn remember(&mut self, event: &JobEvent) {
        match event {
            JobEvent::Claimed { .. } => self.heard.clear(),
            JobEvent::Started { .. }
            | JobEvent::PhaseEntered { .. }
            | JobEvent::PlanProduced { .. }
            | JobEvent::OutputsReported { .. }
            | JobEvent::StateReported { .. }
            | JobEvent::ArtifactPushed { .. }
            | JobEvent::Succeeded { seq: Some(_), .. }
            | JobEvent::Failed { seq: Some(_), .. }
            | JobEvent::Cancelled { seq: Some(_), .. } => self.heard.push(event.clone()),
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
            | JobEvent::LogSealed(_)
            | JobEvent::LogDiverged { .. }
            | JobEvent::LateResultReported { .. } => {}
        }
    }

    fn held(&mut self) -> Option<&mut Execution> {
        match &mut self.state {
            State::Claimed(held) | State::Running(held) | State::OutcomeUnknown(held) => Some(held),
            State::Unborn | State::Queued { .. } | State::Ended { .. } => None,
        }
    }

    fn end(&mut self, outcome: Outcome, execution: Option<ExecutionId>) {
        self.state = State::Ended { outcome, execution };
    }
}
