//! Long poll of runners: waits until there is a directive.
use std::time::Duration;

use domain::{
    ids::{ExecutionId, JobId, RunnerId, SessionId},
    runner::Side,
};
use rand::Rng as _;
use schemas::runner::{Lease, Poll, SentDirective};
use tokio::{sync::oneshot, time::timeout_at};

use super::{
    Dispatch,
    session::{RunnerEntry, Session, Wake},
    state::DispatchState,
};
use crate::problem::{Code, Problem};

/// Longest delay before runners reconnect when the server stops. The delay spreads their calls.
const STOP_SPREAD_MS: u64 = 5_000;

/// Free disk space below which a runner finishes its jobs but gets no new jobs.
const MIN_FREE_DISK_BYTES: u64 = 64 * 1024 * 1024;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Polled {
    /// Directives to deliver (status 200).
    Directives {
        /// All directives that the runner has not acknowledged.
        directives: Vec<SentDirective>,
        /// Leases of the executions that the poll names.
        leases: Vec<Lease>,
        delay_ms: u64,
    },
    /// No directives (status 204).
    Empty,
}

/// Reasons to reject a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    #[error("session rejected: a newer session of this runner exists")]
    Superseded,
    /// This server does not know the session. The session may be in the database, or may have been
    /// lost in a failover.
    #[error(
        "session rejected: this server does not know it; open another session with the runner's journal"
    )]
    Unknown,
    /// The runner polls without naming an execution that it holds. Only its journal shows the
    /// result, and the runner sends the journal when it opens a session.
    #[error(
        "poll rejected: it does not name an execution that the runner holds; open a session with the runner's journal"
    )]
    JournalRequired,
    #[error("session rejected: the runner was revoked; enrol another runner")]
    Revoked,
}

impl From<SessionError> for Problem {
    fn from(refusal: SessionError) -> Problem {
        let code = match refusal {
            SessionError::Superseded => Code::SessionSuperseded,
            // No newer session exists. If the response were `superseded`, the runner would stop
            // permanently.
            SessionError::Unknown => Code::SessionUnknown,
            SessionError::JournalRequired => Code::SessionJournalRequired,
            SessionError::Revoked => Code::RunnerRevoked,
        };
        Problem::new(code, refusal.to_string())
    }
}

/// Changes that a runner's call caused.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ContactChanges {
    /// Executions that are recorded as disconnected and must be reattached.
    pub reattach: Vec<(JobId, ExecutionId)>,
    /// True if the runner itself was recorded as disconnected.
    pub reconnected: bool,
    /// New state if the customer disabled or enabled the runner on its host. True means disabled.
    pub disabled_changed: Option<bool>,
}

impl Dispatch {
    /// Checks that a call comes from the current session of a runner, and records the contact.
    /// Returns this server's epoch of the session for guarded commits.
    pub(crate) fn check(
        &self,
        runner: RunnerId,
        session: SessionId,
        generation: u64,
    ) -> Result<u64, SessionError> {
        let mut state = self.state();
        let entry = current(&mut state, runner, session, generation)?;
        entry.record_contact(self.moment().instant);
        entry.session.as_ref().map(|session| session.server_epoch).ok_or(SessionError::Unknown)
    }

    /// Applies the contents of a poll: acknowledgements, free slots and running executions.
    pub(crate) fn apply_poll(
        &self,
        runner: RunnerId,
        request: &Poll,
    ) -> Result<ContactChanges, SessionError> {
        let now = self.moment();
        let mut state = self.state();
        current(&mut state, runner, request.session_id, request.generation)?;
        let lease = self.timing().lease;
        if state.jobs.needs_journal(runner, &request.running, now.instant, lease) {
            return Err(SessionError::JournalRequired);
        }
        let entry = current(&mut state, runner, request.session_id, request.generation)?;
        entry.record_contact(now.instant);
        let returned = entry.runner.disconnected_since.is_some();
        let is_disabled = request.disabled.is_some();
        let switched =
            (entry.runner.disabled.contains(&Side::Customer) != is_disabled).then_some(is_disabled);
        if let Some(session) = &mut entry.session {
            session.outbox.ack(&request.ack);
            let full =
                request.pressure.is_some_and(|pressure| pressure.disk_free < MIN_FREE_DISK_BYTES);
            session.free = if full { 0 } else { request.free_slots };
            // A session that was taken over from another server has an unknown number of slots.
            let running = u32::try_from(request.running.len()).unwrap_or(u32::MAX);
            session.slots = session.slots.max(request.free_slots.saturating_add(running));
        }
        let mut reattach = Vec::new();
        for running in &request.running {
            let (job, execution) = (running.job, running.execution);
            if state.jobs.renew(runner, job, execution, now.instant) == Some(true) {
                reattach.push((job, execution));
            }
        }
        Ok(ContactChanges { reattach, reconnected: returned, disabled_changed: switched })
    }

