//! Every job that is not over yet, as its events have it: what can be offered, who holds what.
//!
//! The board copies the log, in its order, and decides nothing: an offer is only an offer, and the
//! job itself answers every claim and every report.
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    time::Duration,
};

use chrono::TimeDelta;
use domain::{
    decider::Timestamp,
    ids::{ExecutionId, InstallId, JobId, RunnerId},
    job::{Contact, Execution, Job, JobEvent, JobKind, Origin, State, Work},
};
use event_log::Stored;
use schemas::runner::Running;
use tokio::time::Instant;

use super::Moment;

mod take;

/// Which runners may have a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// The runner of one install.
    Install(InstallId),
    /// Any build runner.
    Build,
}

/// A job and what the server remembers beside its events.
#[derive(Debug)]
pub struct Tracked {
    /// The fold of its events.
    pub job: Job,
    /// The last of them, as facts say it.
    pub sequence: (u64, usize),
    /// Its place among those that wait: the position at which it was queued.
    pub order: u64,
    /// Since when it waits, on the log's clock.
    pub queued_at: Timestamp,
    /// When its time is over on our clock, which never jumps: the queue's patience while it waits, the
    /// deadline while a runner has it.
    pub over_at: Instant,
    /// The last word of the runner that holds it; ahead of now after a takeover.
    pub heard: Instant,
    /// When its runner was last asked what became of it, because it polled and did not speak of it.
    pub asked: Option<Instant>,
    /// When the cancel that waits was asked for.
    pub cancel_since: Option<Instant>,
    /// The last claim as the log holds it, if this server heard of it.
    pub claim: Option<Box<Stored>>,
    /// Who claimed it last, if this server heard of the claim.
    pub last_runner: Option<RunnerId>,
    /// Logs of ended executions that are not finalized.
    pub unsealed: Vec<OpenLog>,
    /// An offer of it stands, so that it is not offered to anybody else.
    pub offered: bool,
}

/// A log that is still arriving, at this server or at another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenLog {
    /// Its execution.
    pub execution: ExecutionId,
    /// The last time that this server saw it grow, or the end of the execution.
    pub quiet_since: Instant,
    /// Its length then.
    pub length: u64,
}

/// One event of a job, where it stands in the log.
#[derive(Debug, Clone)]
pub struct Fact {
    /// Whose.
    pub job: JobId,
    /// Its place in the job's stream, and which of the facts that are there.
    pub sequence: (u64, usize),
    /// Its place in the log.
    pub position: u64,
    /// When it was recorded.
    pub recorded_at: Timestamp,
    /// What happened.
    pub event: JobEvent,
    /// The event as the log holds it, where it is a claim: its proof is wanted in a moment.
    pub claim: Option<Box<Stored>>,
}

/// The jobs, by what can be asked of them.
#[derive(Debug, Default)]
pub struct Board {
    jobs: HashMap<JobId, Tracked>,
    /// Queued, and on offer to nobody. By kind, so that what nobody can take is not looked at again and again.
    waiting: HashMap<(Target, JobKind), BTreeMap<u64, JobId>>,
    held: HashMap<RunnerId, BTreeSet<JobId>>,
}

impl Tracked {
    /// A job as it was loaded when the server started, heard of `heard`.
    pub fn loaded(
        job: Job,
        sequence: u64,
        order: u64,
        queued_at: Timestamp,
        (heard, now): (Instant, Moment),
    ) -> Self {
        let mut tracked = Tracked {
            job,
            sequence: (sequence, usize::MAX),
            order,
            queued_at,
            over_at: now.instant,
            heard,
            asked: None,
            cancel_since: None,
            claim: None,
            last_runner: None,
            unsealed: Vec::new(),
            offered: false,
        };
        let over = match &tracked.job.state {
            State::Queued { .. } => {
                tracked.patience().and_then(|wait| queued_at.checked_add_signed(wait))
            }
            State::Claimed(held) | State::Running(held) | State::OutcomeUnknown(held) => {
                Some(held.deadline)
            }
            State::Unborn | State::Ended { .. } => None,
        };
        let left = over.and_then(|over| (over - now.wall).to_std().ok()).unwrap_or_default();
        tracked.over_at = now.instant + left;
        let cancel = tracked.held().and_then(|held| held.cancel.as_ref());
        tracked.cancel_since = cancel.filter(|cancel| !cancel.unconfirmed).map(|_| heard);
        tracked.last_runner = tracked.held().map(|held| held.runner);
        let over = tracked.job.lost.iter().map(|lost| lost.id).chain(match &tracked.job.state {
            State::OutcomeUnknown(held) => Some(held.id),
            State::Ended { execution, .. } => *execution,
            State::Unborn | State::Queued { .. } | State::Claimed(_) | State::Running(_) => None,
        });
        let unsealed: Vec<_> = over.filter(|over| !tracked.is_sealed(*over)).collect();
        let open = |execution| OpenLog { execution, quiet_since: heard, length: 0 };
        tracked.unsealed = unsealed.into_iter().map(open).collect();
        tracked
    }

