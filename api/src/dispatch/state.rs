//! State of the dispatcher, behind one lock that is never held across an await.
use std::collections::{HashMap, HashSet};

use domain::{
    decider::Timestamp,
    ids::{JobId, RunnerId, SessionId},
    job::{JobEvent, JobKind},
    runner::RunnerEvent,
};
use schemas::runner::Directive;
use tokio::time::Instant;

use super::{
    Timing,
    directives::{send_intake, send_rekey},
    job_table::{JobEventRecord, JobTable, Target},
    offers::{Capacity, Offer, Offers},
    outbox::DirectiveSubject,
    rate_limits::RateLimits,
    session::{RunnerEntry, RunnerTable, Session, Wake},
};

/// Number of runners that the dispatcher ranks at a time.
const RANKED_RUNNERS: usize = 64;

/// Current time on two clocks: monotonic for waits, and wall-clock for values that users and
/// runners read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    /// Monotonic time, which never jumps.
    pub instant: Instant,
    /// Wall-clock time, for users and runners.
    pub wall: Timestamp,
}

#[derive(Debug, Default)]
pub(crate) struct DispatchState {
    /// Jobs that are not complete.
    pub jobs: JobTable,
    pub runners: RunnerTable,
    pub offers: Offers,
    /// Start of the next search for free slots within a fleet.
    next_start: usize,
    /// Number of readers that follow the log of each job.
    pub(super) readers: HashMap<JobId, u32>,
    pub rates: RateLimits,
    /// Runners whose sessions may belong to this server in the database, but that this server does
    /// not watch yet.
    pub(super) unwatched: HashSet<RunnerId>,
    /// True while the server stops. Long polls then return immediately.
    pub stopping: bool,
}

impl DispatchState {
    /// Applies a job event and wakes the runners that it affects.
    pub(crate) fn on_job(&mut self, domain_event: JobEventRecord, now: Moment, timing: &Timing) {
        let job = domain_event.job;
        let before = self.jobs.get(job).and_then(|tracked| Some(tracked.execution()?.runner));
        let event = domain_event.event.clone();
        self.jobs.apply(domain_event, now);
        match event {
            JobEvent::Queued(_) | JobEvent::Requeued { .. } => {
                self.withdraw_offer(job);
                self.offer_job(job, now, timing);
            }
            JobEvent::CancelRequested { .. } => self.send_cancel(job),
            JobEvent::Claimed { .. } => {
                self.withdraw_offer(job);
                if self.readers.contains_key(&job) {
                    self.send_tail(job);
                }
            }
            JobEvent::Succeeded { .. }
            | JobEvent::Failed { .. }
            | JobEvent::Cancelled { .. }
            | JobEvent::OutcomeUnknown { .. }
            | JobEvent::Lost { .. } => self.withdraw_offer(job),
            JobEvent::Started { .. }
            | JobEvent::PhaseEntered { .. }
            | JobEvent::PlanProduced { .. }
            | JobEvent::OutputsReported { .. }
            | JobEvent::StateReported { .. }
            | JobEvent::ArtifactPushed { .. }
            | JobEvent::ChecksReported { .. }
            | JobEvent::Disconnected { .. }
            | JobEvent::Reattached { .. }
            | JobEvent::OutcomeResolved { .. }
            | JobEvent::CancelUnconfirmed { .. }
            | JobEvent::LogFinalized(_)
            | JobEvent::LogDiverged { .. }
            | JobEvent::LateResultReported { .. } => {}
        }
        // The event may have freed a slot, so the runner that held the job may get another job.
        let after = self.jobs.get(job).and_then(|tracked| Some(tracked.execution()?.runner));
        if let Some(runner) = before.filter(|_| after.is_none()) {
            self.offer_to(runner, now, timing);
        }
    }

    /// Applies a runner event. Sends the directives that it requires, and updates the runner's
    /// offers.
    pub(crate) fn on_runner(
        &mut self,
        id: RunnerId,
        sequence: (u64, usize),
        event: RunnerEvent,
        now: Moment,
        timing: &Timing,
    ) {
        let Some(entry) = self.runners.apply(id, sequence, event) else { return };
        let (works, drained) = (entry.takes_work(), entry.runner.draining);
        let rekey = entry.runner.rekey_requested;
        if let Some(session) = &mut entry.session {
            send_intake(session, drained);
            send_rekey(session, rekey);
            if entry.runner.revoked {
                session.wake(Wake::Directive);
            }
        }
        if works {
            self.offer_to(id, now, timing);
        } else {
            for job in self.offers.withdraw(id) {
                self.forget_offer(id, job);
            }
        }
    }

    /// Withdraws expired offers, and offers all waiting jobs to available runners.
    pub(crate) fn on_tick(&mut self, now: Moment, timing: &Timing) {
        for (job, offer) in self.offers.expired(now.instant) {
            self.forget_offer(offer.runner, job);
        }
        for target in self.jobs.targets_with_work() {
            self.offer_to_all(target, now, timing);
        }
    }

    /// Offers a queued job to the runners of its target, unless another job of its kind already
    /// waits.
    fn offer_job(&mut self, job: JobId, now: Moment, timing: &Timing) {
        let Some(tracked) = self.jobs.get(job) else { return };
        let (Some(target), Some(work)) = (tracked.target(), tracked.work()) else { return };
        // A runner with a free slot gets queued work immediately. If another job of this kind
        // already waits, no runner has a free slot for the kind.
        if self.jobs.waiting(target, work.kind) <= 1 {
            self.offer_to_all(target, now, timing);
        }
    }

