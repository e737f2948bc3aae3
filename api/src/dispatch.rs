//! Dispatches queued jobs to runners, and tracks contact with them.
//!
//! ```text
//! the log ─tail─▶ feed ─▶ job table ─▶ offers ─▶ outbox ─wakes─▶ long poll
//!                    └──▶ runner table ◀─ sessions ◀─ polls, reports, log chunks: every call counts as contact
//!                                     timeouts ◀─ lease (liveness of executions)
//! ```
//! All state is in memory. The server derives it from the log and the `runner_session` rows when it
//! starts. The dispatcher makes no decisions: an offer is a hint, and the job aggregate decides on
//! the claim. A waiting runner is one entry in a map and causes no query.
mod convert;
mod directives;
mod feed;
mod job_table;
mod lease;
mod offers;
mod outbox;
mod poll;
mod rate_limits;
mod session;
mod start;
mod state;
mod takeover;
mod timeouts;
mod timing;

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::{
    ids::{ExecutionId, JobId, RunnerId, SessionId},
    job::State,
};
use event_log::{SessionGuard, StoredEvent};
use projections::views::waiting::Contact;
use schemas::{control::runners::RunnerSession, runner::PendingCancel};
use tokio::{sync::watch, time::Instant};

pub(crate) use convert::{pending_cancel, state};
pub(crate) use feed::follow;
pub(crate) use lease::is_suspect;
pub(crate) use poll::{ContactChanges, Polled, SessionError};
pub(crate) use rate_limits::CallKind;
pub(crate) use session::{Program, Session};
pub(crate) use start::load;
pub(crate) use state::{DispatchState, Moment};
pub(crate) use takeover::{beat, forget_gone};
pub(crate) use timeouts::TimeoutCommand;
pub(crate) use timing::Timing;

use crate::clock::Clock;

/// Dispatcher of this server. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Dispatch(Arc<Inner>);

struct Inner {
    state: Mutex<DispatchState>,
    timing: Timing,
    server: String,
    clock: Clock,
    /// Position up to which the log has been applied.
    applied: watch::Sender<u64>,
}

/// Counts of jobs, sessions and polls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Census {
    /// Jobs that wait for a runner.
    pub queued: usize,
    /// Jobs that runners hold.
    pub claimed: usize,
    /// Sessions of this server whose runners have a long poll or called within the lease.
    pub sessions: usize,
    pub long_polls: usize,
}

impl Dispatch {
    /// Creates an empty dispatcher. `server` is this server's name in the `runner_session` rows.
    /// The name stays the same after a restart and is unique among the servers of one database.
    pub(crate) fn new(server: impl Into<String>, timing: Timing, clock: Clock) -> Self {
        let (state, server) = (Mutex::default(), server.into());
        let applied = watch::Sender::new(0);
        Dispatch(Arc::new(Inner { state, timing, server, clock, applied }))
    }

    pub(crate) fn timing(&self) -> &Timing {
        &self.0.timing
    }

    /// This server's name in the `runner_session` rows.
    pub(crate) fn server(&self) -> &str {
        &self.0.server
    }

    /// Current monotonic time and wall-clock time.
    pub(crate) fn moment(&self) -> Moment {
        Moment { instant: Instant::now(), wall: (self.0.clock)() }
    }

    /// Locks the state. Never hold the guard across an await.
    pub(crate) fn state(&self) -> MutexGuard<'_, DispatchState> {
        // After a panic the state is valid but may be outdated.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all events up to a position have been applied.
    pub(crate) async fn wait_until_applied(&self, position: u64) {
        // The channel cannot close: `self` owns the sender.
        let _ = self.0.applied.subscribe().wait_for(|at| *at >= position).await;
    }

    /// Position up to which events have been applied.
    pub(crate) fn applied_position(&self) -> u64 {
        *self.0.applied.borrow()
    }

    /// Counts one call against a runner's rate limit. Returns the seconds to wait as `Err` if the
    /// limit is exceeded.
    pub(crate) fn allow(&self, runner: RunnerId, calls: CallKind) -> Result<(), u64> {
        let now = Instant::now();
        self.state().rates.acquire(runner, calls, now)
    }

