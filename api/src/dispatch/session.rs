//! The sessions of this server: who is there, what it can take, and its parked poll.
use std::{collections::HashMap, time::Duration};

use domain::{
    decider::Decider as _,
    ids::{InstallId, RunnerId, SessionId},
    job::JobKind,
    runner::{Runner, RunnerEvent},
};
use tokio::{sync::oneshot, time::Instant};

use super::{board::Target, outbox::Outbox};

/// Why a parked poll goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// There is something to say.
    News,
    /// The session polls again elsewhere: answer 204 here.
    Released,
    /// The server stops.
    Stop,
}

/// One life of an agent process.
#[derive(Debug)]
pub struct Session {
    /// Its name.
    pub id: SessionId,
    /// Grows with each session of a runner.
    pub generation: u64,
    /// The server's claim on it, from the database; grows when it changes hands.
    pub server_epoch: u64,
    /// The agent's process; `None`: the session was opened elsewhere.
    pub process_id: Option<String>,
    /// The kinds that it takes.
    pub capabilities: Vec<JobKind>,
    /// How many jobs at once.
    pub slots: u32,
    /// How many more, as it last said. Nobody knows before its first poll.
    pub free: u32,
    /// Whether it was told to take nothing new.
    pub drained: bool,
    /// What it has still to be told.
    pub outbox: Outbox,
    /// Its poll, if one is parked: all that a parked runner costs beside its connection.
    pub parked: Option<oneshot::Sender<Wake>>,
}

/// A runner that called this server.
#[derive(Debug)]
pub struct Known {
    /// The fold of its events.
    pub runner: Runner,
    /// The last of them, and which of its facts.
    pub sequence: (u64, usize),
    /// Its last call; ahead of now after a takeover.
    pub heard: Instant,
    /// Its last call to this server.
    pub last_contact: Option<Instant>,
    /// Its newest session, if it opened one.
    pub session: Option<Session>,
    /// When it opened its last sessions here.
    pub opened: Vec<Instant>,
    /// This server's claim on its session, for commits in its name; `None`: it is not this server's.
    pub owned: Option<u64>,
}

/// The runners, and where to find those of an install.
#[derive(Debug, Default)]
pub struct Roster {
    known: HashMap<RunnerId, Known>,
    by_target: HashMap<Target, Vec<RunnerId>>,
}

impl Known {
    /// Which jobs are for it.
    pub fn target(&self) -> Target {
        let install = self.runner.identity.as_ref().and_then(|identity| identity.install);
        install.map_or(Target::Build, Target::Install)
    }

    /// Takes in a call.
    pub fn hear(&mut self, now: Instant) {
        self.heard = self.heard.max(now);
        self.last_contact = Some(now);
    }

    /// Whether a poll is parked, or the last call is younger than this.
    pub fn is_present(&self, now: Instant, most: Duration) -> bool {
        self.session.as_ref().is_some_and(Session::is_parked)
            || now.saturating_duration_since(self.heard) < most
    }

    /// Whether it is to get new work.
    pub fn takes_work(&self) -> bool {
        self.runner.takes_work()
    }
}

impl Session {
    /// A session that has just begun.
    pub fn new(id: SessionId, generation: u64, server_epoch: u64) -> Self {
        Session {
            id,
            generation,
            server_epoch,
            process_id: None,
            capabilities: Vec::new(),
            slots: 0,
            free: 0,
            drained: false,
            outbox: Outbox::new(id),
            parked: None,
        }
    }

    /// Wake the parked poll, if there is one. False when nobody was there to hear it.
    pub fn wake(&mut self, wake: Wake) -> bool {
        self.parked.take().is_some_and(|parked| parked.send(wake).is_ok())
    }

    /// Whether its agent is another process than this one and waits here at this very moment: then both live.
    pub fn has_a_twin(&self, process_id: &str) -> bool {
        self.is_parked() && self.process_id.as_deref().is_some_and(|own| own != process_id)
    }

    /// Whether a poll is parked and its caller still there.
    pub fn is_parked(&self) -> bool {
        self.parked.as_ref().is_some_and(|parked| !parked.is_closed())
    }
}

impl Roster {
    /// A runner as it was loaded; a newer one that is known is left as it is.
    pub fn meet(
        &mut self,
        id: RunnerId,
        runner: Runner,
        sequence: u64,
        heard: Instant,
    ) -> &mut Known {
        let known = self.known.entry(id).or_insert_with(|| Known {
            runner: Runner::default(),
            sequence: (0, usize::MAX),
            heard,
            last_contact: None,
            session: None,
            opened: Vec::new(),
            owned: None,
        });
        let sequence = (sequence, usize::MAX);
        if known.sequence < sequence {
            (known.runner, known.sequence) = (runner, sequence);
            let of_target = self.by_target.entry(known.target()).or_default();
            if !of_target.contains(&id) {
                of_target.push(id);
            }
        }
        known
    }

    /// Take in an event of a runner, if it ever called here.
    pub fn apply(
        &mut self,
        id: RunnerId,
        sequence: (u64, usize),
        event: RunnerEvent,
    ) -> Option<&mut Known> {
        let known = self.known.get_mut(&id).filter(|known| known.sequence < sequence)?;
        known.sequence = sequence;
        known.runner.evolve(event);
        Some(known)
    }

    /// A runner that called here.
    pub fn get(&self, id: RunnerId) -> Option<&Known> {
        self.known.get(&id)
    }

    /// The same, to change.
    pub fn get_mut(&mut self, id: RunnerId) -> Option<&mut Known> {
        self.known.get_mut(&id)
    }

    /// The runners of a target that called here.
    pub fn of(&self, target: Target) -> &[RunnerId] {
        self.by_target.get(&target).map_or(&[], Vec::as_slice)
    }

    /// All runners that called here.
    pub fn all(&self) -> impl Iterator<Item = (RunnerId, &Known)> {
        self.known.iter().map(|(id, known)| (*id, known))
    }

    /// All runners, to change.
    pub fn all_mut(&mut self) -> impl Iterator<Item = (RunnerId, &mut Known)> {
        self.known.iter_mut().map(|(id, known)| (*id, known))
    }

    /// The runner of an install that called last, for "why is it waiting".
    pub fn of_install(&self, install: InstallId) -> Option<RunnerId> {
        let runners = self.of(Target::Install(install)).iter().copied();
        runners.max_by_key(|id| self.known.get(id).map(|known| known.heard))
    }
}
