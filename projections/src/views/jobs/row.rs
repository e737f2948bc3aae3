//! Row of a job, and the effect of each event on it.
use std::collections::BTreeMap;

use domain::{
    actor::Actor,
    artifact::Artifact,
    decider::Timestamp,
    ids::{BuildId, ExecutionId, InstallId, JobId, RunId, RunnerId, SessionId, StepId},
    isolation::Isolation,
    job::{
        CancelRequest, FailureReason, FinalizedLog, JobEvent, LossReason, Origin, Outcome,
        PlanReport, Resolution, SignedResult, Work,
    },
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::RecordedEvent;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub job: JobId,
    pub work: Work,
    pub state: JobState,
    /// Executions, oldest first.
    pub attempts: Vec<Attempt>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel: Option<CancelRequest>,
    /// Changes that an apply would make.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanReport>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outputs: BTreeMap<String, Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Artifact>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// Resolution of an unknown outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution: Option<ResolutionRecord>,
    /// Time at which the job was first queued.
    pub queued_at: Timestamp,
    /// Time at which the job finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// Position of the last event that changed the row.
    pub position: u64,
}

/// State of a job from the queue to its outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// The job waits for a runner.
    Queued,
    /// A runner has claimed the job. The child process does not run yet.
    Claimed,
    /// The child process runs.
    Running,
    Disconnected,
    /// The outcome is unknown, and a user must resolve it.
    OutcomeUnknown,
    Succeeded,
    Failed,
    /// The job ended after a cancel request.
    Cancelled,
    /// The last execution was lost, and no further attempt is allowed. The job changed nothing.
    Lost,
}

/// An execution of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    pub execution: ExecutionId,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    pub runner: RunnerId,
    pub session: SessionId,
    /// Time at which the execution must have finished.
    pub deadline: Timestamp,
    pub claimed_at: Timestamp,
    /// Position of `job.claimed`. The fence of the execution consists of the log's epoch and this
    /// position.
    pub claimed_position: u64,
    /// Time at which the child process started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// Isolation that the runner reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
    /// Phases with the times at which they began.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<(String, Timestamp)>,
    /// Time at which the runner was recorded as disconnected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_since: Option<Timestamp>,
    /// Reason why the server recorded a loss or an unknown outcome of the execution; `None` if it
    /// recorded neither.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_reason: Option<LossReason>,
    /// Exit code of the child process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Signal that killed the child process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Time at which the execution finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<FinalizedLog>,
    /// Result as the runner signed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed: Option<SignedResult>,
    /// Warnings without an effect on the state: `cancel_too_late`, `log_diverged`, `late_result:
    /// …`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    pub reason: FailureReason,
    /// Description for the user.
    pub detail: String,
}

/// Manual resolution of an unknown outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResolutionRecord {
    pub execution: ExecutionId,
    /// Actor that resolved the outcome.
    pub by: Actor,
    /// Outcome that the actor chose.
    pub resolution: Resolution,
    pub reason: String,
    /// Time of the resolution.
    pub at: Timestamp,
}

impl JobState {
    pub const ALL: [JobState; 9] = [
        JobState::Queued,
        JobState::Claimed,
        JobState::Running,
        JobState::Disconnected,
        JobState::OutcomeUnknown,
        JobState::Succeeded,
        JobState::Failed,
        JobState::Cancelled,
        JobState::Lost,
    ];

    /// Name in the API and in output.
    pub fn as_str(self) -> &'static str {
        match self {
            JobState::Queued => "queued",
            JobState::Claimed => "claimed",
            JobState::Running => "running",
            JobState::Disconnected => "disconnected",
            JobState::OutcomeUnknown => "outcome_unknown",
            JobState::Succeeded => "succeeded",
            JobState::Failed => "failed",
            JobState::Cancelled => "cancelled",
            JobState::Lost => "lost",
        }
    }

    /// Returns true if the job is finished. Only its log may still change.
    pub fn is_over(self) -> bool {
        match self {
            JobState::Succeeded | JobState::Failed | JobState::Cancelled | JobState::Lost => true,
            JobState::Queued
            | JobState::Claimed
            | JobState::Running
            | JobState::Disconnected
            | JobState::OutcomeUnknown => false,
        }
    }
}

