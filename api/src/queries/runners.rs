//! Runners and their journal heads.
use domain::ids::RunnerId;
use projections::views::runners as views;
use schemas::control::{
    Page, PageQuery,
    runners::{JournalHeads, Runner},
};

use super::{lookup::Lookup, pagination::PageRequest, show};
use crate::{extract::Caller, problem::Problem, state::App, usecases::journal_heads as journals};

/// Lists runners in the order of their enrolment.
pub(crate) async fn list(
    app: &App,
    caller: &Caller,
    query: PageQuery,
) -> Result<Page<Runner>, Problem> {
    caller.authorize("GET", "/v1/runners")?;
    let part = PageRequest::of(query.limit, query.cursor)?;
    let rows = views::page(&app.pool, part.after, part.query_limit()).await?;
    let (rows, next) = part.page(rows, |row| row.runner);
    let (mut look, mut items) = (Lookup::new(app), Vec::new());
    look.for_runners(&rows).await?;
    for row in &rows {
        items.extend(show::runner(&mut look, row).await?);
    }
    Ok(Page { items, next })
}

pub(crate) async fn get(app: &App, caller: &Caller, runner: RunnerId) -> Result<Runner, Problem> {
    caller.authorize("GET", "/v1/runners/{runner}")?;
    let missing = || Problem::not_found(runner);
    let row = views::runner(&app.pool, runner).await?.ok_or_else(missing)?;
    show::runner(&mut Lookup::new(app), &row).await?.ok_or_else(missing)
}

/// Returns the newest signed heads of a runner's journal.
pub(crate) async fn journal_heads(
    app: &App,
    caller: &Caller,
    runner: RunnerId,
) -> Result<JournalHeads, Problem> {
    caller.authorize("GET", "/v1/runners/{runner}/journal-heads")?;
    if views::runner(&app.pool, runner).await?.is_none() {
        return Err(Problem::not_found(runner));
    }
    Ok(JournalHeads { heads: journals::heads(app, runner).await? })
}
