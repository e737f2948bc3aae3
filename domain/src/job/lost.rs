//! Loss of executions, and resolution of unknown outcomes.
use super::{
    Contact, Decision, Execution, FailureReason, Job, JobClass, JobError, JobEvent, LossReason,
    Resolution,
};
use crate::{actor::Actor, decider::Timestamp};

impl Job {
    pub(super) fn declare_lost(
        &self,
        held: &Execution,
        loss_reason: LossReason,
        now: Timestamp,
    ) -> Decision {
        use {JobClass::*, LossReason::*};
        match (self.class(), loss_reason) {
            (Pure | Mutating | Unsafe, DeadlinePassed) if now < held.deadline => {
                Err(JobError::DeadlineNotPassed { deadline: held.deadline })
            }
            (Pure, Disconnected) if held.contact == Contact::Connected => {
                Err(JobError::StillConnected)
            }
            (Pure | Mutating | Unsafe, NeverSpawned) if held.started => {
                Err(JobError::AlreadyStarted)
            }
            (Pure, ExecutionNotInJournal | DeadlinePassed | Disconnected | HostReplaced)
            | (Pure | Mutating | Unsafe, NeverSpawned) => {
                // A job that is being cancelled does not run again.
                let is_requeued = held.attempt < self.attempts() && held.cancel.is_none();
                let lost = JobEvent::Lost { execution: held.id, loss_reason };
                Ok(vec![if is_requeued { held.requeued(Some(loss_reason)) } else { lost }])
            }
            (Mutating | Unsafe, ExecutionNotInJournal | DeadlinePassed | HostReplaced) => {
                Ok(vec![JobEvent::OutcomeUnknown { execution: held.id, loss_reason }])
            }
            (Mutating | Unsafe, Disconnected) => Err(JobError::MayStillRun),
        }
    }

    pub(super) fn resolve(
        &self,
        held: &Execution,
        by: Actor,
        resolution: Resolution,
        reason: String,
    ) -> Decision {
        match (self.class(), &by) {
            (JobClass::Pure | JobClass::Mutating | JobClass::Unsafe, Actor::Runner(_)) => {
                return Err(JobError::RunnerMayNotResolve);
            }
            (JobClass::Unsafe, Actor::Policy(_) | Actor::Timer(_) | Actor::System) => {
                return Err(JobError::PrincipalRequired);
            }
            (JobClass::Pure | JobClass::Mutating | JobClass::Unsafe, Actor::Principal(_))
            | (
                JobClass::Pure | JobClass::Mutating,
                Actor::Policy(_) | Actor::Timer(_) | Actor::System,
            ) => {}
        }
        let execution = held.id;
        let consequence = match resolution {
            Resolution::Succeeded => JobEvent::Succeeded {
                execution,
                seq: None,
                exit_code: None,
                signed: None,
                not_ended: vec![],
            },
            Resolution::Failed => JobEvent::Failed {
                execution: Some(execution),
                seq: None,
                reason: FailureReason::Resolved,
                detail: reason.clone(),
                exit_code: None,
                signal: None,
                signed: None,
                not_ended: vec![],
            },
            // A job that is being cancelled does not run again. Its outcome can be resolved only as
            // succeeded or failed.
            Resolution::Retry if held.cancel.is_some() => return Err(JobError::Cancelling),
            Resolution::Retry => held.requeued(None),
        };
        Ok(vec![JobEvent::OutcomeResolved { execution, by, resolution, reason }, consequence])
    }
}

impl Execution {
    fn requeued(&self, loss_reason: Option<LossReason>) -> JobEvent {
        JobEvent::Requeued { execution: self.id, attempt: self.attempt + 1, loss_reason }
    }
}
