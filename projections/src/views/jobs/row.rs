//! What is shown of a job, and how a fact changes it.
use std::collections::BTreeMap;

use domain::{
    actor::Actor,
    artifact::Artifact,
    decider::Timestamp,
    ids::{BuildId, ExecutionId, InstallId, JobId, RunId, RunnerId, SessionId, StepId},
    job::{
        CancelRequest, FailureReason, JobEvent, LossReason, Origin, Outcome, PlanReport,
        Resolution, SealedLog, Signed, Work,
    },
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Recorded;

/// A job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Its id.
    pub job: JobId,
    /// What is to be done.
    pub work: Work,
    /// Where it is.
    pub state: JobState,
    /// Every execution, the first one first.
    pub attempts: Vec<Attempt>,
    /// Whether somebody wants it to end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel: Option<CancelRequest>,
    /// What an apply would change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanReport>,
    /// What the work gives to others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outputs: BTreeMap<String, Value>,
    /// What a build made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Artifact>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// Who decided what became of it, when nobody could say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution: Option<ResolutionRecord>,
    /// When it was queued first.
    pub queued_at: Timestamp,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// Of the event that changed it last.
    pub position: u64,
}

/// Where a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// It waits for a runner.
    Queued,
    /// A runner has it.
    Claimed,
    /// Its child runs.
    Running,
    /// Its runner is silent.
    Disconnected,
    /// Nobody can say, and somebody must decide.
    OutcomeUnknown,
    /// It did what it was for.
    Succeeded,
    /// It did not.
    Failed,
    /// Somebody asked, and it ended.
    Cancelled,
    /// Nobody can say, and it was safe to give up.
    Lost,
}

/// One execution.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// Its id.
    pub execution: ExecutionId,
    /// 1 first.
    pub attempt: u32,
    /// Who had it.
    pub runner: RunnerId,
    /// In which life.
    pub session: SessionId,
    /// It must be over by then.
    pub deadline: Timestamp,
    /// When it was claimed.
    pub claimed_at: Timestamp,
    /// Of `job.claimed`: with the log's epoch, the fence.
    pub claimed_position: u64,
    /// When its child began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// Every phase it entered, and when.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<(String, Timestamp)>,
    /// Since when its runner is silent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_since: Option<Timestamp>,
    /// Reason why the server gave it up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_reason: Option<LossReason>,
    /// Of the child, if it exited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// That killed the child, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// When it was over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// Its log, once nothing is added to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<SealedLog>,
    /// What its runner signed when it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed: Option<Signed>,
    /// What was odd and changed nothing: `cancel_too_late`, `log_diverged`, `late_result: …`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Why a job failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// What kind of failure.
    pub reason: FailureReason,
    /// In words.
    pub detail: String,
}

/// Manual resolution of an unknown outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResolutionRecord {
    /// Of which execution.
    pub execution: ExecutionId,
    /// Who.
    pub by: Actor,
    /// What.
    pub verdict: Resolution,
    /// Why.
    pub reason: String,
    /// When.
    pub at: Timestamp,
}

impl JobState {
    /// Every state.
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

    /// As it is written everywhere.
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

    /// Whether nothing will happen any more, but for logs.
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
    /// For which install.
    pub fn install(&self) -> Option<InstallId> {
        match &self.work.origin {
            Origin::Step { install, .. } => Some(*install),
            Origin::Build { .. } => None,
        }
    }

    /// For which step of which run.
    pub fn step(&self) -> Option<(RunId, StepId)> {
        match &self.work.origin {
            Origin::Step { run, step, .. } => Some((*run, *step)),
            Origin::Build { .. } => None,
        }
    }

    /// For which build.
    pub fn build(&self) -> Option<BuildId> {
        match &self.work.origin {
            Origin::Build { build, .. } => Some(*build),
            Origin::Step { .. } => None,
        }
    }

    /// The execution that holds the job now.
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

    /// Where it begins.
    pub(super) fn queued(job: JobId, work: Work, event: &Recorded) -> Row {
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

    pub(super) fn take(&mut self, fact: &JobEvent, event: &Recorded) {
        let at = event.at;
        match fact {
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
            JobEvent::Started { execution, .. } => {
                if self.state == JobState::Claimed {
                    self.state = JobState::Running;
                }
                if let Some(attempt) = self.of(*execution) {
                    attempt.started_at = Some(at);
                }
            }
            JobEvent::PhaseEntered { execution, phase, .. } => {
                if let Some(attempt) = self.of(*execution) {
                    attempt.phases.push((phase.clone(), at));
                }
            }
            JobEvent::PlanProduced { plan, .. } => self.plan = Some(plan.clone()),
            JobEvent::OutputsReported { outputs, .. } => self.outputs.extend(outputs.clone()),
            // The install's history has it.
            JobEvent::StateReported { .. } => {}
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
            JobEvent::OutcomeResolved { execution, by, verdict, reason } => {
                let (execution, verdict) = (*execution, *verdict);
                let (by, reason) = (by.clone(), reason.clone());
                self.resolution = Some(ResolutionRecord { execution, by, verdict, reason, at });
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
            JobEvent::LogSealed(log) => {
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
