//! Jobs that are not complete yet, built from their events. A job is complete when it has ended and
//! its logs are finalized.
//!
//! The table follows the log in its order and makes no decisions. An offer is only a hint. The job
//! aggregate decides on every claim and report.
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    time::Duration,
};

use domain::{
    decider::Timestamp,
    ids::{ExecutionId, InstallId, JobId, RunnerId},
    job::{Contact, Job, JobEvent, JobKind, State},
};
use event_log::StoredEvent;
use schemas::runner::Running;
use tokio::time::Instant;

use super::Moment;

mod take;
mod tracked;

pub(crate) use self::tracked::{OpenLog, TrackedJob};

/// Runners that may claim a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Target {
    /// Runner of one install.
    Install(InstallId),
    /// Any build runner.
    Build,
}

/// One event of a job, with its position in the log.
#[derive(Debug, Clone)]
pub(crate) struct JobEventRecord {
    pub job: JobId,
    /// Sequence in the job's stream, and index among the events that the stored event decodes to.
    pub sequence: (u64, usize),
    /// Position of the event in the log.
    pub position: u64,
    /// Time of the append.
    pub recorded_at: Timestamp,
    pub event: JobEvent,
    /// Stored event, if it is a claim.
    pub claim: Option<Box<StoredEvent>>,
}

/// Jobs, indexed for the queries of the dispatcher.
#[derive(Debug, Default)]
pub(crate) struct JobTable {
    jobs: HashMap<JobId, TrackedJob>,
    /// Queued jobs without an open offer, by target and kind. The dispatcher thus skips a kind that
    /// no runner accepts, regardless of the number of its jobs.
    waiting: HashMap<(Target, JobKind), BTreeMap<u64, JobId>>,
    by_runner: HashMap<RunnerId, BTreeSet<JobId>>,
}

impl JobTable {
    /// Adds a loaded job, unless it is complete or the table already has its events.
    pub(crate) fn insert(&mut self, id: JobId, mut tracked: TrackedJob) {
        let known = self.jobs.get(&id).is_some_and(|known| known.sequence >= tracked.sequence);
        if !known && !tracked.is_complete() {
            tracked.offered = self.jobs.get(&id).is_some_and(|known| known.offered);
            self.unindex(id);
            self.jobs.insert(id, tracked);
            self.index(id);
        }
    }

    /// Applies an event. Ignores events that were applied before, and events of jobs that were
    /// already complete.
    pub(crate) fn apply(&mut self, domain_event: JobEventRecord, now: Moment) {
        let (id, at) = (domain_event.job, domain_event.recorded_at);
        if !self.jobs.contains_key(&id) && matches!(domain_event.event, JobEvent::Queued(_)) {
            let clocks = (now.instant, now);
            self.jobs.insert(
                id,
                TrackedJob::loaded(Job::default(), 0, domain_event.position, at, clocks),
            );
        }
        self.unindex(id);
        if let Some(tracked) =
            self.jobs.get_mut(&id).filter(|known| known.sequence < domain_event.sequence)
        {
            tracked.apply(domain_event, now.instant);
        }
        self.index(id);
        if self.jobs.get(&id).is_some_and(TrackedJob::is_complete) {
            self.jobs.remove(&id);
        }
    }

    /// Entry of a job. `None` if the job is complete or unknown.
    pub(crate) fn get(&self, job: JobId) -> Option<&TrackedJob> {
        self.jobs.get(&job)
    }

    /// All jobs that are not complete.
    pub(crate) fn all(&self) -> impl Iterator<Item = (JobId, &TrackedJob)> {
        self.jobs.iter().map(|(id, tracked)| (*id, tracked))
    }

    /// Number of queued jobs of a kind that wait for a target and have no open offer.
    pub(crate) fn waiting(&self, target: Target, kind: JobKind) -> usize {
        self.waiting.get(&(target, kind)).map_or(0, BTreeMap::len)
    }

    /// Oldest queued job for a target, of one of these kinds, without an open offer.
    pub(crate) fn next_job(&self, target: Target, kinds: &[JobKind]) -> Option<(JobId, JobKind)> {
        let first = |kind: &JobKind| {
            let (order, job) = self.waiting.get(&(target, *kind))?.first_key_value()?;
            Some((*order, *job, *kind))
        };
        let next = kinds.iter().filter_map(first).min_by_key(|(order, ..)| *order);
        next.map(|(_, job, kind)| (job, kind))
    }

    /// Records that an offer of the job was made or withdrawn.
    pub(crate) fn set_offered(&mut self, job: JobId, offered: bool) {
        self.unindex(job);
        if let Some(tracked) = self.jobs.get_mut(&job) {
            tracked.offered = offered;
        }
        self.index(job);
    }

    /// Targets with queued jobs that have no open offer.
    pub(crate) fn targets_with_work(&self) -> HashSet<Target> {
        self.waiting.keys().map(|(target, _)| *target).collect()
    }

