use std::collections::{BTreeMap, BTreeSet};

use super::{Intervention, InterventionKind, JobHistory};
use crate::{ids::JobId, job::JobEvent, recorded::RecordedEvent};

#[derive(Default)]
pub(super) struct Jobs {
    all: BTreeMap<JobId, JobHistory>,
    /// Jobs with an event within the range.
    in_range: BTreeSet<JobId>,
}

impl Jobs {
    /// Applies an event of a job that belongs to a step with this target. Returns the intervention
    /// if the event records one.
    pub(super) fn take(
        &mut self,
        (job, target): (JobId, Option<String>),
        domain_event: &JobEvent,
        event: &RecordedEvent,
        is_in_range: bool,
    ) -> Option<Intervention> {
        if is_in_range {
            self.in_range.insert(job);
        }
        let history = self.all.entry(job).or_insert_with(|| JobHistory {
            job,
            kind: None,
            target: target.clone(),
            runner: None,
            attempts: 0,
            outcome: None,
            detail: None,
            queued_at: None,
            ended_at: None,
        });
        if let Some(outcome) = domain_event.outcome() {
            (history.outcome, history.ended_at) = (Some(outcome), Some(event.at));
        }
        if let JobEvent::Queued(work) = domain_event {
            (history.kind, history.queued_at) = (Some(work.kind), Some(event.at));
        } else if let JobEvent::Claimed { runner, attempt, .. } = domain_event {
            (history.runner, history.attempts) = (Some(*runner), *attempt);
        } else if let JobEvent::Failed { detail, .. } = domain_event {
            history.detail = Some(detail.clone());
        } else if let JobEvent::OutcomeResolved { by, reason, .. } = domain_event {
            return Some(Intervention {
                kind: InterventionKind::Resolved,
                target,
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
    pub(super) fn finish(self) -> Vec<JobHistory> {
        let Jobs { all, in_range } = self;
        let mut jobs: Vec<_> =
            all.into_values().filter(|job| in_range.contains(&job.job)).collect();
        jobs.sort_by_key(|job| (job.queued_at, job.job));
        jobs
    }
}