    /// Counts a runner's report on a job that the runner does not own. Returns the number of
    /// attempts if they are due to be recorded.
    pub(crate) fn count_forgery(&self, runner: RunnerId) -> Option<u32> {
        let now = Instant::now();
        self.state().rates.count_forgery(runner, now)
    }

    /// Returns true if the runner holds this execution of any job, as far as this server knows.
    pub(crate) fn holds_execution(&self, runner: RunnerId, execution: ExecutionId) -> bool {
        let state = self.state();
        let mut held = state.jobs.held_by(runner).filter_map(|(_, tracked)| tracked.execution());
        held.any(|held| held.id == execution)
    }

    /// Stored claim event of the execution that holds a job, if this server has seen it.
    pub(crate) fn claim(&self, job: JobId, execution: ExecutionId) -> Option<StoredEvent> {
        let state = self.state();
        let tracked = state.jobs.get(job)?;
        let held = tracked.execution().is_some_and(|held| held.id == execution);
        held.then(|| tracked.claim.as_deref().cloned()).flatten()
    }

    /// Returns true if this execution may append to its log, as far as this server knows. The
    /// execution must hold the job, or have ended or have an unknown outcome while the log is not
    /// finalized.
    pub(crate) fn may_write_log(
        &self,
        runner: RunnerId,
        job: JobId,
        execution: ExecutionId,
    ) -> bool {
        let state = self.state();
        state.jobs.get(job).is_some_and(|tracked| match &tracked.job.state {
            State::Claimed(held) | State::Running(held) => {
                held.id == execution && held.runner == runner
            }
            State::OutcomeUnknown(held) => {
                let is_own = held.id == execution && held.runner == runner;
                is_own && !tracked.is_log_finalized(execution)
            }
            State::Ended { execution: ended, .. } => {
                *ended == Some(execution)
                    && tracked.last_runner == Some(runner)
                    && tracked.open_logs.iter().any(|open| open.execution == execution)
            }
            State::NotCreated | State::Queued { .. } => false,
        })
    }

    /// Records that the log of an execution grew, so that the log is not finalized while chunks
    /// arrive.
    pub(crate) fn log_grew(&self, job: JobId, execution: ExecutionId, length: u64) {
        let now = Instant::now();
        self.state().jobs.log_grew(job, execution, length, now);
    }