    /// Jobs that a runner holds.
    pub(crate) fn held_by(&self, runner: RunnerId) -> impl Iterator<Item = (JobId, &TrackedJob)> {
        let ids = self.by_runner.get(&runner).into_iter().flatten();
        ids.filter_map(|id| Some((*id, self.jobs.get(id)?)))
    }

    /// Numbers of slots that a runner's active jobs occupy: by actions, and by all other kinds.
    pub(crate) fn load(&self, runner: RunnerId) -> (u32, u32) {
        self.held_by(runner).filter(|(_, tracked)| tracked.active_execution().is_some()).fold(
            (0, 0),
            |(operations, other_jobs), (_, tracked)| match tracked
                .work()
                .is_some_and(|work| work.kind.uses_reserved_slot())
            {
                true => (operations + 1, other_jobs),
                false => (operations, other_jobs + 1),
            },
        )
    }

    /// Renews the lease of an execution if this runner holds it. Returns true if the job was
    /// recorded as disconnected and must be reattached. Returns `None` if the runner does not hold
    /// the execution. Execution ids are not secret, so any runner can send one.
    pub(crate) fn renew(
        &mut self,
        runner: RunnerId,
        job: JobId,
        execution: ExecutionId,
        now: Instant,
    ) -> Option<bool> {
        let tracked = self.jobs.get_mut(&job)?;
        let by = tracked.execution().filter(|held| (held.runner, held.id) == (runner, execution));
        let contact = by?.contact;
        tracked.last_contact = tracked.last_contact.max(now);
        Some(tracked.active_execution().is_some() && contact == Contact::Disconnected)
    }

    /// Returns true if a runner holds an execution that is not in `named` and had no contact for
    /// the duration `no_contact`. For each execution, returns true at most once in that duration,
    /// because the journal takes time to arrive.
    pub(crate) fn needs_journal(
        &mut self,
        runner: RunnerId,
        named: &[Running],
        now: Instant,
        no_contact: Duration,
    ) -> bool {
        let long_ago = |since: Instant| now.saturating_duration_since(since) >= no_contact;
        let mut is_due = false;
        for job in self.by_runner.get(&runner).into_iter().flatten() {
            let Some(tracked) = self.jobs.get_mut(job) else { continue };
            let Some(execution) = tracked.active_execution().map(|held| held.id) else { continue };
            let is_named = named.iter().any(|of| (of.job, of.execution) == (*job, execution));
            if !is_named
                && long_ago(tracked.last_contact)
                && tracked.journal_requested_at.is_none_or(long_ago)
            {
                tracked.journal_requested_at = Some(now);
                is_due = true;
            }
        }
        is_due
    }

    /// Records that the log of an execution grew, which restarts the timeout for its finalization.
    pub(crate) fn log_grew(
        &mut self,
        job: JobId,
        execution: ExecutionId,
        length: u64,
        now: Instant,
    ) {
        let open_logs = self.jobs.get_mut(&job).map(|tracked| &mut tracked.open_logs);
        for open in open_logs.into_iter().flatten() {
            if open.execution == execution {
                (open.quiet_since, open.length) = (now, length);
            }
        }
    }

    /// Gives all executions of a runner a full lease from this time on.
    pub(crate) fn renew_all(&mut self, runner: RunnerId, from: Instant) {
        for job in self.by_runner.get(&runner).into_iter().flatten() {
            if let Some(tracked) = self.jobs.get_mut(job) {
                tracked.last_contact = tracked.last_contact.max(from);
            }
        }
    }

    fn index(&mut self, id: JobId) {
        let Some(tracked) = self.jobs.get(&id) else { return };
        match (&tracked.job.state, tracked.queue()) {
            (State::Queued { .. }, Some(queue)) if !tracked.offered => {
                self.waiting.entry(queue).or_default().insert(tracked.order, id);
            }
            (State::Claimed(held) | State::Running(held) | State::OutcomeUnknown(held), _) => {
                self.by_runner.entry(held.runner).or_default().insert(id);
            }
            (State::Queued { .. } | State::NotCreated | State::Ended { .. }, _) => {}
        }
    }

    fn unindex(&mut self, id: JobId) {
        let Some(tracked) = self.jobs.get(&id) else { return };
        if let Some(queue) = tracked.queue()
            && let Some(waiting) = self.waiting.get_mut(&queue)
        {
            waiting.remove(&tracked.order);
            if waiting.is_empty() {
                self.waiting.remove(&queue);
            }
        }
        if let Some(runner) = tracked.execution().map(|held| held.runner)
            && let Some(jobs) = self.by_runner.get_mut(&runner)
        {
            jobs.remove(&id);
            if jobs.is_empty() {
                self.by_runner.remove(&runner);
            }
        }
    }
}
