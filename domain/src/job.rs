//! A job is one unit of work for one runner.
//!
//! ```text
//! (none) ─queue─▶ queued ─claim─▶ claimed ─started─▶ running ─finished─▶ succeeded | failed | cancelled
//!                  ▲ ▲ │             └──────┬──────────┘                             ▲
//!                  │ │ └─ expire ─▶ failed  │ declare lost                           │
//!                  │ └── attempts left ─────┤ pure, or claimed and never spawned     │
//!                  │                        ├─ none left ─▶ lost                     │
//!                  │                        └─ mutating, unsafe ─▶ outcome unknown   │
//!                  └────────────────────────────── retry ───────────┴─ resolve | finished
//! ```
//! Pure work is safe to repeat. Other work starts again only with evidence that no process started,
//! or after an actor resolved the unknown outcome as a retry. This actor cannot be a runner, and
//! for unsafe work it must be a principal.
//!
//! The log of an execution is finalized after the execution ended or was declared lost. The server
//! holds leases in memory, so the events of a job record only their transitions: disconnected,
//! reattached, lost. The runner numbers its reports. The job records each report once and in order,
//! even if the runner repeats it.
use crate::{
    decider::{Decider, Timestamp},
    ids::InstallId,
};

mod command;
mod error;
mod event;
mod failure;
mod kind;
mod late_results;
mod log;
mod lost;
mod reports;
mod signed;
mod state;
#[cfg(test)]
mod tests;
mod work;
pub use command::{ExecutionResult, JobCommand, LossReason, Report, Resolution};
pub use error::JobError;
pub use event::JobEvent;
pub use failure::FailureReason;
pub use kind::{JobClass, JobKind, JobProduct};
pub use log::FinalizedLog;
pub use reports::PHASES;
pub use signed::SignedResult;
pub use state::{CancelRequest, Contact, Execution, Job, Outcome, State};
pub use work::{Origin, PlanReport, PlanV2, Work};

type Decision = Result<Vec<JobEvent>, JobError>;

impl Decider for Job {
    const NAME: &'static str = "job";
    type Command = JobCommand;
    type Event = JobEvent;
    type Error = JobError;

