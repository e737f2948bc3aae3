//! Jobs, the units of work for runners.
use domain::ids::JobId;
use projections::views::jobs as views;
use schemas::control::{
    Page,
    jobs::{Job, JobsQuery},
};

use super::{filter, lookup::Lookup, pagination::PageRequest, show};
use crate::{extract::Caller, problem::Problem, state::App};

/// Lists jobs, newest first.
pub(crate) async fn list(
    app: &App,
    caller: &Caller,
    query: JobsQuery,
) -> Result<Page<Job>, Problem> {
    caller.authorize("GET", "/v1/jobs")?;
    let of = match &query.install {
        Some(name) => Some(filter::install(app, name).await?),
        None => None,
    };
    if let Some(run) = query.run {
        filter::run(app, run).await?;
    }
    filter::one_of(
        "state",
        query.state.as_deref(),
        &views::JobState::ALL.map(views::JobState::as_str),
    )?;
    let part = PageRequest::of(query.limit, query.cursor)?;
    let filter = views::Filter { install: of, run: query.run, build: None, state: query.state };
    let rows = views::page(&app.pool, &filter, part.after, part.query_limit()).await?;
    let (rows, next) = part.page(rows, |row| row.job);
    let (mut look, mut items) = (Lookup::new(app), Vec::new());
    look.for_jobs(&rows).await?;
    for row in &rows {
        items.push(show::job(&mut look, row).await?);
    }
    Ok(Page { items, next })
}

/// Returns a job with its attempts and the condition that it waits for.
pub(crate) async fn get(app: &App, caller: &Caller, job: JobId) -> Result<Job, Problem> {
    caller.authorize("GET", "/v1/jobs/{job}")?;
    let row = views::job(&app.pool, job).await?.ok_or_else(|| Problem::not_found(job))?;
    Ok(show::job(&mut Lookup::new(app), &row).await?)
}
