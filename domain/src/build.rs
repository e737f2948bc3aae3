//! A build is one attempt to turn a component's source into an artifact. At most one job does the
//! work.
//!
//! ```text
//! (none) ─request─▶ requested ─queue job──▶ building ─▶ succeeded | failed
//!                       ├───────────── fail ──────────────────────────┘
//!                       └───────── reuse artifact ───▶ succeeded
//! ```
use crate::decider::{Decider, Timestamp};

mod command;
mod error;
mod event;
mod state;
#[cfg(test)]
mod tests;
pub use command::BuildCommand;
pub use error::BuildError;
pub use event::BuildEvent;
pub use state::{Build, BuildFailure, BuildRequest, BuildSource, State};

impl Decider for Build {
    const NAME: &'static str = "build";
    type Command = BuildCommand;
    type Event = BuildEvent;
    type Error = BuildError;

    fn decide(
        &self,
        command: BuildCommand,
        _now: Timestamp,
    ) -> Result<Vec<BuildEvent>, BuildError> {
        use {BuildCommand::*, State::*};
        match command {
            Request(request) => match &self.request {
                None => Ok(vec![BuildEvent::Requested(request)]),
                Some(existing) if *existing == request => Ok(vec![]),
                Some(_) => Err(BuildError::AlreadyRequested),
            },
            QueueJob { job, commit } => match &self.state {
                Requested => Ok(vec![BuildEvent::JobQueued { job, commit }]),
                Building { job: existing } if *existing == job => Ok(vec![]),
                Building { job } => Err(BuildError::JobAlreadyQueued { job: *job }),
                NotCreated | Succeeded { .. } | Failed { .. } => Err(self.rejection()),
            },
            ReuseArtifact { build, commit, artifact } => match &self.state {
                Requested => Ok(vec![BuildEvent::ArtifactReused { build, commit, artifact }]),
                Succeeded { artifact: existing } if *existing == artifact => Ok(vec![]),
                NotCreated | Building { .. } | Succeeded { .. } | Failed { .. } => {
                    Err(self.rejection())
                }
            },
            Succeed { artifact } => match &self.state {
                Building { job } => Ok(vec![BuildEvent::Succeeded { job: *job, artifact }]),
                Succeeded { artifact: existing } if *existing == artifact => Ok(vec![]),
                NotCreated | Requested | Succeeded { .. } | Failed { .. } => Err(self.rejection()),
            },
            Fail { reason, detail } => match &self.state {
                Requested => Ok(vec![BuildEvent::Failed { job: None, reason, detail }]),
                Building { job } => {
                    Ok(vec![BuildEvent::Failed { job: Some(*job), reason, detail }])
                }
                Failed { .. } => Ok(vec![]),
                NotCreated | Succeeded { .. } => Err(self.rejection()),
            },
            AddWaiter { run } => match &self.state {
                Requested | Building { .. } if self.waiters.contains(&run) => Ok(vec![]),
                Requested | Building { .. } => Ok(vec![BuildEvent::WaiterAdded { run }]),
                NotCreated | Succeeded { .. } | Failed { .. } => Err(self.rejection()),
            },
        }
    }

    fn evolve(&mut self, event: BuildEvent) {
        match event {
            BuildEvent::Requested(request) => {
                self.request = Some(request);
                self.state = State::Requested;
            }
            BuildEvent::JobQueued { job, commit } => {
                self.state = State::Building { job };
                self.commit = commit;
            }
            BuildEvent::ArtifactReused { commit, artifact, .. } => {
                self.state = State::Succeeded { artifact };
                self.commit = Some(commit);
            }
            BuildEvent::Succeeded { artifact, .. } => self.state = State::Succeeded { artifact },
            BuildEvent::Failed { reason, detail, .. } => {
                self.state = State::Failed { reason, detail };
            }
            BuildEvent::WaiterAdded { run } => self.waiters.push(run),
        }
    }
}