    /// What is to be done.
    pub fn work(&self) -> Option<&Work> {
        self.job.work.as_ref()
    }

    /// The execution that has the job and may still report.
    pub fn held(&self) -> Option<&Execution> {
        self.job.execution()
    }

    /// The execution whose silence counts: it was not given up.
    pub fn alive(&self) -> Option<&Execution> {
        match &self.job.state {
            State::Claimed(held) | State::Running(held) => Some(held),
            State::OutcomeUnknown(_)
            | State::Unborn
            | State::Queued { .. }
            | State::Ended { .. } => None,
        }
    }

    /// Which runners may have it.
    pub fn target(&self) -> Option<Target> {
        self.work().map(|work| match work.origin {
            Origin::Build { .. } => Target::Build,
            Origin::Step { install, .. } => Target::Install(install),
        })
    }

    /// Among which it waits.
    fn place(&self) -> Option<(Target, JobKind)> {
        Some((self.target()?, self.work()?.kind))
    }

    /// How long it may wait for a runner.
    pub fn patience(&self) -> Option<TimeDelta> {
        self.work().map(|work| TimeDelta::milliseconds(work.queue_ttl_ms.cast_signed()))
    }

    /// Whether its log takes nothing more.
    pub fn is_sealed(&self, execution: ExecutionId) -> bool {
        self.job.logs.iter().any(|log| log.execution == execution)
    }

    fn is_over(&self) -> bool {
        match &self.job.state {
            State::Unborn | State::Ended { .. } => self.unsealed.is_empty(),
            State::Queued { .. }
            | State::Claimed(_)
            | State::Running(_)
            | State::OutcomeUnknown(_) => false,
        }
    }
}

impl Board {
    /// Put a job up that was loaded when the server started.
    pub fn put(&mut self, id: JobId, mut tracked: Tracked) {
        let known = self.jobs.get(&id).is_some_and(|known| known.sequence >= tracked.sequence);
        if !known && !tracked.is_over() {
            tracked.offered = self.jobs.get(&id).is_some_and(|known| known.offered);
            self.unlist(id);
            self.jobs.insert(id, tracked);
            self.list(id);
        }
    }

    /// Take in an event. Events that are known, or of jobs that were over before, change nothing.
    pub fn apply(&mut self, fact: Fact, now: Moment) {
        let (id, at) = (fact.job, fact.recorded_at);
        if !self.jobs.contains_key(&id) && matches!(fact.event, JobEvent::Queued(_)) {
            let clocks = (now.instant, now);
            self.jobs.insert(id, Tracked::loaded(Job::default(), 0, fact.position, at, clocks));
        }
        self.unlist(id);
        if let Some(tracked) = self.jobs.get_mut(&id).filter(|known| known.sequence < fact.sequence)
        {
            tracked.take(fact, now.instant);
        }
        self.list(id);
        if self.jobs.get(&id).is_some_and(Tracked::is_over) {
            self.jobs.remove(&id);
        }
    }

    /// A job that is not over.
    pub fn get(&self, job: JobId) -> Option<&Tracked> {
        self.jobs.get(&job)
    }

    /// Every job that is not over.
    pub fn all(&self) -> impl Iterator<Item = (JobId, &Tracked)> {
        self.jobs.iter().map(|(id, tracked)| (*id, tracked))
    }

    /// How many jobs of a kind wait for such a runner and are on offer to nobody.
    pub fn waiting(&self, target: Target, kind: JobKind) -> usize {
        self.waiting.get(&(target, kind)).map_or(0, BTreeMap::len)
    }

    /// The one that waits longest for such a runner, of these kinds, and is on offer to nobody.
    pub fn next(&self, target: Target, kinds: &[JobKind]) -> Option<(JobId, JobKind)> {
        let first = |kind: &JobKind| {
            let (order, job) = self.waiting.get(&(target, *kind))?.first_key_value()?;
            Some((*order, *job, *kind))
        };
        let next = kinds.iter().filter_map(first).min_by_key(|(order, ..)| *order);
        next.map(|(_, job, kind)| (job, kind))
    }

    /// An offer of the job stands from now on, or no longer does.
    pub fn set_offered(&mut self, job: JobId, offered: bool) {
        self.unlist(job);
        if let Some(tracked) = self.jobs.get_mut(&job) {
            tracked.offered = offered;
        }
        self.list(job);
    }

