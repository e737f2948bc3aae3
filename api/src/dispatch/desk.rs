//! The state of the dispatcher, behind one lock that is never held over an await.
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
    board::{Board, Fact, Target},
    offers::{Offer, Offers, Room},
    outbox::About,
    rates::Rates,
    say::{say_intake, say_rekey},
    session::{Known, Roster, Session, Wake},
};

/// How many runners are compared before work is offered.
const LOOKED_AT: usize = 64;

/// A moment on both clocks: ours for waits, the world's for what others read.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// Never jumps.
    pub instant: Instant,
    /// What people and runners are told.
    pub wall: Timestamp,
}

/// Everything that the dispatcher knows.
#[derive(Debug, Default)]
pub struct Desk {
    /// The jobs.
    pub board: Board,
    /// The runners.
    pub roster: Roster,
    /// What is on offer.
    pub offers: Offers,
    /// Where in a fleet the next look for room begins.
    turn: usize,
    /// How many read each job's log along.
    pub(super) tails: HashMap<JobId, u32>,
    /// How often runners call.
    pub rates: Rates,
    /// Runners whose sessions may belong to this server in the database, but that it does not watch yet.
    pub(super) unwatched: HashSet<RunnerId>,
    /// The server stops: no poll is parked any more.
    pub stopping: bool,
}

