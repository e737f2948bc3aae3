//! What becomes of a job whose runner is gone, and who may say so.
use super::{
    Contact, Decision, Execution, FailureReason, Job, JobClass, JobError, JobEvent, Proof, Verdict,
};
use crate::{actor::Actor, decider::Timestamp};

impl Job {
    pub(super) fn lose(&self, held: &Execution, proof: Proof, now: Timestamp) -> Decision {
        use {JobClass::*, Proof::*};
        match (self.class(), proof) {
            (Pure | Mutating | Unsafe, DeadlinePassed) if now < held.deadline => {
                Err(JobError::DeadlineAhead { deadline: held.deadline })
            }
            (Pure, SilentTooLong) if held.contact == Contact::Connected => {
                Err(JobError::StillConnected)
            }
            (Pure | Mutating | Unsafe, NeverSpawned) if held.started => {
                Err(JobError::AlreadyStarted)
            }
            (Pure, RunnerRestartedWithoutIt | DeadlinePassed | SilentTooLong)
            | (Pure | Mutating | Unsafe, NeverSpawned) => {
                // Nobody waits for a job that is to be cancelled: it is not tried again.
                let again = held.attempt < self.attempts() && held.cancel.is_none();
                let lost = JobEvent::Lost { execution: held.id, proof };
                Ok(vec![if again { held.requeued(Some(proof)) } else { lost }])
            }
            (Mutating | Unsafe, RunnerRestartedWithoutIt | DeadlinePassed) => {
                Ok(vec![JobEvent::OutcomeUnknown { execution: held.id, proof }])
            }
            (Mutating | Unsafe, SilentTooLong) => Err(JobError::UnreachableIsNotDead),
        }
    }

    pub(super) fn resolve(
        &self,
        held: &Execution,
        by: Actor,
        verdict: Verdict,
        reason: String,
    ) -> Decision {
        match (self.class(), &by) {
            (JobClass::Pure | JobClass::Mutating | JobClass::Unsafe, Actor::Runner(_)) => {
                return Err(JobError::ARunnerMayNotResolve);
            }
            (JobClass::Unsafe, Actor::Policy(_) | Actor::Timer(_) | Actor::System) => {
                return Err(JobError::OnlyAPrincipalMayResolve);
            }
            (JobClass::Pure | JobClass::Mutating | JobClass::Unsafe, Actor::Principal(_))
            | (
                JobClass::Pure | JobClass::Mutating,
                Actor::Policy(_) | Actor::Timer(_) | Actor::System,
            ) => {}
        }
        let execution = held.id;
        let consequence = match verdict {
            Verdict::Succeeded => JobEvent::Succeeded {
                execution,
                seq: None,
                exit_code: None,
                signed: None,
                not_ended: vec![],
            },
            Verdict::Failed => JobEvent::Failed {
                execution: Some(execution),
                seq: None,
                reason: FailureReason::Resolved,
                detail: reason.clone(),
                exit_code: None,
                signal: None,
                signed: None,
                not_ended: vec![],
            },
            // Nobody wants to see it done any more: what is left to say is what became of it.
            Verdict::Retry if held.cancel.is_some() => return Err(JobError::Cancelling),
            Verdict::Retry => held.requeued(None),
        };
        Ok(vec![JobEvent::OutcomeResolved { execution, by, verdict, reason }, consequence])
    }
}

impl Execution {
    fn requeued(&self, proof: Option<Proof>) -> JobEvent {
        JobEvent::Requeued { execution: self.id, attempt: self.attempt + 1, proof }
    }
}
