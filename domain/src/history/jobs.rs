//! History of a run's jobs.
use std::collections::{BTreeMap, BTreeSet};

use super::{Intervention, InterventionKind, JobHistory};
use crate::{ids::JobId, job::JobEvent, recorded::RecordedEvent};

/// Jobs of a run.
#[derive(Default)]
pub(super) struct Jobs {
    all: BTreeMap<JobId, JobHistory>,
    /// Jobs with an event within the range.
    seen: BTreeSet<JobId>,
}

impl Jobs {
    /// Applies an event of a job that belongs to a step with this target. Returns the intervention
    /// that the event records.
    pub(super) fn take(
        &mut self,
        (job, of): (JobId, Option<String>),
        fact: &JobEvent,
        event: &RecordedEvent,
        between: bool,
    ) -> Option<Intervention> {
        if between {
            self.seen.insert(job);
        }
        let told = self.all.entry(job).or_insert_with(|| JobHistory {
            job,
            kind: None,
            target: of.clone(),
            runner: None,
            attempts: 0,
            outcome: None,
            detail: None,
            queued_at: None,
            ended_at: None,
        });
        if let Some(outcome) = fact.outcome() {
            (told.outcome, told.ended_at) = (Some(outcome), Some(event.at));
        }
        if let JobEvent::Queued(work) = fact {
            (told.kind, told.queued_at) = (Some(work.kind), Some(event.at));
        } else if let JobEvent::Claimed { runner, attempt, .. } = fact {
            (told.runner, told.attempts) = (Some(*runner), *attempt);
        } else if let JobEvent::Failed { detail, .. } = fact {
            told.detail = Some(detail.clone());
        } else if let JobEvent::OutcomeResolved { by, reason, .. } = fact {
            return Some(Intervention {
                kind: InterventionKind::Resolved,
                target: of,
                digest: None,
                by: by.clone(),
                reason: Some(reason.clone()),
                at: event.at,
                position: event.position,
            });
        }
        None
    }

    /// Returns the jobs with an event within the range, in the order in which they were queued.
    pub(super) fn told(self) -> Vec<JobHistory> {
        let Jobs { all, seen } = self;
        let mut told: Vec<_> = all.into_values().filter(|told| seen.contains(&told.job)).collect();
        told.sort_by_key(|told| (told.queued_at, told.job));
        told
    }
}
