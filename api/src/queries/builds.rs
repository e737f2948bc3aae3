//! Builds of artifacts from sources.
use domain::ids::BuildId;
use projections::views::builds as views;
use schemas::control::{
    Page,
    builds::{Build, BuildsQuery},
};

use super::{filter, lookup::Lookup, pagination::PageRequest, show};
use crate::{extract::Caller, problem::Problem, state::App};

/// Lists builds, newest first.
pub(crate) async fn list(
    app: &App,
    caller: &Caller,
    query: BuildsQuery,
) -> Result<Page<Build>, Problem> {
    caller.authorize("GET", "/v1/builds")?;
    let of = match &query.app {
        Some(name) => Some(filter::app(app, name).await?),
        None => None,
    };
    filter::one_of("state", query.state.as_deref(), &views::STATES)?;
    let part = PageRequest::of(query.limit, query.cursor)?;
    let filter = views::Filter { app: of, component: None, state: query.state };
    let rows = views::page(&app.pool, &filter, part.after, part.query_limit()).await?;
    let (rows, next) = part.page(rows, |row| row.build);
    let (mut look, mut items) = (Lookup::new(app), Vec::new());
    look.for_builds(&rows).await?;
    for row in &rows {
        items.push(show::build(&mut look, row).await?);
    }
    Ok(Page { items, next })
}

pub(crate) async fn get(app: &App, caller: &Caller, build: BuildId) -> Result<Build, Problem> {
    caller.authorize("GET", "/v1/builds/{build}")?;
    let row = views::build(&app.pool, build).await?;
    let row = row.ok_or_else(|| Problem::not_found(build))?;
    let mut look = Lookup::new(app);
    look.for_builds(std::slice::from_ref(&row)).await?;
    Ok(show::build(&mut look, &row).await?)
}