    /// Which kinds of runner have work waiting that is on offer to nobody.
    pub fn wanted(&self) -> HashSet<Target> {
        self.waiting.keys().map(|(target, _)| *target).collect()
    }

    /// The jobs that a runner holds.
    pub fn held_by(&self, runner: RunnerId) -> impl Iterator<Item = (JobId, &Tracked)> {
        let ids = self.held.get(&runner).into_iter().flatten();
        ids.filter_map(|id| Some((*id, self.jobs.get(id)?)))
    }

    /// How many slots of a runner its jobs fill: operations, and everything else.
    pub fn load(&self, runner: RunnerId) -> (u32, u32) {
        self.held_by(runner).filter(|(_, tracked)| tracked.alive().is_some()).fold(
            (0, 0),
            |(operations, others), (_, tracked)| match tracked
                .work()
                .is_some_and(|work| work.kind.uses_reserved_slot())
            {
                true => (operations + 1, others),
                false => (operations, others + 1),
            },
        )
    }

    /// A runner spoke of an execution: if it holds it, its lease is whole again. Answers whether the
    /// job was told that it is disconnected, and must now hear that it is not; `None` when another
    /// runner holds it, or nobody: the ids of executions are no secrets.
    pub fn renew(
        &mut self,
        runner: RunnerId,
        job: JobId,
        execution: ExecutionId,
        now: Instant,
    ) -> Option<bool> {
        let tracked = self.jobs.get_mut(&job)?;
        let by = tracked.held().filter(|held| (held.runner, held.id) == (runner, execution));
        let contact = by?.contact;
        tracked.heard = tracked.heard.max(now);
        Some(tracked.alive().is_some() && contact == Contact::Disconnected)
    }

    /// Whether a runner holds something that it does not name, and has said nothing of for so long. It is
    /// asked once in that time: the answer proves nothing by itself, and takes a while.
    pub fn is_silent_about(
        &mut self,
        runner: RunnerId,
        named: &[Running],
        now: Instant,
        silence: Duration,
    ) -> bool {
        let long_ago = |since: Instant| now.saturating_duration_since(since) >= silence;
        let mut silent = false;
        for job in self.held.get(&runner).into_iter().flatten() {
            let Some(tracked) = self.jobs.get_mut(job) else { continue };
            let Some(execution) = tracked.alive().map(|held| held.id) else { continue };
            let is_named = named.iter().any(|of| (of.job, of.execution) == (*job, execution));
            if !is_named && long_ago(tracked.heard) && tracked.asked.is_none_or(long_ago) {
                tracked.asked = Some(now);
                silent = true;
            }
        }
        silent
    }

    /// The log of an execution grew: whoever waits for its end waits from now on.
    pub fn log_grew(&mut self, job: JobId, execution: ExecutionId, length: u64, now: Instant) {
        let unsealed = self.jobs.get_mut(&job).map(|tracked| &mut tracked.unsealed);
        for open in unsealed.into_iter().flatten() {
            if open.execution == execution {
                (open.quiet_since, open.length) = (now, length);
            }
        }
    }

    /// Everything that a runner has gets a whole lease from this moment on.
    pub fn renew_all(&mut self, runner: RunnerId, from: Instant) {
        for job in self.held.get(&runner).into_iter().flatten() {
            if let Some(tracked) = self.jobs.get_mut(job) {
                tracked.heard = tracked.heard.max(from);
            }
        }
    }

    fn list(&mut self, id: JobId) {
        let Some(tracked) = self.jobs.get(&id) else { return };
        match (&tracked.job.state, tracked.place()) {
            (State::Queued { .. }, Some(place)) if !tracked.offered => {
                self.waiting.entry(place).or_default().insert(tracked.order, id);
            }
            (State::Claimed(held) | State::Running(held) | State::OutcomeUnknown(held), _) => {
                self.held.entry(held.runner).or_default().insert(id);
            }
            (State::Queued { .. } | State::Unborn | State::Ended { .. }, _) => {}
        }
    }

    fn unlist(&mut self, id: JobId) {
        let Some(tracked) = self.jobs.get(&id) else { return };
        if let Some(place) = tracked.place()
            && let Some(waiting) = self.waiting.get_mut(&place)
        {
            waiting.remove(&tracked.order);
            if waiting.is_empty() {
                self.waiting.remove(&place);
            }
        }
        if let Some(runner) = tracked.held().map(|held| held.runner)
            && let Some(jobs) = self.held.get_mut(&runner)
        {
            jobs.remove(&id);
            if jobs.is_empty() {
                self.held.remove(&runner);
            }
        }
    }
}
