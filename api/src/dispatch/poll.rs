//! The one idle call: parked until there is something to say.
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
    desk::Desk,
    session::{Known, Session, Wake},
};

/// The longest that runners stay away when the server stops, so that they do not all come at once.
const STOP_SPREAD_MS: u64 = 5_000;

/// With less room than this on its disk a runner finishes what it has and gets nothing new.
const DISK_LEAST_BYTES: u64 = 64 * 1024 * 1024;

/// What a poll brings.
#[derive(Debug, Clone, PartialEq)]
pub enum Polled {
    /// 200.
    News {
        /// All that was not heard yet.
        directives: Vec<SentDirective>,
        /// What is left of each lease.
        leases: Vec<Lease>,
        /// How long to stay away.
        delay_ms: u64,
    },
    /// 204.
    Nothing,
}

/// Why a session is not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SessionRefusal {
    /// A newer session of this runner exists.
    #[error("a newer session of this runner exists")]
    Superseded,
    /// This server has not heard of it: it may be in the database, or a fail-over has lost it.
    #[error("the session is not known here; open another one with the runner's journal")]
    Unknown,
    /// The runner polls and does not speak of work that it holds: only its journal can say what became
    /// of it, and that is told when a session is opened.
    #[error("the runner does not speak of work that it has; open a session with its journal")]
    Unsure,
    /// The runner was revoked.
    #[error("the runner was revoked")]
    Revoked,
}

/// What a call of a runner changed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Touched {
    /// Executions whose jobs were told that they are disconnected, and must hear that they are not.
    pub reattach: Vec<(JobId, ExecutionId)>,
    /// The runner itself was told to be disconnected.
    pub returned: bool,
    /// The customer has turned the switch on the spot: off is true.
    pub switched: Option<bool>,
}

impl Dispatch {
    /// Check that a call comes from the newest session of a runner. A sign of life. Answers with this
    /// server's claim on the session, for commits in its name.
    pub fn check(
        &self,
        runner: RunnerId,
        session: SessionId,
        generation: u64,
    ) -> Result<u64, SessionRefusal> {
        let mut desk = self.desk();
        let known = current(&mut desk, runner, session, generation)?;
        known.hear(self.moment().instant);
        known.session.as_ref().map(|session| session.server_epoch).ok_or(SessionRefusal::Unknown)
    }

    /// Take in what a poll says: what was heard, how much room there is, what runs.
    pub fn touch(&self, runner: RunnerId, ask: &Poll) -> Result<Touched, SessionRefusal> {
        let now = self.moment();
        let mut desk = self.desk();
        current(&mut desk, runner, ask.session_id, ask.generation)?;
        let lease = self.timing().lease;
        if desk.board.is_silent_about(runner, &ask.running, now.instant, lease) {
            return Err(SessionRefusal::Unsure);
        }
        let known = current(&mut desk, runner, ask.session_id, ask.generation)?;
        known.hear(now.instant);
        let returned = known.runner.disconnected_since.is_some();
        let off = ask.disabled.is_some();
        let switched = (known.runner.disabled.contains(&Side::Customer) != off).then_some(off);
        if let Some(session) = &mut known.session {
            session.outbox.ack(&ask.ack);
            let full = ask.pressure.is_some_and(|pressure| pressure.disk_free < DISK_LEAST_BYTES);
            session.free = if full { 0 } else { ask.free_slots };
            // A session that was taken over from another server does not say how many slots it has.
            let running = u32::try_from(ask.running.len()).unwrap_or(u32::MAX);
            session.slots = session.slots.max(ask.free_slots.saturating_add(running));
        }
        let mut reattach = Vec::new();
        for running in &ask.running {
            let (job, execution) = (running.job, running.execution);
            if desk.board.renew(runner, job, execution, now.instant) == Some(true) {
                reattach.push((job, execution));
            }
        }
        Ok(Touched { reattach, returned, switched })
    }

    /// A call about one execution: its lease is whole again, if the caller holds it.
    pub fn touch_execution(&self, runner: RunnerId, job: JobId, execution: ExecutionId) -> Touched {
        let now = self.moment();
        let mut desk = self.desk();
        let mut touched = Touched::default();
        if let Some(known) = desk.roster.get_mut(runner) {
            known.hear(now.instant);
            touched.returned = known.runner.disconnected_since.is_some();
        }
        if desk.board.renew(runner, job, execution, now.instant) == Some(true) {
            touched.reattach.push((job, execution));
        }
        touched
    }

    /// Wait for something to say, at most as long as asked and as the leases allow. A second poll
    /// of the same session releases the first.
    pub async fn park(
        &self,
        runner: RunnerId,
        ask: &Poll,
        wait: Duration,
    ) -> Result<Polled, SessionRefusal> {
        let timing = self.timing();
        let most = if ask.running.is_empty() { timing.wait } else { timing.wait_busy() };
        let until = self.moment().instant + wait.min(most);
        // Only what came after this poll was parked may release it.
        let mut first = true;
        loop {
            let parked = {
                let now = self.moment();
                let mut desk = self.desk();
                current(&mut desk, runner, ask.session_id, ask.generation)?;
                if desk.stopping {
                    return Ok(stop());
                }
                desk.offer_to(runner, now, timing);
                let leases = leases(&desk, ask, timing.lease);
                let known = current(&mut desk, runner, ask.session_id, ask.generation)?;
                let Some(session) = known.session.as_mut() else {
                    return Err(SessionRefusal::Unknown);
                };
                if first {
                    session.wake(Wake::Released);
                }
                first = false;
                if !session.outbox.is_empty() {
                    let directives = session.outbox.unheard();
                    return Ok(Polled::News { directives, leases, delay_ms: 0 });
                }
                let (sender, receiver) = oneshot::channel();
                session.parked = Some(sender);
                receiver
            };
            match timeout_at(until, parked).await {
                Ok(Ok(Wake::News)) => {}
                Ok(Ok(Wake::Stop)) => return Ok(stop()),
                Ok(Ok(Wake::Released) | Err(_)) | Err(_) => return Ok(Polled::Nothing),
            }
        }
    }
}

/// The runner, if this is its newest session and it may still call.
fn current(
    desk: &mut Desk,
    runner: RunnerId,
    session: SessionId,
    generation: u64,
) -> Result<&mut Known, SessionRefusal> {
    let known = desk.roster.get_mut(runner).ok_or(SessionRefusal::Unknown)?;
    if known.runner.revoked {
        return Err(SessionRefusal::Revoked);
    }
    let newest = known.session.as_ref().map(|Session { id, generation, .. }| (*id, *generation));
    match newest {
        None => Err(SessionRefusal::Unknown),
        Some(newest) if newest == (session, generation) => Ok(known),
        // Ahead of what this server knows: another server opened it.
        Some((_, known)) if generation > known => Err(SessionRefusal::Unknown),
        Some(_) => Err(SessionRefusal::Superseded),
    }
}

fn leases(desk: &Desk, ask: &Poll, lease: Duration) -> Vec<Lease> {
    let running = ask.running.iter().filter(|running| {
        let held = desk.board.get(running.job).and_then(|tracked| tracked.alive());
        held.is_some_and(|held| held.id == running.execution)
    });
    let remaining_ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
    running.map(|running| Lease { job: running.job, remaining_ms }).collect()
}

fn stop() -> Polled {
    let delay_ms = rand::thread_rng().gen_range(0..STOP_SPREAD_MS);
    Polled::News { directives: Vec::new(), leases: Vec::new(), delay_ms }
}