impl From<Outcome> for JobState {
    fn from(outcome: Outcome) -> JobState {
        match outcome {
            Outcome::Succeeded => JobState::Succeeded,
            Outcome::Failed => JobState::Failed,
            Outcome::Cancelled => JobState::Cancelled,
            Outcome::Lost => JobState::Lost,
        }
    }
}

impl Row {
    pub fn install(&self) -> Option<InstallId> {
        match &self.work.origin {
            Origin::Preflight { install, .. } | Origin::Step { install, .. } => Some(*install),
            Origin::Build { .. } | Origin::Source { .. } => None,
        }
    }

    /// Returns the run of a preflight or a step.
    pub fn run(&self) -> Option<RunId> {
        match &self.work.origin {
            Origin::Preflight { run, .. } | Origin::Step { run, .. } => Some(*run),
            Origin::Build { .. } | Origin::Source { .. } => None,
        }
    }

    pub fn step(&self) -> Option<(RunId, StepId)> {
        match &self.work.origin {
            Origin::Step { run, step, .. } => Some((*run, *step)),
            Origin::Build { .. } | Origin::Source { .. } | Origin::Preflight { .. } => None,
        }
    }

    pub fn build(&self) -> Option<BuildId> {
        match &self.work.origin {
            Origin::Build { build, .. } => Some(*build),
            Origin::Preflight { .. } | Origin::Step { .. } | Origin::Source { .. } => None,
        }
    }

    /// Returns the last execution, unless it has ended.
    pub fn held(&self) -> Option<&Attempt> {
        self.attempts.last().filter(|last| last.ended_at.is_none())
    }

    fn of(&mut self, execution: ExecutionId) -> Option<&mut Attempt> {
        self.attempts.iter_mut().find(|attempt| attempt.execution == execution)
    }

    fn note(&mut self, execution: ExecutionId, note: String) {
        if let Some(attempt) = self.of(execution) {
            attempt.notes.push(note);
        }
    }

    fn end(&mut self, outcome: Outcome, execution: Option<ExecutionId>, at: Timestamp) {
        self.state = outcome.into();
        self.ended_at = Some(at);
        if let Some(attempt) = execution.and_then(|execution| self.of(execution)) {
            attempt.ended_at = Some(at);
            attempt.silent_since = None;
        }
    }

    /// Row of a job that was just queued.
    pub(super) fn queued(job: JobId, work: Work, event: &RecordedEvent) -> Row {
        Row {
            job,
            work,
            state: JobState::Queued,
            attempts: vec![],
            cancel: None,
            plan: None,
            outputs: BTreeMap::new(),
            artifact: None,
            failure: None,
            resolution: None,
            queued_at: event.at,
            ended_at: None,
            position: event.position,
        }
    }

