//! Preflight of a run: one job that checks the requirements of all steps before the first change.
//!
//! ```text
//! waiting ─start─▶ running ─pass─▶ passed ─▶ applies and actions start
//!    └──────fail──────┴─────fail─▶ failed ─▶ no step continues, and the run fails
//! ```
//! Plans change nothing, so they do not wait for the preflight. A run without an apply needs none,
//! because a requirement of an apply must not prevent a removal.
use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use super::{Decision, Operation, Run, RunError, RunEvent, Step};
use crate::{
    check::{Check, CheckStatus},
    ids::JobId,
};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Encode, Decode)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Preflight {
    /// No step of the run applies anything.
    #[default]
    NotRequired,
    /// The job is not queued yet.
    Waiting,
    /// The job is queued or running.
    Running { job: JobId },
    /// No check failed.
    Passed { job: JobId },
    /// A check failed, or the requirements could not be checked.
    Failed {
        /// Job of the preflight. `None` if the server found the problem without one.
        job: Option<JobId>,
        reason: PreflightFailure,
    },
}

/// Reason for which a preflight failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PreflightFailure {
    /// At least one check failed.
    ChecksFailed,
    /// The job failed. `detail` is the message of the job's failure.
    JobFailed,
    /// The job was cancelled on request.
    JobCancelled,
    /// The server gave up on the job.
    JobLost,
    /// The server cannot render the manifest of the job.
    RenderFailed,
}

impl PreflightFailure {
    /// Returns a short description for users, without the detail.
    pub fn text(self) -> &'static str {
        match self {
            PreflightFailure::ChecksFailed => "requirements are not met",
            PreflightFailure::JobFailed => "job failed",
            PreflightFailure::JobCancelled => "job cancelled",
            PreflightFailure::JobLost => "job lost",
            PreflightFailure::RenderFailed => "cannot check the requirements",
        }
    }
}

impl Preflight {
    /// Returns the preflight of a run with these steps, before its start.
    pub(super) fn of<'s>(mut steps: impl Iterator<Item = &'s Step>) -> Self {
        match steps.any(|step| step.spec.operation == Operation::Apply) {
            true => Preflight::Waiting,
            false => Preflight::NotRequired,
        }
    }

    /// Returns true if the run may make changes.
    pub fn allows_changes(&self) -> bool {
        match self {
            Preflight::NotRequired | Preflight::Passed { .. } => true,
            Preflight::Waiting | Preflight::Running { .. } | Preflight::Failed { .. } => false,
        }
    }

    pub fn has_failed(&self) -> bool {
        match self {
            Preflight::Failed { .. } => true,
            Preflight::NotRequired
            | Preflight::Waiting
            | Preflight::Running { .. }
            | Preflight::Passed { .. } => false,
        }
    }

    /// Returns the job that checks the requirements now.
    pub fn running_job(&self) -> Option<JobId> {
        match self {
            Preflight::Running { job } => Some(*job),
            Preflight::NotRequired
            | Preflight::Waiting
            | Preflight::Passed { .. }
            | Preflight::Failed { .. } => None,
        }
    }

    /// Returns the job of the preflight, also after its end.
    pub fn job(&self) -> Option<JobId> {
        match self {
            Preflight::NotRequired | Preflight::Waiting => None,
            Preflight::Running { job } | Preflight::Passed { job } => Some(*job),
            Preflight::Failed { job, .. } => *job,
        }
    }
}

impl Run {
    pub(super) fn start_preflight(&self, job: JobId) -> Decision {
        self.check_in_progress()?;
        match &self.preflight {
            Preflight::Running { job: by } if *by == job => Ok(vec![]),
            Preflight::Waiting if self.cancel.is_some() => Err(RunError::Cancelling),
            Preflight::Waiting => Ok(vec![RunEvent::PreflightStarted { job }]),
            Preflight::NotRequired
            | Preflight::Running { .. }
            | Preflight::Passed { .. }
            | Preflight::Failed { .. } => Err(RunError::WrongPreflightState),
        }
    }

    /// Records the checks of the job. The preflight fails if a check failed.
    pub(super) fn record_checks(&self, job: JobId, checks: Vec<Check>) -> Decision {
        let Some(event) = self.preflight_end(job, |job| {
            let failed = checks.iter().filter(|check| check.status == CheckStatus::Failed).count();
            if failed == 0 {
                return RunEvent::PreflightPassed { job, checks };
            }
            let reason = PreflightFailure::ChecksFailed;
            let detail = format!("{failed} of {} checks failed", checks.len());
            RunEvent::PreflightFailed { job: Some(job), reason, detail, checks }
        })?
        else {
            return Ok(vec![]);
        };
        self.with_consequences(vec![event])
    }

    /// Records that the requirements could not be checked, or are not met according to the server.
    pub(super) fn fail_preflight(
        &self,
        job: Option<JobId>,
        reason: PreflightFailure,
        detail: String,
        checks: Vec<Check>,
    ) -> Decision {
        let failed = RunEvent::PreflightFailed { job, reason, detail, checks };
        let event = match (job, &self.preflight) {
            (Some(job), _) => self.preflight_end(job, |_| failed)?,
            (None, Preflight::Failed { job: None, .. }) => None,
            (None, Preflight::Waiting) => {
                self.check_in_progress()?;
                Some(failed)
            }
            (
                None,
                Preflight::NotRequired
                | Preflight::Running { .. }
                | Preflight::Passed { .. }
                | Preflight::Failed { job: Some(_), .. },
            ) => {
                self.check_in_progress()?;
                return Err(RunError::WrongPreflightState);
            }
        };
        event.map_or(Ok(vec![]), |event| self.with_consequences(vec![event]))
    }

    /// Returns the event that ends the preflight of this job. `None` if the preflight has ended.
    fn preflight_end(
        &self,
        job: JobId,
        event: impl FnOnce(JobId) -> RunEvent,
    ) -> Result<Option<RunEvent>, RunError> {
        if self.request.is_none() {
            return Err(RunError::NotFound);
        }
        match &self.preflight {
            Preflight::Running { job: by } if *by == job => Ok(Some(event(job))),
            Preflight::Passed { job: by } | Preflight::Failed { job: Some(by), .. }
                if *by == job =>
            {
                Ok(None)
            }
            Preflight::NotRequired
            | Preflight::Waiting
            | Preflight::Running { .. }
            | Preflight::Passed { .. }
            | Preflight::Failed { .. } => Err(RunError::WrongJob),
        }
    }
}
