//! An event as folds see it: read once, for all of them.
use std::str::FromStr;

use domain::{
    access::{Access, AccessEvent},
    actor::Actor,
    app::{App, AppEvent},
    build::{Build, BuildEvent},
    component::{Component, ComponentEvent},
    decider::{Decider, Event, Timestamp},
    enrolment::{Enrolment, EnrolmentEvent},
    ids::{AppId, BuildId, ComponentId, InstallId, JobId, PrincipalId, RunId, RunnerId, TokenId},
    install::{Install, InstallEvent},
    job::{Job, JobEvent},
    name::{Name, NameEvent},
    run::{Run, RunEvent},
    runner::{Runner, RunnerEvent},
};
use event_log::{LogError, Stored};
use serde::Deserialize;
use sqlx::{PgConnection, Row};

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
        Raw {
            position: stored.position,
            sequence: stored.sequence,
            at: stored.recorded_at,
            aggregate: &stored.stream.aggregate_type,
            id: &stored.stream.aggregate_id,
            event_type: &stored.event_type,
            payload: &stored.payload,
            metadata: &stored.metadata,
        }
        .read()
    }

    /// What kind of aggregate it happened to.
    pub fn aggregate(&self) -> &'static str {
        match &self.fact {
            Fact::Access(..) => Access::NAME,
            Fact::App(..) => App::NAME,
            Fact::Build(..) => Build::NAME,
            Fact::Component(..) => Component::NAME,
            Fact::Enrolment(..) => Enrolment::NAME,
            Fact::Install(..) => Install::NAME,
            Fact::Job(..) => Job::NAME,
            Fact::Name(..) => Name::NAME,
            Fact::Run(..) => Run::NAME,
            Fact::Runner(..) => Runner::NAME,
        }
    }
}

/// The events of these kinds of aggregates after a position and not after another, without what only proofs need.
/// Positions are dense, so a range of them is a page.
pub(crate) async fn page(
    connection: &mut PgConnection,
    (after, last): (u64, u64),
    aggregates: &[&str],
) -> Result<Vec<Recorded>, LogError> {
    let rows = sqlx::query(
        "select position, sequence, recorded_at, aggregate_type, aggregate_id, event_type, \
         payload::text, metadata::text from log_event \
         where position > $1 and position <= $2 and aggregate_type = any($3) order by position",
    )
    .bind(i64::try_from(after).unwrap_or(i64::MAX))
    .bind(i64::try_from(last).unwrap_or(i64::MAX))
    .bind(aggregates)
    .fetch_all(connection)
    .await?;
    let number = |value: i64| u64::try_from(value).unwrap_or(0);
    rows.iter()
        .map(|row| {
            Raw {
                position: number(row.try_get(0)?),
                sequence: number(row.try_get(1)?),
                at: row.try_get(2)?,
                aggregate: row.try_get(3)?,
                id: row.try_get(4)?,
                event_type: row.try_get(5)?,
                payload: row.try_get(6)?,
                metadata: row.try_get(7)?,
            }
            .read()
        })
        .collect()
}

struct Raw<'a> {
    position: u64,
    sequence: u64,
    at: Timestamp,
    aggregate: &'a str,
    id: &'a str,
    event_type: &'a str,
    payload: &'a str,
    metadata: &'a str,
}

/// All that a fold reads of the metadata.
#[derive(Deserialize)]
struct ByWhom {
    actor: Actor,
}

impl Raw<'_> {
    fn read(self) -> Result<Recorded, LogError> {
        let fact = match self.aggregate {
            Access::NAME => Fact::Access(self.id()?, self.decode()?),
            App::NAME => Fact::App(self.id()?, self.decode()?),
            Build::NAME => Fact::Build(self.id()?, self.decode()?),
            Component::NAME => Fact::Component(self.id()?, self.decode()?),
            Enrolment::NAME => Fact::Enrolment(self.id()?, self.decode()?),
            Install::NAME => Fact::Install(self.id()?, self.decode()?),
            Job::NAME => Fact::Job(self.id()?, self.decode()?),
            Name::NAME => Fact::Name(self.id.into(), self.decode()?),
            Run::NAME => Fact::Run(self.id()?, self.decode()?),
            Runner::NAME => Fact::Runner(self.id()?, self.decode()?),
            other => return Err(self.damaged(format!("nothing is known of {other}"))),
        };
        let by: ByWhom =
            serde_json::from_str(self.metadata).map_err(|error| self.damaged(error.to_string()))?;
        let Raw { position, sequence, at, .. } = self;
        Ok(Recorded { position, sequence, at, actor: by.actor, fact })
    }

    fn decode<E: Event>(&self) -> Result<E, LogError> {
        serde_json::from_str(self.payload)
            .map_err(|error| self.damaged(format!("{}: {error}", self.event_type)))
    }

    fn id<T: FromStr>(&self) -> Result<T, LogError>
    where
        T::Err: std::fmt::Display,
    {
        self.id.parse().map_err(|error: T::Err| self.damaged(error.to_string()))
    }

    fn damaged(&self, what: String) -> LogError {
        LogError::Damaged { position: self.position, what }
    }
}
