//! From a queued job to a waiting runner, and who is still there.
//!
//! ```text
//! the log ─tail─▶ feed ─▶ board (jobs) ─▶ offers ─▶ outbox ─wakes─▶ parked poll
//!                    └──▶ roster (runners) ◀─ sessions ◀─ polls, reports, log chunks: every call is a sign of life
//!                                     clockwork ◀─ lease (the ladder of silence)
//! ```
//! All of it is memory, a copy of the log and of the `runner_session` rows, made again when the
//! server starts. It decides nothing: an offer is a hint, and the job answers the claim. A parked
//! runner is one entry in a map; no query is made for it.
mod board;
mod desk;
mod due;
mod feed;
mod lease;
mod offers;
mod outbox;
mod poll;
mod rates;
mod say;
mod session;
mod start;
mod takeover;
mod timing;
mod words;

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::{
    ids::{ExecutionId, JobId, RunnerId, SessionId},
    job::State,
};
use event_log::{SessionGuard, Stored};
use projections::views::waiting::Contact;
use schemas::runner::PendingCancel;
use tokio::{sync::watch, time::Instant};

pub use board::{Board, Fact, OpenLog, Target, Tracked};
pub use desk::{Desk, Moment};
pub use due::Due;
pub use feed::follow;
pub use lease::{Edge, Silence, edge, is_suspect};
pub use poll::{Polled, SessionRefusal, Touched};
pub use rates::Calls;
pub use session::{Known, Session};
pub use start::load;
pub use takeover::{beat, forget_gone};
pub use timing::Timing;
pub use words::{grace_s, pending_cancel, state};

use crate::state::Clock;

/// The dispatcher of this server. Cheap to clone.
#[derive(Clone)]
pub struct Dispatch(Arc<Inner>);

struct Inner {
    desk: Mutex<Desk>,
    timing: Timing,
    server: String,
    clock: Clock,
    /// How far the log has been taken in.
    taken: watch::Sender<u64>,
}

/// How many there are of what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Census {
    /// Jobs that wait for a runner.
    pub queued: usize,
    /// Jobs that a runner has.
    pub held: usize,
    /// Sessions of runners with this server that a runner used within its lease.
    pub sessions: usize,
    /// Polls that are parked.
    pub parked: usize,
}

impl Dispatch {
    /// An empty one. `server` is this server's name in the `runner_session` rows: the same after a
    /// restart, another one for each server on one database.
    pub fn new(server: impl Into<String>, timing: Timing, clock: Clock) -> Self {
        let (desk, server) = (Mutex::default(), server.into());
        let taken = watch::Sender::new(0);
        Dispatch(Arc::new(Inner { desk, timing, server, clock, taken }))
    }

    /// How long the server waits for what.
    pub fn timing(&self) -> &Timing {
        &self.0.timing
    }

    /// This server's name in the `runner_session` rows.
    pub fn server(&self) -> &str {
        &self.0.server
    }

    /// Now.
    pub fn moment(&self) -> Moment {
        Moment { instant: Instant::now(), wall: (self.0.clock)() }
    }

    /// The state, for a moment. Never held over an await.
    pub fn desk(&self) -> MutexGuard<'_, Desk> {
        // A panic while it was held has left a copy of the log that is at worst late.
        self.0.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wait until everything up to a position has been taken in.
    pub async fn has_taken(&self, position: u64) {
        // It never closes: we hold its other end.
        let _ = self.0.taken.subscribe().wait_for(|at| *at >= position).await;
    }

    /// Position up to which events have been taken in.
    pub fn taken(&self) -> u64 {
        *self.0.taken.borrow()
    }

    /// Take one call of a runner's allowance. `Err`: how many seconds to stay away.
    pub fn allow(&self, runner: RunnerId, calls: Calls) -> Result<(), u64> {
        let now = Instant::now();
        self.desk().rates.take(runner, calls, now)
    }

    /// A runner spoke of a job that is not its own. `Some`: it is time to say so, and how often it did.
    pub fn forged(&self, runner: RunnerId) -> Option<u32> {
        let now = Instant::now();
        self.desk().rates.forged(runner, now)
    }

    /// Whether this execution holds this job for this runner, as far as this server has heard.
    pub fn holds(&self, runner: RunnerId, job: JobId, execution: ExecutionId) -> bool {
        let desk = self.desk();
        let held = desk.board.get(job).and_then(Tracked::held);
        held.is_some_and(|held| held.id == execution && held.runner == runner)
    }

    /// Whether a runner holds this execution, whatever its job, as far as this server has heard.
    pub fn works_on(&self, runner: RunnerId, execution: ExecutionId) -> bool {
        let desk = self.desk();
        let mut held = desk.board.held_by(runner).filter_map(|(_, tracked)| tracked.held());
        held.any(|held| held.id == execution)
    }

    /// The claim of the execution that has a job, as the log holds it, if this server has heard of it.
    pub fn claim(&self, job: JobId, execution: ExecutionId) -> Option<Stored> {
        let desk = self.desk();
        let tracked = desk.board.get(job)?;
        let held = tracked.held().is_some_and(|held| held.id == execution);
        held.then(|| tracked.claim.as_deref().cloned()).flatten()
    }