    pub(super) fn take(&mut self, domain_event: &JobEvent, event: &RecordedEvent) {
        let at = event.at;
        match domain_event {
            JobEvent::Queued(_) => {}
            JobEvent::Claimed { execution, runner, session, attempt, deadline, .. } => {
                self.state = JobState::Claimed;
                self.attempts.push(Attempt {
                    execution: *execution,
                    attempt: *attempt,
                    runner: *runner,
                    session: *session,
                    deadline: *deadline,
                    claimed_at: at,
                    claimed_position: event.position,
                    started_at: None,
                    isolation: None,
                    phases: vec![],
                    silent_since: None,
                    loss_reason: None,
                    exit_code: None,
                    signal: None,
                    ended_at: None,
                    log: None,
                    signed: None,
                    notes: vec![],
                });
            }
            JobEvent::Started { execution, isolation, .. } => {
                if self.state == JobState::Claimed {
                    self.state = JobState::Running;
                }
                if let Some(attempt) = self.of(*execution) {
                    attempt.started_at = Some(at);
                    attempt.isolation = isolation.clone();
                }
            }
            JobEvent::PhaseEntered { execution, phase, .. } => {
                if let Some(attempt) = self.of(*execution) {
                    attempt.phases.push((phase.clone(), at));
                }
            }
            JobEvent::PlanProduced { plan, .. } => self.plan = Some(plan.clone()),
            JobEvent::OutputsReported { outputs, .. } => self.outputs.extend(outputs.clone()),
            // The row does not contain the reported state; the history of the install shows the
            // event.
            JobEvent::StateReported { .. } => {}
            // The row of the run contains the checks.
            JobEvent::ChecksReported { .. } => {}
            JobEvent::ArtifactPushed { artifact, .. } => self.artifact = Some(artifact.clone()),
            JobEvent::Disconnected { execution } => {
                self.state = JobState::Disconnected;
                if let Some(attempt) = self.of(*execution) {
                    attempt.silent_since = Some(at);
                }
            }
            JobEvent::Reattached { execution } => {
                let started = self.of(*execution).is_some_and(|attempt| {
                    attempt.silent_since = None;
                    attempt.started_at.is_some()
                });
                self.state = if started { JobState::Running } else { JobState::Claimed };
            }
            JobEvent::Requeued { execution, loss_reason, .. } => {
                self.state = JobState::Queued;
                if let Some(attempt) = self.of(*execution) {
                    (attempt.ended_at, attempt.loss_reason) =
                        (Some(at), loss_reason.or(attempt.loss_reason));
                }
            }
            JobEvent::OutcomeUnknown { execution, loss_reason } => {
                self.state = JobState::OutcomeUnknown;
                if let Some(attempt) = self.of(*execution) {
                    attempt.loss_reason = Some(*loss_reason);
                }
            }
            JobEvent::OutcomeResolved { execution, by, resolution, reason } => {
                let (execution, resolution) = (*execution, *resolution);
                let (by, reason) = (by.clone(), reason.clone());
                self.resolution = Some(ResolutionRecord { execution, by, resolution, reason, at });
            }
            JobEvent::CancelRequested { by, reason, force } => {
                let (by, reason, force) = (by.clone(), reason.clone(), *force);
                self.cancel = Some(CancelRequest { by, reason, force, unconfirmed: false });
            }
            JobEvent::CancelUnconfirmed { .. } => {
                if let Some(cancel) = &mut self.cancel {
                    cancel.unconfirmed = true;
                }
            }
            JobEvent::Succeeded { execution, exit_code, signed, .. } => {
                self.end(Outcome::Succeeded, Some(*execution), at);
                if self.cancel.is_some() {
                    self.note(*execution, "cancel_too_late".into());
                }
                if let Some(attempt) = self.of(*execution) {
                    (attempt.exit_code, attempt.signed) = (*exit_code, signed.clone());
                }
            }
            JobEvent::Failed { execution, reason, detail, exit_code, signal, signed, .. } => {
                self.end(Outcome::Failed, *execution, at);
                self.failure = Some(Failure { reason: *reason, detail: detail.clone() });
                if let Some(attempt) = execution.and_then(|execution| self.of(execution)) {
                    (attempt.exit_code, attempt.signal) = (*exit_code, *signal);
                    attempt.signed.clone_from(signed);
                }
            }
            JobEvent::Cancelled { execution, signed, .. } => {
                self.end(Outcome::Cancelled, *execution, at);
                if let Some(attempt) = execution.and_then(|execution| self.of(execution)) {
                    attempt.signed.clone_from(signed);
                }
            }
            JobEvent::Lost { execution, loss_reason } => {
                self.end(Outcome::Lost, Some(*execution), at);
                if let Some(attempt) = self.of(*execution) {
                    attempt.loss_reason = Some(*loss_reason);
                }
            }
            JobEvent::LogFinalized(log) => {
                if let Some(attempt) = self.of(log.execution) {
                    attempt.log = Some(log.clone());
                }
            }
            JobEvent::LogDiverged { execution, .. } => self.note(*execution, "log_diverged".into()),
            JobEvent::LateResultReported { execution, outcome, signed, .. } => {
                if let Some(attempt) = self.of(*execution)
                    && attempt.signed.is_none()
                {
                    attempt.signed.clone_from(signed);
                }
                self.note(*execution, format!("late_result: {outcome}"));
            }
        }
    }
}
