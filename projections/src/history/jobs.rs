//! What became of a run's jobs.
use std::collections::{BTreeMap, BTreeSet};

use domain::{
    ids::JobId,
    job::{JobEvent, Outcome},
};

use super::{JobHistory, Said, Word};
use crate::Recorded;

/// The jobs of a run.
#[derive(Default)]
pub(super) struct Jobs {
    all: BTreeMap<JobId, JobHistory>,
    /// Those of which something happened in between.
    seen: BTreeSet<JobId>,
}

impl Jobs {
    /// Take a fact of a job that is for a step of this name: what somebody said with it.
    pub(super) fn take(
        &mut self,
        (job, of): (JobId, Option<String>),
        fact: &JobEvent,
        event: &Recorded,
        between: bool,
    ) -> Option<Word> {
        if between {
            self.seen.insert(job);
        }
        let told = self.all.entry(job).or_insert_with(|| JobHistory {
            job,
            kind: None,
            of: of.clone(),
            runner: None,
            attempts: 0,
            outcome: None,
            detail: None,
            queued_at: None,
            ended_at: None,
        });
        let mut ended = |outcome, detail: Option<&String>| {
            (told.outcome, told.ended_at) = (Some(outcome), Some(event.at));
            told.detail = detail.cloned();
        };
        match fact {
            JobEvent::Queued(work) => {
                told.kind = Some(work.kind);
                told.queued_at = Some(event.at);
            }
            JobEvent::Claimed { runner, attempt, .. } => {
                told.runner = Some(*runner);
                told.attempts = *attempt;
            }
            JobEvent::Succeeded { .. } => ended(Outcome::Succeeded, None),
            JobEvent::Failed { detail, .. } => ended(Outcome::Failed, Some(detail)),
            JobEvent::Cancelled { .. } => ended(Outcome::Cancelled, None),
            JobEvent::Lost { .. } => ended(Outcome::Lost, None),
            JobEvent::OutcomeResolved { by, reason, .. } => {
                return Some(Word {
                    said: Said::Resolved,
                    of,
                    digest: None,
                    by: by.clone(),
                    reason: Some(reason.clone()),
                    at: event.at,
                    position: event.position,
                });
            }
            JobEvent::Started { .. }
            | JobEvent::PhaseEntered { .. }
            | JobEvent::PlanProduced { .. }
            | JobEvent::OutputsReported { .. }
            | JobEvent::StateReported { .. }
            | JobEvent::ArtifactPushed { .. }
            | JobEvent::Disconnected { .. }
            | JobEvent::Reattached { .. }
            | JobEvent::Requeued { .. }
            | JobEvent::OutcomeUnknown { .. }
            | JobEvent::CancelRequested { .. }
            | JobEvent::CancelUnconfirmed { .. }
            | JobEvent::LogFinalized(_)
            | JobEvent::LogDiverged { .. }
            | JobEvent::LateResultReported { .. } => {}
        }
        None
    }

    /// Those of which something happened in between, in the order in which they were queued.
    pub(super) fn told(self) -> Vec<JobHistory> {
        let Jobs { all, seen } = self;
        let mut told: Vec<_> = all.into_values().filter(|told| seen.contains(&told.job)).collect();
        told.sort_by_key(|told| (told.queued_at, told.job));
        told
    }
}
