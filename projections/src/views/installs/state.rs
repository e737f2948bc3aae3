//! State of an install, as a function of its components, its open runs and its last run.
//!
//! `docs/operations.md` has the same table; a test compares the names.
use domain::{
    install::Install,
    run::{Outcome, RunKind},
};

use super::LastRun;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// No runner has enrolled.
    WaitingForRunner,
    /// A provision or reprovision is open.
    Provisioning,
    /// A deploy, input update, upgrade or rollback is open.
    Updating,
    /// A teardown is open.
    TearingDown,
    /// A deprovision is open.
    Deprovisioning,
    /// The last run failed.
    Failed,
    /// An apply of a component or the sandbox did not finish, or the last run was cancelled, denied
    /// or expired after it had changed something.
    Incomplete,
    /// A component or the sandbox is deployed, and nothing is incomplete.
    Active,
    /// A teardown destroyed every component.
    TornDown,
    /// No component was deployed yet.
    Empty,
    /// A deprovision destroyed the components and the sandbox.
    Deprovisioned,
}

impl State {
    /// States in the order of their precedence.
    pub const ALL: [State; 11] = [
        State::Deprovisioned,
        State::WaitingForRunner,
        State::Provisioning,
        State::Updating,
        State::TearingDown,
        State::Deprovisioning,
        State::Failed,
        State::Incomplete,
        State::TornDown,
        State::Active,
        State::Empty,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            State::WaitingForRunner => "waiting_for_runner",
            State::Provisioning => "provisioning",
            State::Updating => "updating",
            State::TearingDown => "tearing_down",
            State::Deprovisioning => "deprovisioning",
            State::Failed => "failed",
            State::Incomplete => "incomplete",
            State::Active => "active",
            State::TornDown => "torn_down",
            State::Empty => "empty",
            State::Deprovisioned => "deprovisioned",
        }
    }

    /// State of an install, from its aggregate, its last run, and whether a teardown destroyed a
    /// component.
    ///
    /// An open run has precedence over the effect of the last run, which has precedence over the
    /// deployed components.
    pub fn of(install: &Install, last_run: Option<&LastRun>, is_torn_down: bool) -> State {
        if install.deprovisioned {
            return State::Deprovisioned;
        }
        if install.stack.is_none() {
            return State::WaitingForRunner;
        }
        if let Some(state) = install.runs.values().find_map(|run| open(run.kind)) {
            return state;
        }
        let left = last_run.filter(|last| last.superseded_at.is_none()).map(|last| last.outcome);
        let is_whole = install.sandbox.iter().all(|has| has.fingerprint.is_some())
            && install.components.values().all(|has| has.fingerprint.is_some());
        let is_there = install.sandbox.is_some() || !install.components.is_empty();
        match left {
            Some(Outcome::Failed) => State::Failed,
            // Only a run that changed something becomes the last run with one of these outcomes.
            Some(Outcome::Cancelled | Outcome::Denied | Outcome::Expired) => State::Incomplete,
            Some(Outcome::Succeeded) | None if !is_whole => State::Incomplete,
            Some(Outcome::Succeeded) | None if install.components.is_empty() && is_torn_down => {
                State::TornDown
            }
            Some(Outcome::Succeeded) | None if is_there => State::Active,
            Some(Outcome::Succeeded) | None => State::Empty,
        }
    }
}

/// State of an install while a run of this kind is open. An action and a drift check change no component.
fn open(kind: RunKind) -> Option<State> {
    match kind {
        RunKind::Provision | RunKind::Reprovision => Some(State::Provisioning),
        RunKind::Deploy | RunKind::InputUpdate | RunKind::Upgrade | RunKind::Rollback => {
            Some(State::Updating)
        }
        RunKind::Teardown => Some(State::TearingDown),
        RunKind::Deprovision => Some(State::Deprovisioning),
        RunKind::Action | RunKind::Drift => None,
    }
}
