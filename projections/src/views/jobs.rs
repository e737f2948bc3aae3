//! Jobs, with their executions and results.
use domain::{
    decider::Decider,
    ids::{BuildId, InstallId, JobId, RunId, RunnerId},
    job::{Job, JobEvent},
};
use sqlx::PgExecutor;

use crate::{
    Cell, Class, DomainEvent, Projection, RecordedEvent, Type,
    table::{Where, get, select},
};

mod row;
pub use row::{Attempt, Failure, JobState, ResolutionRecord, Row};

#[derive(Debug)]
pub struct Jobs;

impl Projection for Jobs {
    const NAME: &'static str = "jobs";
    const VERSION: i32 = 1;
    const CLASS: Class = Class::Asynchronous;
    const AGGREGATES: &'static [&'static str] = &[Job::NAME];
    const COLUMNS: &'static [(&'static str, Type)] = &[
        ("kind", Type::Text),
        ("state", Type::Text),
        ("finished", Type::Boolean),
        ("install", Type::Text),
        ("run", Type::Text),
        ("build", Type::Text),
        ("runner", Type::Text),
    ];
    type Row = Row;

    fn keys(event: &RecordedEvent) -> Vec<String> {
        let DomainEvent::Job(job, _) = &event.domain_event else { return vec![] };
        vec![job.to_string()]
    }

    fn apply(_key: &str, row: Option<Row>, event: &RecordedEvent) -> Option<Row> {
        let DomainEvent::Job(job, domain_event) = &event.domain_event else { return row };
        let mut row = match (row, domain_event) {
            (_, JobEvent::Queued(work)) => Row::queued(*job, work.clone(), event),
            (Some(row), _) => row,
            (None, _) => return None,
        };
        row.take(domain_event, event);
        row.position = event.position;
        Some(row)
    }

    fn cells(row: &Row) -> Vec<Cell> {
        vec![
            Cell::text(row.work.kind.as_str()),
            Cell::text(row.state.as_str()),
            Cell::Boolean(row.state.is_over()),
            Cell::maybe(row.install()),
            Cell::maybe(row.run()),
            Cell::maybe(row.build()),
            Cell::maybe(row.attempts.last().map(|last| last.runner)),
        ]
    }
}

/// Returns the row of a job, if the job exists.
///
/// # Errors
/// If a database operation fails.
pub async fn job(executor: impl PgExecutor<'_>, job: JobId) -> Result<Option<Row>, sqlx::Error> {
    get::<Jobs>(executor, job).await
}

/// Returns the jobs of a run, oldest first.
///
/// # Errors
/// If a database operation fails.
pub async fn of_run(executor: impl PgExecutor<'_>, run: RunId) -> Result<Vec<Row>, sqlx::Error> {
    select::<Jobs>(executor, "where run = $1 order by key", vec![Cell::text(run)]).await
}

/// Returns the unfinished jobs that these runners have claimed.
///
/// # Errors
/// If a database operation fails.
pub async fn held_by(
    executor: impl PgExecutor<'_>,
    runners: &[RunnerId],
) -> Result<Vec<Row>, sqlx::Error> {
    let rest = "where runner = any(string_to_array($1, ' ')) and not finished and state <> 'queued' \
                order by key";
    let runners: Vec<_> = runners.iter().map(RunnerId::to_string).collect();
    select::<Jobs>(executor, rest, vec![Cell::text(runners.join(" "))]).await
}

/// Criteria for a list of jobs.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    pub install: Option<InstallId>,
    pub run: Option<RunId>,
    pub build: Option<BuildId>,
    pub state: Option<String>,
}

/// Returns the jobs before `before`, newest first.
///
/// # Errors
/// If a database operation fails.
pub async fn page(
    executor: impl PgExecutor<'_>,
    filter: &Filter,
    before: Option<JobId>,
    limit: u32,
) -> Result<Vec<Row>, sqlx::Error> {
    let Filter { install, run, build, state } = filter;
    let filtered = Where::default()
        .and("install = ?", *install)
        .and("run = ?", *run)
        .and("build = ?", *build)
        .and("state = ?", state.as_ref())
        .and("key < ?", before);
    filtered.first::<Jobs>(executor, "key desc", limit).await
}
