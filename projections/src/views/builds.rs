//! Builds of components, with their results.
use domain::{
    actor::Actor,
    build::{Build, BuildEvent, BuildRequest, BuildSource, State},
    decider::{Decider, Timestamp},
    ids::{AppId, BuildId, ComponentId, JobId, RunId},
};
use serde::{Deserialize, Serialize};
use sqlx::PgExecutor;

use crate::{
    Cell, Class, DomainEvent, Projection, RecordedEvent, Type,
    table::{Where, get},
};

/// States that a [`Filter`] selects.
pub const STATES: [&str; 6] =
    ["requested", "resolving", "queued", "running", "succeeded", "failed"];

#[derive(Debug)]
pub struct Builds;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub build: BuildId,
    pub order: BuildRequest,
    pub state: State,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// Commit of the git source, after it was resolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Earlier build whose artifact this build uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reused_build: Option<BuildId>,
    /// Runs that waited for the artifact.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiters: Vec<RunId>,
    pub requested_by: Actor,
    pub requested_at: Timestamp,
    /// Time at which the build finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// Position of the last event that changed the row.
    pub position: u64,
}

impl Row {
    /// Name of the state: `requested`, `resolving`, `queued`, `succeeded` or `failed`.
    pub fn state_name(&self) -> &'static str {
        match self.state {
            State::NotCreated | State::Requested => match self.order.source {
                BuildSource::Bundle { .. } | BuildSource::Image(_) => "requested",
                BuildSource::Git(_) => "resolving",
            },
            State::Building { .. } => "queued",
            State::Succeeded { .. } => "succeeded",
            State::Failed { .. } => "failed",
        }
    }
}

impl Projection for Builds {
    const NAME: &'static str = "builds";
    const VERSION: i32 = 2;
    const CLASS: Class = Class::Asynchronous;
    const AGGREGATES: &'static [&'static str] = &[Build::NAME];
    const COLUMNS: &'static [(&'static str, Type)] = &[
        ("app", Type::Text),
        ("component", Type::Text),
        ("source", Type::Text),
        ("job", Type::Text),
        ("state", Type::Text),
    ];
    type Row = Row;

    fn keys(event: &RecordedEvent) -> Vec<String> {
        let DomainEvent::Build(build, _) = &event.domain_event else { return vec![] };
        vec![build.to_string()]
    }

    fn apply(_key: &str, row: Option<Row>, event: &RecordedEvent) -> Option<Row> {
        let DomainEvent::Build(build, domain_event) = &event.domain_event else { return row };
        let position = event.position;
        let ended = |row: Option<Row>, state| {
            row.map(|row| Row { state, ended_at: Some(event.at), position, ..row })
        };
        match domain_event {
            BuildEvent::Requested(order) => Some(Row {
                build: *build,
                order: order.clone(),
                state: State::Requested,
                job: None,
                commit: None,
                reused_build: None,
                waiters: vec![],
                requested_by: event.actor.clone(),
                requested_at: event.at,
                ended_at: None,
                position,
            }),
            BuildEvent::WaiterAdded { run } => row.map(|mut row| {
                row.waiters.push(*run);
                Row { position, ..row }
            }),
            BuildEvent::JobQueued { job, commit } => {
                let (state, commit) = (State::Building { job: *job }, commit.clone());
                row.map(|row| Row { state, job: Some(*job), commit, position, ..row })
            }
            BuildEvent::ArtifactReused { build, commit, artifact } => {
                let row = ended(row, State::Succeeded { artifact: artifact.clone() });
                let commit = Some(commit.clone());
                row.map(|row| Row { commit, reused_build: Some(*build), ..row })
            }
            BuildEvent::Succeeded { artifact, .. } => {
                ended(row, State::Succeeded { artifact: artifact.clone() })
            }
            BuildEvent::Failed { reason, detail, .. } => {
                ended(row, State::Failed { reason: *reason, detail: detail.clone() })
            }
        }
    }

    fn cells(row: &Row) -> Vec<Cell> {
        vec![
            Cell::text(row.order.app),
            Cell::text(row.order.component),
            match &row.order.source {
                BuildSource::Bundle { digest } => Cell::text(digest),
                BuildSource::Git(git) => Cell::text(&git.repo),
                BuildSource::Image(image) => Cell::text(&image.reference),
            },
            Cell::maybe(row.job),
            Cell::text(row.state_name()),
        ]
    }
}

/// Returns the row of a build, if the build exists.
///
/// # Errors
/// If a database operation fails.
pub async fn build(
    executor: impl PgExecutor<'_>,
    build: BuildId,
) -> Result<Option<Row>, sqlx::Error> {
    get::<Builds>(executor, build).await
}

/// Criteria for a list of builds.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    pub app: Option<AppId>,
    pub component: Option<ComponentId>,
    /// Name of a state. `running` selects queued builds whose job a runner has claimed.
    pub state: Option<String>,
}

/// Returns the builds before `before`, newest first.
///
/// # Errors
/// If a database operation fails.
pub async fn page(
    executor: impl PgExecutor<'_>,
    filter: &Filter,
    before: Option<BuildId>,
    limit: u32,
) -> Result<Vec<Row>, sqlx::Error> {
    // For a queued build, only the row of its job shows whether it runs.
    const RUNS: &str = "exists (select from projection_jobs j where j.key = job and not j.finished and j.state <> 'queued')";
    let Filter { app, component, state } = filter;
    let filtered = Where::default().and("app = ?", *app).and("component = ?", *component);
    let filtered = match state.as_deref() {
        Some("running") => filtered.holds("state = 'queued'").holds(RUNS),
        Some("queued") => filtered.holds("state = 'queued'").holds(&format!("not {RUNS}")),
        state => filtered.and("state = ?", state),
    };
    filtered.and("key < ?", before).first::<Builds>(executor, "key desc", limit).await
}
