//! An event as folds see it: read once, for all of them.
use std::str::FromStr;

use domain::{
    access::{Access, AccessEvent},
    actor::Actor,
    app::{App, AppEvent},
    build::{Build, BuildEvent},
    component::{Component, ComponentEvent},
    decider::{Decider, Timestamp},
    enrolment::{Enrolment, EnrolmentEvent},
    ids::{AppId, BuildId, ComponentId, InstallId, JobId, PrincipalId, RunId, RunnerId, TokenId},
    install::{Install, InstallEvent},
    job::{Job, JobEvent},
    name::{Name, NameEvent},
    run::{Run, RunEvent},
    runner::{Runner, RunnerEvent},
};
use event_log::{LogError, Stored};

/// Something that happened, and to whom.
#[derive(Debug, Clone, PartialEq)]
pub enum Fact {
    /// To what a principal may do.
    Access(PrincipalId, AccessEvent),
    /// To an app.
    App(AppId, AppEvent),
    /// To a build.
    Build(BuildId, BuildEvent),
    /// To a component.
    Component(ComponentId, ComponentEvent),
    /// To an enrolment token.
    Enrolment(TokenId, EnrolmentEvent),
    /// To an install.
    Install(InstallId, InstallEvent),
    /// To a job.
    Job(JobId, JobEvent),
    /// To a name.
    Name(String, NameEvent),
    /// To a run.
    Run(RunId, RunEvent),
    /// To a runner.
    Runner(RunnerId, RunnerEvent),
}

/// A fact, and when and by whom it was recorded.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    /// The place in the whole log.
    pub position: u64,
    /// The place in its stream; 1 first.
    pub sequence: u64,
    /// When.
    pub at: Timestamp,
    /// Who asked.
    pub actor: Actor,
    /// What happened.
    pub fact: Fact,
}

impl Recorded {
    /// Read an event of the log.
    ///
    /// # Errors
    /// [`LogError::Damaged`] if it is none that this program knows.
    pub fn read(stored: &Stored) -> Result<Recorded, LogError> {
        let fact = match &*stored.stream.aggregate_type {
            Access::NAME => Fact::Access(id(stored)?, stored.decode()?),
            App::NAME => Fact::App(id(stored)?, stored.decode()?),
            Build::NAME => Fact::Build(id(stored)?, stored.decode()?),
            Component::NAME => Fact::Component(id(stored)?, stored.decode()?),
            Enrolment::NAME => Fact::Enrolment(id(stored)?, stored.decode()?),
            Install::NAME => Fact::Install(id(stored)?, stored.decode()?),
            Job::NAME => Fact::Job(id(stored)?, stored.decode()?),
            Name::NAME => Fact::Name(stored.stream.aggregate_id.clone(), stored.decode()?),
            Run::NAME => Fact::Run(id(stored)?, stored.decode()?),
            Runner::NAME => Fact::Runner(id(stored)?, stored.decode()?),
            other => return Err(damaged(stored, format!("nothing is known of {other}"))),
        };
        Ok(Recorded {
            position: stored.position,
            sequence: stored.sequence,
            at: stored.recorded_at,
            actor: stored.meta()?.actor,
            fact,
        })
    }
}

fn id<T: FromStr>(stored: &Stored) -> Result<T, LogError>
where
    T::Err: std::fmt::Display,
{
    stored.stream.aggregate_id.parse().map_err(|error: T::Err| damaged(stored, error.to_string()))
}

fn damaged(stored: &Stored, what: String) -> LogError {
    LogError::Damaged { position: stored.position, what }
}