    fn decide(&self, command: JobCommand, now: Timestamp) -> Decision {
        use {JobCommand::*, State::*};
        match command {
            Queue(work) => match &self.work {
                None if work.attempts == 0 => Err(JobError::NoAttempts),
                None => Ok(vec![JobEvent::Queued(work)]),
                Some(existing) if *existing == work => Ok(vec![]),
                Some(_) => Err(JobError::AlreadyQueued),
            },

            Claim { execution, session, claim_id, .. }
                if self.lost.iter().any(|lost| {
                    lost.id == execution || (lost.session, &lost.claim_id) == (session, &claim_id)
                }) =>
            {
                Err(self.rejection())
            }
            Claim { execution, runner, session, claim_id } => match &self.state {
                Queued { attempt } => {
                    let (attempt, deadline) = (*attempt, self.deadline(now));
                    Ok(vec![JobEvent::Claimed {
                        execution,
                        runner,
                        session,
                        claim_id,
                        attempt,
                        deadline,
                    }])
                }
                Claimed(by) | Running(by)
                    if (by.runner, by.session, &by.claim_id) == (runner, session, &claim_id) =>
                {
                    Ok(vec![])
                }
                NotCreated | Claimed(_) | Running(_) | OutcomeUnknown(_) | Ended { .. } => {
                    Err(self.rejection())
                }
            },

            Report { execution, seq, report, signed } => {
                self.record_report(execution, seq, report, signed)
            }

            Disconnect { execution } => match self.fence(execution)? {
                Claimed(held) | Running(held) => Ok(match held.contact {
                    Contact::Connected => vec![JobEvent::Disconnected { execution }],
                    Contact::Disconnected => vec![],
                }),
                NotCreated | Queued { .. } | OutcomeUnknown(_) | Ended { .. } => {
                    Err(self.rejection())
                }
            },
            Reattach { execution } => match self.fence(execution)? {
                Claimed(held) | Running(held) => Ok(match held.contact {
                    Contact::Connected => vec![],
                    Contact::Disconnected => vec![JobEvent::Reattached { execution }],
                }),
                NotCreated | Queued { .. } | OutcomeUnknown(_) | Ended { .. } => {
                    Err(self.rejection())
                }
            },

            DeclareLost { execution, .. } if self.has_lost(execution) => Ok(vec![]),
            DeclareLost { execution, loss_reason } => match self.fence(execution)? {
                Claimed(held) | Running(held) => self.declare_lost(held, loss_reason, now),
                OutcomeUnknown(held) if loss_reason == LossReason::NeverSpawned => {
                    self.declare_lost(held, loss_reason, now)
                }
                OutcomeUnknown(_) | Ended { outcome: Outcome::Lost, .. } => Ok(vec![]),
                NotCreated | Queued { .. } | Ended { .. } => Err(self.rejection()),
            },

            Resolve { execution, resolution: Resolution::Retry, .. }
                if self.has_lost(execution) =>
            {
                Ok(vec![])
            }
            Resolve { execution, by, resolution, reason } => match self.fence(execution)? {
                Claimed(_) | Running(_) => Err(JobError::NothingToResolve),
                OutcomeUnknown(held) => self.resolve(held, by, resolution, reason),
                Ended { outcome, .. } if resolution.outcome() == Some(*outcome) => Ok(vec![]),
                NotCreated | Queued { .. } | Ended { .. } => Err(self.rejection()),
            },

            RequestCancel { by, reason, force } => match &self.state {
                Queued { .. } => Ok(vec![
                    JobEvent::CancelRequested { by, reason, force },
                    JobEvent::Cancelled {
                        execution: None,
                        seq: None,
                        forced: false,
                        signed: None,
                        not_ended: vec![],
                    },
                ]),
                Claimed(held) | Running(held) => Ok(match &held.cancel {
                    Some(cancel) if cancel.force || !force => vec![],
                    Some(_) | None => vec![JobEvent::CancelRequested { by, reason, force }],
                }),
                Ended { outcome: Outcome::Cancelled, .. } => Ok(vec![]),
                NotCreated | OutcomeUnknown(_) | Ended { .. } => Err(self.rejection()),
            },

            DeclareCancelUnconfirmed { execution } => match self.fence(execution)? {
                Claimed(held) | Running(held) => match &held.cancel {
                    None => Err(JobError::CancelNotRequested),
                    Some(cancel) if cancel.unconfirmed => Ok(vec![]),
                    Some(_) => Ok(vec![JobEvent::CancelUnconfirmed { execution }]),
                },
                NotCreated | Queued { .. } | OutcomeUnknown(_) | Ended { .. } => {
                    Err(self.rejection())
                }
            },

            Expire { attempt } => {
                let detail = "no runner claimed the job in time".into();
                self.fail_unclaimed(attempt, FailureReason::QueueExpired, detail)
            }
            FailUnclaimed { attempt, detail } => {
                self.fail_unclaimed(attempt, FailureReason::SpawnFailed, detail)
            }

            FinalizeLog(log) => self.finalize(log),

            RecordDivergence { execution, offset_bytes } => {
                self.record_divergence(execution, offset_bytes)
            }
            RecordLateResult { execution, seq, result, signed } => {
                self.record_late_result(execution, seq, result, signed)
            }
        }
    }

    fn evolve(&mut self, event: JobEvent) {
        self.apply(event);
    }

    fn customer(&self, _id: &str) -> Option<InstallId> {
        match self.work.as_ref()?.origin {
            Origin::Preflight { install, .. } | Origin::Step { install, .. } => Some(install),
            Origin::Build { .. } | Origin::Source { .. } => None,
        }
    }
}

impl Job {
    /// Fails a job that no runner has claimed.
    fn fail_unclaimed(
        &self,
        attempt: u32,
        reason: FailureReason,
        detail: String,
    ) -> Result<Vec<JobEvent>, JobError> {
        match &self.state {
            State::Queued { attempt: queued } if *queued == attempt => Ok(vec![JobEvent::Failed {
                execution: None,
                seq: None,
                reason,
                detail,
                exit_code: None,
                signal: None,
                signed: None,
                not_ended: vec![],
            }]),
            State::Queued { attempt } => Err(JobError::AnotherAttempt { attempt: *attempt }),
            State::Ended { outcome: Outcome::Failed, execution: None } => Ok(vec![]),
            State::NotCreated
            | State::Claimed(_)
            | State::Running(_)
            | State::OutcomeUnknown(_)
            | State::Ended { .. } => Err(self.rejection()),
        }
    }
}
