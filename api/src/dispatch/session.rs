//! Sessions of this server: connected runners, their capacity and their long polls.
use std::{collections::HashMap, time::Duration};

use domain::{
    decider::Decider as _,
    digest::Digest,
    ids::{RunnerId, SessionId},
    job::JobKind,
    runner::{Runner, RunnerEvent},
};
use tokio::{sync::oneshot, time::Instant};

use super::{job_table::Target, outbox::Outbox};

/// Reasons to end a long poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wake {
    Directive,
    /// Another poll of the session arrived, or the runner ended the session. The waiting poll
    /// returns 204.
    Released,
    Stop,
}

/// Program of an agent, as it described itself when it opened its session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    pub version: String,
    /// Digest of its policy file, or `None` if it has no policy.
    pub policy: Option<Digest>,
}

/// Session of an agent process.
#[derive(Debug)]
pub(crate) struct Session {
    /// Session id, which the agent process chose.
    pub id: SessionId,
    /// Number that grows with each session of a runner.
    pub generation: u64,
    /// Fencing token of this server from the database. Grows with each takeover and each restart.
    pub server_epoch: u64,
    /// Id of the agent process, or `None` if the session was opened at another server.
    pub process_id: Option<String>,
    /// Program of the agent, or `None` if the session was opened at another server.
    pub program: Option<Program>,
    /// Kinds of jobs that the session accepts.
    pub capabilities: Vec<JobKind>,
    /// True if the runner inserts sensitive values into manifests.
    pub secret_references: bool,
    /// Maximum number of concurrent jobs.
    pub slots: u32,
    /// Free slots that the runner last reported. Zero before its first poll.
    pub free: u32,
    /// True if the runner was instructed to accept no new jobs.
    pub drained: bool,
    /// Directives that the runner has not acknowledged.
    pub outbox: Outbox,
    /// Sender that ends the waiting long poll, or `None` if no long poll waits.
    pub long_poll: Option<oneshot::Sender<Wake>>,
}

/// Runner that called this server, or whose session this server took over.
#[derive(Debug)]
pub(crate) struct RunnerEntry {
    /// State folded from the runner's events.
    pub runner: Runner,
    /// Sequence of the stored event that was applied last, and index of its domain event that was
    /// applied last.
    pub sequence: (u64, usize),
    /// Last contact. A takeover sets it to a future time, so that the runner can reconnect.
    pub effective_contact: Instant,
    /// Last call to this server, or `None` if the runner has called only other servers since this
    /// server started.
    pub last_contact: Option<Instant>,
    /// Current session, if this server knows it.
    pub session: Option<Session>,
    /// Times of the recent suspicious openings of the runner's sessions on this server.
    pub recent_openings: Vec<Instant>,
    /// Fencing token for commits on behalf of the session, or `None` if this server does not own
    /// the session.
    pub epoch: Option<u64>,
}

/// Runners that called this server or whose sessions it took over, indexed by target.
#[derive(Debug, Default)]
pub(crate) struct RunnerTable {
    entries: HashMap<RunnerId, RunnerEntry>,
    by_target: HashMap<Target, Vec<RunnerId>>,
}

impl RunnerEntry {
    /// Target of the jobs that the runner may claim.
    pub(crate) fn target(&self) -> Target {
        let install = self.runner.identity.as_ref().and_then(|identity| identity.install);
        install.map_or(Target::Build, Target::Install)
    }

    /// Records a call of the runner to this server.
    pub(crate) fn record_contact(&mut self, now: Instant) {
        self.effective_contact = self.effective_contact.max(now);
        self.last_contact = Some(now);
    }

    /// Returns true if a long poll waits, or if less than `most` has passed since the last contact.
    pub(crate) fn is_connected(&self, now: Instant, most: Duration) -> bool {
        self.session.as_ref().is_some_and(Session::has_long_poll)
            || now.saturating_duration_since(self.effective_contact) < most
    }

    /// Returns true if the runner may get new work.
    pub(crate) fn takes_work(&self) -> bool {
        self.runner.takes_work()
    }
}

impl Session {
    /// Creates a session without capacity.
    pub(crate) fn new(id: SessionId, generation: u64, server_epoch: u64) -> Self {
        Session {
            id,
            generation,
            server_epoch,
            process_id: None,
            program: None,
            capabilities: Vec::new(),
            // A session that another server opened does not say so here. Its runner refuses such a
            // manifest if it does not know its type.
            secret_references: true,
            slots: 0,
            free: 0,
            drained: false,
            outbox: Outbox::new(id),
            long_poll: None,
        }
    }

    /// Wakes the long poll. Returns false if no long poll waits, or if its caller has disconnected.
    pub(crate) fn wake(&mut self, wake: Wake) -> bool {
        self.long_poll.take().is_some_and(|waiter| waiter.send(wake).is_ok())
    }

    /// Returns true if another agent process waits in this session's long poll. Two processes of
    /// the runner are then alive.
    pub(crate) fn has_other_process(&self, process_id: &str) -> bool {
        self.has_long_poll() && self.process_id.as_deref().is_some_and(|own| own != process_id)
    }

    /// Returns true if a long poll waits and its caller is still connected.
    pub(crate) fn has_long_poll(&self) -> bool {
        self.long_poll.as_ref().is_some_and(|waiter| !waiter.is_closed())
    }
}

impl RunnerTable {
    /// Adds a loaded runner, unless a newer state of it is known.
    pub(crate) fn meet(
        &mut self,
        id: RunnerId,
        runner: Runner,
        sequence: u64,
        contact: Instant,
    ) -> &mut RunnerEntry {
        let entry = self.entries.entry(id).or_insert_with(|| RunnerEntry {
            runner: Runner::default(),
            sequence: (0, usize::MAX),
            effective_contact: contact,
            last_contact: None,
            session: None,
            recent_openings: Vec::new(),
            epoch: None,
        });
        let sequence = (sequence, usize::MAX);
        if entry.sequence < sequence {
            (entry.runner, entry.sequence) = (runner, sequence);
            let of_target = self.by_target.entry(entry.target()).or_default();
            if !of_target.contains(&id) {
                of_target.push(id);
            }
        }
        entry
    }

    /// Applies a runner event, if the table has the runner and the event is new.
    pub(crate) fn apply(
        &mut self,
        id: RunnerId,
        sequence: (u64, usize),
        event: RunnerEvent,
    ) -> Option<&mut RunnerEntry> {
        let entry = self.entries.get_mut(&id).filter(|entry| entry.sequence < sequence)?;
        entry.sequence = sequence;
        entry.runner.evolve(event);
        Some(entry)
    }

    pub(crate) fn get(&self, id: RunnerId) -> Option<&RunnerEntry> {
        self.entries.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: RunnerId) -> Option<&mut RunnerEntry> {
        self.entries.get_mut(&id)
    }

    /// Runners of a target in this table.
    pub(crate) fn of(&self, target: Target) -> &[RunnerId] {
        self.by_target.get(&target).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (RunnerId, &RunnerEntry)> {
        self.entries.iter().map(|(id, entry)| (*id, entry))
    }

    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = (RunnerId, &mut RunnerEntry)> {
        self.entries.iter_mut().map(|(id, entry)| (*id, entry))
    }
}