impl Desk {
    /// Take in an event of a job and wake who has to know.
    pub fn on_job(&mut self, fact: Fact, now: Moment, timing: &Timing) {
        let job = fact.job;
        let before = self.board.get(job).and_then(|tracked| Some(tracked.held()?.runner));
        let event = fact.event.clone();
        self.board.apply(fact, now);
        match event {
            JobEvent::Queued(_) | JobEvent::Requeued { .. } => {
                self.withdraw_offer(job);
                self.offer_job(job, now, timing);
            }
            JobEvent::CancelRequested { .. } => self.say_cancel(job),
            JobEvent::Claimed { .. } => {
                self.withdraw_offer(job);
                if self.tails.contains_key(&job) {
                    self.say_tail(job);
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
            | JobEvent::Disconnected { .. }
            | JobEvent::Reattached { .. }
            | JobEvent::OutcomeResolved { .. }
            | JobEvent::CancelUnconfirmed { .. }
            | JobEvent::LogFinalized(_)
            | JobEvent::LogDiverged { .. }
            | JobEvent::LateResultReported { .. } => {}
        }
        // A slot may have become free: whoever held the job may get another one.
        let after = self.board.get(job).and_then(|tracked| Some(tracked.held()?.runner));
        if let Some(runner) = before.filter(|_| after.is_none()) {
            self.offer_to(runner, now, timing);
        }
    }

    /// Take in an event of a runner and wake it when its standing changed.
    pub fn on_runner(
        &mut self,
        id: RunnerId,
        sequence: (u64, usize),
        event: RunnerEvent,
        now: Moment,
        timing: &Timing,
    ) {
        let Some(known) = self.roster.apply(id, sequence, event) else { return };
        let (works, drained) = (known.takes_work(), known.runner.draining);
        let rekey = known.runner.rekey_requested;
        if let Some(session) = &mut known.session {
            say_intake(session, drained);
            say_rekey(session, rekey);
            if known.runner.revoked {
                session.wake(Wake::News);
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

    /// Take back offers whose time is over and make them again, to whoever is there.
    pub fn on_tick(&mut self, now: Moment, timing: &Timing) {
        for (job, offer) in self.offers.expired(now.instant) {
            self.forget_offer(offer.runner, job);
        }
        for target in self.board.wanted() {
            self.offer_to_all(target, now, timing);
        }
    }

    /// Offer a job that has come into the queue.
    fn offer_job(&mut self, job: JobId, now: Moment, timing: &Timing) {
        let Some(tracked) = self.board.get(job) else { return };
        let (Some(target), Some(work)) = (tracked.target(), tracked.work()) else { return };
        // Whoever gets room is offered what waits at once: if one of its kind waits before it, nobody has any.
        if self.board.waiting(target, work.kind) <= 1 {
            self.offer_to_all(target, now, timing);
        }
    }

    /// Offer what waits for such runners: the first job to the runner with most room.
    pub fn offer_to_all(&mut self, target: Target, now: Moment, timing: &Timing) {
        // Of a large fleet some at a time, each time others: to look for the best of ten thousand for each of ten
        // thousand jobs would hold this lock for minutes.
        let fleet = self.roster.of(target).len();
        self.turn = self.turn.wrapping_add(LOOKED_AT);
        let start = self.turn.checked_rem(fleet).unwrap_or_default();
        for looked_at in (0..fleet).step_by(LOOKED_AT) {
            let all = self.roster.of(target).iter().copied();
            let some = LOOKED_AT.min(fleet - looked_at);
            let mut runners: Vec<_> =
                all.clone().chain(all).skip(start + looked_at).take(some).collect();
            // A parked poll hears at once; of those, the one with most room.
            runners.sort_by_cached_key(|id| {
                let parked = self.roster.get(*id).and_then(|known| known.session.as_ref());
                let parked = parked.is_some_and(Session::is_parked);
                std::cmp::Reverse((parked, self.room(*id, now, timing).map_or(0, |room| room.free)))
            });
            for runner in runners {
                if self.board.next(target, &JobKind::ALL).is_none() {
                    return;
                }
                self.offer_to(runner, now, timing);
            }
        }
    }

    /// Offer a runner what waits for it and fits. True when there is something new to say.
    pub fn offer_to(&mut self, runner: RunnerId, now: Moment, timing: &Timing) -> bool {
        let Some(known) = self.roster.get(runner) else { return false };
        let Some(session) = &known.session else { return false };
        let target = known.target();
        if self.board.next(target, &JobKind::ALL).is_none() {
            return false;
        }
        let able = |kind: &JobKind| session.capabilities.contains(kind);
        let mut kinds: Vec<_> = JobKind::ALL.into_iter().filter(able).collect();
        let Some(mut room) = self.room(runner, now, timing) else { return false };
        let deadline = now.wall + timing.offer;
        let mut news = false;
        while room.free > 0
            && let Some((job, kind)) = self.board.next(target, &kinds)
        {
            if !room.take(kind) {
                kinds.retain(|other| *other != kind);
                continue;
            }
            self.board.set_offered(job, true);
            self.offers.make(job, Offer { runner, kind, until: now.instant + timing.offer });
            let directive = Directive::Offer { job, kind, deadline };
            news |= self.say(runner, About::Offer(job), directive);
        }
        news
    }

    /// How much more a runner can take; nothing when it is not there or not to get anything.
    fn room(&self, runner: RunnerId, now: Moment, timing: &Timing) -> Option<Room> {
        let known = self.roster.get(runner)?;
        let session = known.session.as_ref()?;
        if !known.takes_work() || !known.is_present(now.instant, timing.lease) {
            return None;
        }
        let (held, offered) = (self.board.load(runner), self.offers.load(runner));
        let free = session.free.min(session.slots.saturating_sub(held.0 + held.1));
        let operates = session.capabilities.iter().any(|kind| kind.uses_reserved_slot());
        Some(Room::of(session.slots, free, operates, held, offered))
    }

    fn withdraw_offer(&mut self, job: JobId) {
        if let Some(offer) = self.offers.take(job) {
            self.forget_offer(offer.runner, job);
        }
    }

    fn forget_offer(&mut self, runner: RunnerId, job: JobId) {
        self.board.set_offered(job, false);
        let session = self.roster.get_mut(runner).and_then(|known| known.session.as_mut());
        if let Some(session) = session {
            session.outbox.withdraw(About::Offer(job));
        }
    }

    /// Open a session for a runner that is known. The former one, if any, hears of it: its parked
    /// poll goes on and is refused.
    pub fn seat(
        &mut self,
        runner: RunnerId,
        session: Session,
        heard: Instant,
    ) -> Option<&mut Known> {
        for job in self.offers.withdraw(runner) {
            self.forget_offer(runner, job);
        }
        let held: Vec<_> = self.board.held_by(runner).map(|(job, _)| job).collect();
        let known = self.roster.get_mut(runner)?;
        if let Some(mut former) = known.session.take() {
            former.wake(Wake::News);
        }
        known.heard = known.heard.max(heard);
        known.owned = Some(session.server_epoch);
        let (drained, rekey) = (known.runner.draining, known.runner.rekey_requested);
        let session = known.session.insert(session);
        say_rekey(session, rekey);
        if drained {
            say_intake(session, true);
        }
        for job in held {
            self.say_cancel(job);
            if self.tails.contains_key(&job) {
                self.say_tail(job);
            }
        }
        self.roster.get_mut(runner)
    }

    /// A session ends in order.
    pub fn leave(&mut self, runner: RunnerId, session: SessionId) {
        let newest = self.roster.get(runner).and_then(|known| known.session.as_ref());
        if newest.is_none_or(|newest| newest.id != session) {
            return;
        }
        for job in self.offers.withdraw(runner) {
            self.forget_offer(runner, job);
        }
        if let Some(mut ended) = self.roster.get_mut(runner).and_then(|known| known.session.take())
        {
            ended.wake(Wake::Released);
        }
    }
}
