//! Jobs: what was to be done, every execution of it, and what came of it.
use domain::{
    decider::Decider,
    ids::{BuildId, InstallId, JobId, RunId, RunnerId},
    job::{Job, JobEvent},
};
use sqlx::PgExecutor;

use crate::{
    Cell, Class, Fact, Projection, Recorded, Type,
    table::{Where, get, select},
};

mod row;
pub use row::{Attempt, Failure, JobState, ResolutionRecord, Row};

/// The view.
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
        ("over", Type::Boolean),
        ("install", Type::Text),
        ("run", Type::Text),
        ("build", Type::Text),
        ("runner", Type::Text),
    ];
    type Row = Row;

    fn keys(event: &Recorded) -> Vec<String> {
        let Fact::Job(job, _) = &event.fact else { return vec![] };
        vec![job.to_string()]
    }

    fn apply(_key: &str, row: Option<Row>, event: &Recorded) -> Option<Row> {
        let Fact::Job(job, fact) = &event.fact else { return row };
        let mut row = match (row, fact) {
            (_, JobEvent::Queued(work)) => Row::queued(*job, work.clone(), event),
            (Some(row), _) => row,
            (None, _) => return None,
        };
        row.take(fact, event);
        row.position = event.position;
        Some(row)
    }

    fn cells(row: &Row) -> Vec<Cell> {
        vec![
            Cell::text(row.work.kind.as_str()),
            Cell::text(row.state.as_str()),
            Cell::Boolean(row.state.is_over()),
            Cell::maybe(row.install()),
            Cell::maybe(row.step().map(|(run, _)| run)),
            Cell::maybe(row.build()),
            Cell::maybe(row.attempts.last().map(|last| last.runner)),
        ]
    }
}

/// One job.
///
/// # Errors
/// If the database does not answer.
pub async fn job(executor: impl PgExecutor<'_>, job: JobId) -> Result<Option<Row>, sqlx::Error> {
    get::<Jobs>(executor, job).await
}

/// The jobs of a run, the first one first.
///
/// # Errors
/// If the database does not answer.
pub async fn of_run(executor: impl PgExecutor<'_>, run: RunId) -> Result<Vec<Row>, sqlx::Error> {
    select::<Jobs>(executor, "where run = $1 order by key", vec![Cell::text(run)]).await
}

/// Jobs that these runners hold now.
///
/// # Errors
/// If the database does not answer.
pub async fn held_by(
    executor: impl PgExecutor<'_>,
    runners: &[RunnerId],
) -> Result<Vec<Row>, sqlx::Error> {
    let rest = "where runner = any(string_to_array($1, ' ')) and not over and state <> 'queued' \
                order by key";
    let runners: Vec<_> = runners.iter().map(RunnerId::to_string).collect();
    select::<Jobs>(executor, rest, vec![Cell::text(runners.join(" "))]).await
}

/// Which jobs.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// For one install.
    pub install: Option<InstallId>,
    /// For one run.
    pub run: Option<RunId>,
    /// For one build.
    pub build: Option<BuildId>,
    /// In one state, in one word.
    pub state: Option<String>,
}

/// Jobs before one, the newest first.
///
/// # Errors
/// If the database does not answer.
pub async fn page(
    executor: impl PgExecutor<'_>,
    filter: &Filter,
    before: Option<JobId>,
    limit: u32,
) -> Result<Vec<Row>, sqlx::Error> {
    let Filter { install, run, build, state } = filter;
    let asked = Where::default()
        .and("install = ?", *install)
        .and("run = ?", *run)
        .and("build = ?", *build)
        .and("state = ?", state.as_ref())
        .and("key < ?", before);
    asked.first::<Jobs>(executor, "key desc", limit).await
}