    /// Whether this execution may add to its log, as far as this server has heard: it holds the job,
    /// or it ended the job and its log is open.
    pub fn writes_log(&self, runner: RunnerId, job: JobId, execution: ExecutionId) -> bool {
        let desk = self.desk();
        desk.board.get(job).is_some_and(|tracked| match &tracked.job.state {
            State::Claimed(held) | State::Running(held) => {
                held.id == execution && held.runner == runner
            }
            State::OutcomeUnknown(held) => {
                let its_own = held.id == execution && held.runner == runner;
                its_own && !tracked.is_sealed(execution)
            }
            State::Ended { execution: ended, .. } => {
                *ended == Some(execution)
                    && tracked.last_runner == Some(runner)
                    && tracked.unsealed.iter().any(|open| open.execution == execution)
            }
            State::Unborn | State::Queued { .. } => false,
        })
    }

    /// The log of an execution grew: it is not sealed without its end while that comes in.
    pub fn log_grew(&self, job: JobId, execution: ExecutionId, length: u64) {
        let now = Instant::now();
        self.desk().board.log_grew(job, execution, length, now);
    }

    /// Where a job is, in one word, as far as this server has heard.
    pub fn state_of(&self, job: JobId) -> &'static str {
        self.desk().board.get(job).map_or("unknown", |tracked| words::state(&tracked.job))
    }

    /// Another server has this runner's session now.
    pub fn disown(&self, runner: RunnerId) {
        if let Some(known) = self.desk().roster.get_mut(runner) {
            (known.owned, known.session) = (None, None);
        }
    }

    /// A session ends in order: nothing is offered to it any more.
    pub fn close(&self, runner: RunnerId, session: SessionId) {
        let mut desk = self.desk();
        desk.leave(runner, session);
    }

    /// This server's claim on a session, for a commit in its name. `None`: another server holds the session.
    pub fn guard(&self, runner: RunnerId, session: SessionId) -> Option<SessionGuard> {
        let desk = self.desk();
        let held = desk.roster.get(runner)?.session.as_ref().filter(|held| held.id == session)?;
        let (runner, server) = (runner.to_string(), self.0.server.clone());
        Some(SessionGuard { runner, server, server_epoch: held.server_epoch })
    }

    /// Contact of a runner. `None`: this server does not hold its session.
    pub fn contact(&self, runner: RunnerId) -> Option<Contact> {
        let (desk, now) = (self.desk(), self.moment());
        let known = desk.roster.get(runner)?;
        let is_parked = known.session.as_ref()?.is_parked();
        let online = known.is_present(now.instant, self.0.timing.suspect);
        let last = if is_parked { Some(now.instant) } else { known.last_contact };
        let last = last.map(|at| now.wall - now.instant.saturating_duration_since(at));
        Some(Contact { online, last })
    }

    /// The cancel that waits for an execution. Every answer to its runner carries it.
    pub fn pending_cancel(&self, job: JobId, execution: ExecutionId) -> Option<PendingCancel> {
        let desk = self.desk();
        let tracked = desk.board.get(job)?;
        let current = tracked.held().is_some_and(|held| held.id == execution);
        current.then(|| words::pending_cancel(&tracked.job)).flatten()
    }

    /// Whether nobody has heard of an execution for so long that it is shown.
    pub fn is_suspect(&self, job: JobId) -> bool {
        let (desk, now) = (self.desk(), Instant::now());
        let tracked = desk.board.get(job).filter(|tracked| tracked.alive().is_some());
        tracked.is_some_and(|tracked| {
            is_suspect(now.saturating_duration_since(tracked.heard), &self.0.timing)
        })
    }

    /// The name of a runner's session, as far as this server knows.
    pub fn session_of(&self, runner: RunnerId) -> Option<SessionId> {
        Some(self.desk().roster.get(runner)?.session.as_ref()?.id)
    }

    /// Whether a runner's session takes jobs of this kind; `None`: this server has not heard of one of them.
    pub fn takes(&self, runner: RunnerId, job: JobId) -> Option<bool> {
        let desk = self.desk();
        let kind = desk.board.get(job)?.work()?.kind;
        Some(desk.roster.get(runner)?.session.as_ref()?.capabilities.contains(&kind))
    }

    /// Which of a runner's sessions it is.
    pub fn generation_of(&self, runner: RunnerId) -> Option<u64> {
        Some(self.desk().roster.get(runner)?.session.as_ref()?.generation)
    }

    /// Somebody reads a job's log along, or no longer does. Each `true` is followed by one `false`.
    /// While anybody reads, the job's runner sends more often.
    pub fn tail(&self, job: JobId, on: bool) {
        self.desk().tail(job, on);
    }

    /// How many there are of what, for the metrics.
    pub fn census(&self) -> Census {
        let (desk, now) = (self.desk(), Instant::now());
        let mut census = Census::default();
        for (_, tracked) in desk.board.all() {
            census.queued += usize::from(matches!(tracked.job.state, State::Queued { .. }));
            census.held += usize::from(tracked.held().is_some());
        }
        for (_, known) in desk.roster.all() {
            let is_live = known.session.is_some() && known.is_present(now, self.0.timing.lease);
            census.sessions += usize::from(is_live);
            census.parked += usize::from(known.session.as_ref().is_some_and(Session::is_parked));
        }
        census
    }

    /// The server stops: every parked poll is answered, and none is parked any more.
    pub fn stop(&self) {
        let mut desk = self.desk();
        desk.stopping = true;
        for (_, known) in desk.roster.all_mut() {
            if let Some(session) = &mut known.session {
                session.wake(session::Wake::Stop);
            }
        }
    }
}