    /// State of a job as one lower-case name, as far as this server knows.
    pub(crate) fn state_of(&self, job: JobId) -> &'static str {
        self.state().jobs.get(job).map_or("unknown", |tracked| convert::state(&tracked.job))
    }

    /// Drops this server's ownership of a runner whose session another server owns.
    pub(crate) fn disown(&self, runner: RunnerId) {
        if let Some(entry) = self.state().runners.get_mut(runner) {
            (entry.epoch, entry.session) = (None, None);
        }
    }

    /// Closes a session that the runner ended. The session gets no more offers.
    pub(crate) fn close(&self, runner: RunnerId, session: SessionId) {
        let mut state = self.state();
        state.close_session(runner, session);
    }

    /// Guard for commits on behalf of a session. Returns `None` if this server does not own the
    /// session.
    pub(crate) fn guard(&self, runner: RunnerId, session: SessionId) -> Option<SessionGuard> {
        let state = self.state();
        let held = state.runners.get(runner)?.session.as_ref().filter(|held| held.id == session)?;
        let (runner, server) = (runner.to_string(), self.0.server.clone());
        Some(SessionGuard { runner, server, server_epoch: held.server_epoch })
    }

    /// Contact of a runner, or `None` if this server does not own its session.
    pub(crate) fn contact(&self, runner: RunnerId) -> Option<Contact> {
        let (state, now) = (self.state(), self.moment());
        let entry = state.runners.get(runner)?;
        let has_long_poll = entry.session.as_ref()?.has_long_poll();
        let online = entry.is_connected(now.instant, self.0.timing.suspect);
        let last = if has_long_poll { Some(now.instant) } else { entry.last_contact };
        let last = last.map(|at| now.wall - now.instant.saturating_duration_since(at));
        Some(Contact { online, last })
    }

    /// Session of a runner for display, or `None` if this server does not know it.
    pub(crate) fn described_session(&self, runner: RunnerId) -> Option<RunnerSession> {
        let state = self.state();
        let session = state.runners.get(runner)?.session.as_ref()?;
        let program = session.program.as_ref();
        let capabilities = session.capabilities.iter().map(|kind| kind.as_str().to_owned());
        Some(RunnerSession {
            version: program.map(|program| program.version.clone()),
            // Those of a session that another server opened are only assumed.
            capabilities: capabilities.filter(|_| program.is_some()).collect(),
            slots: session.slots,
            free_slots: session.free,
            policy: program.and_then(|program| program.policy.clone()),
        })
    }

    /// Pending cancellation of the execution, if the execution holds the job.
    pub(crate) fn pending_cancel(
        &self,
        job: JobId,
        execution: ExecutionId,
    ) -> Option<PendingCancel> {
        let state = self.state();
        let tracked = state.jobs.get(job)?;
        let current = tracked.execution().is_some_and(|held| held.id == execution);
        current.then(|| convert::pending_cancel(&tracked.job)).flatten()
    }

    /// Returns true if the last contact is long enough ago to display the execution as suspect.
    pub(crate) fn is_suspect(&self, job: JobId) -> bool {
        let (state, now) = (self.state(), Instant::now());
        let tracked = state.jobs.get(job).filter(|tracked| tracked.active_execution().is_some());
        tracked.is_some_and(|tracked| {
            is_suspect(now.saturating_duration_since(tracked.last_contact), &self.0.timing)
        })
    }

    /// Id of a runner's session, as far as this server knows.
    pub(crate) fn session_of(&self, runner: RunnerId) -> Option<SessionId> {
        Some(self.state().runners.get(runner)?.session.as_ref()?.id)
    }

    /// Returns true if the runner's session accepts jobs of this kind, or `None` if this server
    /// does not know the job or the session.
    pub(crate) fn accepts(&self, runner: RunnerId, job: JobId) -> Option<bool> {
        let state = self.state();
        let kind = state.jobs.get(job)?.work()?.kind;
        Some(state.runners.get(runner)?.session.as_ref()?.capabilities.contains(&kind))
    }

    /// Returns true if the runner's session has declared that it inserts no sensitive values.
    pub(crate) fn lacks_secret_references(&self, runner: RunnerId) -> bool {
        let state = self.state();
        let session = state.runners.get(runner).and_then(|known| known.session.as_ref());
        session.is_some_and(|session| !session.secret_references)
    }

    pub(crate) fn generation_of(&self, runner: RunnerId) -> Option<u64> {
        Some(self.state().runners.get(runner)?.session.as_ref()?.generation)
    }

    /// Adds or removes a reader of a job's log. Each `true` must be followed by one `false`. While
    /// there is a reader, the runner sends log chunks more often.
    pub(crate) fn set_log_reader(&self, job: JobId, is_reading: bool) {
        self.state().set_log_reader(job, is_reading);
    }

    /// Returns the counts for the metrics.
    pub(crate) fn census(&self) -> Census {
        let (state, now) = (self.state(), Instant::now());
        let mut census = Census::default();
        for (_, tracked) in state.jobs.all() {
            census.queued += usize::from(matches!(tracked.job.state, State::Queued { .. }));
            census.claimed += usize::from(tracked.execution().is_some());
        }
        for (_, entry) in state.runners.all() {
            let is_live = entry.session.is_some() && entry.is_connected(now, self.0.timing.lease);
            census.sessions += usize::from(is_live);
            census.long_polls +=
                usize::from(entry.session.as_ref().is_some_and(Session::has_long_poll));
        }
        census
    }

    /// Starts the shutdown: every long poll returns, and later long polls return immediately.
    pub(crate) fn stop(&self) {
        let mut state = self.state();
        state.stopping = true;
        for (_, entry) in state.runners.all_mut() {
            if let Some(session) = &mut entry.session {
                session.wake(session::Wake::Stop);
            }
        }
    }
}