    /// Offers the queued jobs of a target, the oldest first. Prefers runners with a long poll, and
    /// among them runners with more free slots.
    pub(crate) fn offer_to_all(&mut self, target: Target, now: Moment, timing: &Timing) {
        // Ranks a part of a large fleet at a time, and starts with another part at each call.
        // Ranking the whole fleet for each job would hold this lock for too long.
        let fleet = self.runners.of(target).len();
        self.next_start = self.next_start.wrapping_add(RANKED_RUNNERS);
        let start = self.next_start.checked_rem(fleet).unwrap_or_default();
        for offset in (0..fleet).step_by(RANKED_RUNNERS) {
            let all = self.runners.of(target).iter().copied();
            let count = RANKED_RUNNERS.min(fleet - offset);
            let mut runners: Vec<_> =
                all.clone().chain(all).skip(start + offset).take(count).collect();
            // A runner with a long poll receives the offer immediately. Among the runners with a
            // long poll, the runner with the most free slots comes first.
            runners.sort_by_cached_key(|id| {
                let session = self.runners.get(*id).and_then(|entry| entry.session.as_ref());
                let has_long_poll = session.is_some_and(Session::has_long_poll);
                std::cmp::Reverse((
                    has_long_poll,
                    self.capacity(*id, now, timing).map_or(0, |capacity| capacity.free),
                ))
            });
            for runner in runners {
                if self.jobs.next_job(target, &JobKind::ALL).is_none() {
                    return;
                }
                self.offer_to(runner, now, timing);
            }
        }
    }

    /// Offers a runner the queued jobs that fit. Returns true if there is a new directive.
    pub(crate) fn offer_to(&mut self, runner: RunnerId, now: Moment, timing: &Timing) -> bool {
        let Some(entry) = self.runners.get(runner) else { return false };
        let Some(session) = &entry.session else { return false };
        let target = entry.target();
        if self.jobs.next_job(target, &JobKind::ALL).is_none() {
            return false;
        }
        let able = |kind: &JobKind| session.capabilities.contains(kind);
        let mut kinds: Vec<_> = JobKind::ALL.into_iter().filter(able).collect();
        let Some(mut capacity) = self.capacity(runner, now, timing) else { return false };
        let deadline = now.wall + timing.offer;
        let mut has_new = false;
        while capacity.free > 0
            && let Some((job, kind)) = self.jobs.next_job(target, &kinds)
        {
            if !capacity.use_slot(kind) {
                kinds.retain(|other| *other != kind);
                continue;
            }
            self.jobs.set_offered(job, true);
            self.offers.add(job, Offer { runner, kind, until: now.instant + timing.offer });
            let directive = Directive::Offer { job, kind, deadline };
            has_new |= self.send(runner, DirectiveSubject::Offer(job), directive);
        }
        has_new
    }

    /// Capacity of a runner. `None` if it has no session here, is disconnected or must not get
    /// work.
    fn capacity(&self, runner: RunnerId, now: Moment, timing: &Timing) -> Option<Capacity> {
        let entry = self.runners.get(runner)?;
        let session = entry.session.as_ref()?;
        if !entry.takes_work() || !entry.is_connected(now.instant, timing.lease) {
            return None;
        }
        let (held, offered) = (self.jobs.load(runner), self.offers.load(runner));
        let free = session.free.min(session.slots.saturating_sub(held.0 + held.1));
        let operates = session.capabilities.iter().any(|kind| kind.uses_reserved_slot());
        Some(Capacity::of(session.slots, free, operates, held, offered))
    }

    fn withdraw_offer(&mut self, job: JobId) {
        if let Some(offer) = self.offers.remove(job) {
            self.forget_offer(offer.runner, job);
        }
    }

    fn forget_offer(&mut self, runner: RunnerId, job: JobId) {
        self.jobs.set_offered(job, false);
        let session = self.runners.get_mut(runner).and_then(|entry| entry.session.as_mut());
        if let Some(session) = session {
            session.outbox.withdraw(DirectiveSubject::Offer(job));
        }
    }

    /// Opens a session for a runner. The long poll of a previous session returns and is rejected.
    /// Returns `None` if the runner is unknown.
    pub(crate) fn open_session(
        &mut self,
        runner: RunnerId,
        session: Session,
        contact: Instant,
    ) -> Option<&mut RunnerEntry> {
        for job in self.offers.withdraw(runner) {
            self.forget_offer(runner, job);
        }
        let held: Vec<_> = self.jobs.held_by(runner).map(|(job, _)| job).collect();
        let entry = self.runners.get_mut(runner)?;
        if let Some(mut former) = entry.session.take() {
            former.wake(Wake::Directive);
        }
        entry.effective_contact = entry.effective_contact.max(contact);
        entry.epoch = Some(session.server_epoch);
        let (drained, rekey) = (entry.runner.draining, entry.runner.rekey_requested);
        let session = entry.session.insert(session);
        send_rekey(session, rekey);
        if drained {
            send_intake(session, true);
        }
        for job in held {
            self.send_cancel(job);
            if self.readers.contains_key(&job) {
                self.send_tail(job);
            }
        }
        self.runners.get_mut(runner)
    }

    /// Closes a session that the runner ended.
    pub(crate) fn close_session(&mut self, runner: RunnerId, session: SessionId) {
        let newest = self.runners.get(runner).and_then(|entry| entry.session.as_ref());
        if newest.is_none_or(|newest| newest.id != session) {
            return;
        }
        for job in self.offers.withdraw(runner) {
            self.forget_offer(runner, job);
        }
        if let Some(mut ended) = self.runners.get_mut(runner).and_then(|entry| entry.session.take())
        {
            ended.wake(Wake::Released);
        }
    }
}