    /// Records a call about one execution. Renews the lease if the caller holds the execution.
    pub(crate) fn record_execution_contact(
        &self,
        runner: RunnerId,
        job: JobId,
        execution: ExecutionId,
    ) -> ContactChanges {
        let now = self.moment();
        let mut state = self.state();
        let mut changes = ContactChanges::default();
        if let Some(entry) = state.runners.get_mut(runner) {
            entry.record_contact(now.instant);
            changes.reconnected = entry.runner.disconnected_since.is_some();
        }
        if state.jobs.renew(runner, job, execution, now.instant) == Some(true) {
            changes.reattach.push((job, execution));
        }
        changes
    }

    /// Waits for a directive, for at most the requested time, and no longer than the leases allow.
    /// A second poll of the same session releases the first poll.
    pub(crate) async fn long_poll(
        &self,
        runner: RunnerId,
        request: &Poll,
        wait: Duration,
    ) -> Result<Polled, SessionError> {
        let timing = self.timing();
        let most =
            if request.running.is_empty() { timing.long_poll } else { timing.long_poll_busy() };
        let until = self.moment().instant + wait.min(most);
        // Releases an earlier poll only once, because a later poll may wait by then.
        let mut first = true;
        loop {
            let parked = {
                let now = self.moment();
                let mut state = self.state();
                current(&mut state, runner, request.session_id, request.generation)?;
                if state.stopping {
                    return Ok(stop());
                }
                state.offer_to(runner, now, timing);
                let leases = leases(&state, request, timing.lease);
                let entry = current(&mut state, runner, request.session_id, request.generation)?;
                let Some(session) = entry.session.as_mut() else {
                    return Err(SessionError::Unknown);
                };
                if first {
                    session.wake(Wake::Released);
                }
                first = false;
                if !session.outbox.is_empty() {
                    let directives = session.outbox.unacknowledged();
                    return Ok(Polled::Directives { directives, leases, delay_ms: 0 });
                }
                let (sender, receiver) = oneshot::channel();
                session.long_poll = Some(sender);
                receiver
            };
            match timeout_at(until, parked).await {
                Ok(Ok(Wake::Directive)) => {}
                Ok(Ok(Wake::Stop)) => return Ok(stop()),
                Ok(Ok(Wake::Released) | Err(_)) | Err(_) => return Ok(Polled::Empty),
            }
        }
    }
}

/// Returns the entry of the runner if this is its current session and the runner is not revoked.
fn current(
    state: &mut DispatchState,
    runner: RunnerId,
    session: SessionId,
    generation: u64,
) -> Result<&mut RunnerEntry, SessionError> {
    let entry = state.runners.get_mut(runner).ok_or(SessionError::Unknown)?;
    if entry.runner.revoked {
        return Err(SessionError::Revoked);
    }
    let newest = entry.session.as_ref().map(|Session { id, generation, .. }| (*id, *generation));
    match newest {
        None => Err(SessionError::Unknown),
        Some(newest) if newest == (session, generation) => Ok(entry),
        // This server does not know the newer generation, so another server opened the session.
        Some((_, current)) if generation > current => Err(SessionError::Unknown),
        Some(_) => Err(SessionError::Superseded),
    }
}

fn leases(state: &DispatchState, request: &Poll, lease: Duration) -> Vec<Lease> {
    let running = request.running.iter().filter(|running| {
        let held = state.jobs.get(running.job).and_then(|tracked| tracked.active_execution());
        held.is_some_and(|held| held.id == running.execution)
    });
    let remaining_ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
    running.map(|running| Lease { job: running.job, remaining_ms }).collect()
}

fn stop() -> Polled {
    let delay_ms = rand::thread_rng().gen_range(0..STOP_SPREAD_MS);
    Polled::Directives { directives: Vec::new(), leases: Vec::new(), delay_ms }
}
