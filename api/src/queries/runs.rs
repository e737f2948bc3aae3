//! Runs, their steps and their plans.
use domain::{
    digest::Digest,
    ids::{RunId, StepId},
};
use event_log::encryption::{
    data::{self, DataId, Read},
    shred,
};
use projections::views::runs as views;
use schemas::{
    control::{
        Page,
        runs::{DetailsState, Run, RunSummary, RunsQuery, StepPlanDetails},
    },
    runner::SaltedDetails,
};
use serde_json::Value;

use super::{filter, lookup::Lookup, pagination::PageRequest, show};
use crate::{
    extract::Caller,
    problem::{Code, Problem},
    state::App,
};

/// Lists runs, newest first.
pub(crate) async fn list(
    app: &App,
    caller: &Caller,
    query: RunsQuery,
) -> Result<Page<RunSummary>, Problem> {
    caller.authorize("GET", "/v1/runs")?;
    let of = match &query.install {
        Some(name) => Some(filter::install(app, name).await?),
        None => None,
    };
    filter::one_of("state", query.state.as_deref(), &views::STATES)?;
    let (part, state) = (PageRequest::of(query.limit, query.cursor)?, query.state.as_deref());
    let rows = views::page(&app.pool, of, state, part.after, part.query_limit()).await?;
    let (rows, next) = part.page(rows, |row| row.run);
    let (mut look, mut items) = (Lookup::new(app), Vec::new());
    look.for_runs(&rows).await?;
    for row in &rows {
        items.extend(show::summary(&mut look, row).await?);
    }
    Ok(Page { items, next })
}

/// Returns a run with its steps and the condition that each step waits for.
pub(crate) async fn get(app: &App, caller: &Caller, run: RunId) -> Result<Run, Problem> {
    caller.authorize("GET", "/v1/runs/{run}")?;
    let row = views::run(&app.pool, run).await?.ok_or_else(|| Problem::not_found(run))?;
    let shown = show::run(&mut Lookup::new(app), &row, app.projections.position()).await?;
    shown.ok_or_else(|| Problem::not_found(run))
}

/// Returns the redacted summary of a step's newest plan.
pub(crate) async fn plan(
    app: &App,
    caller: &Caller,
    (run, step): (RunId, StepId),
) -> Result<Value, Problem> {
    caller.authorize("GET", "/v1/runs/{run}/steps/{step}/plan")?;
    let row = views::run(&app.pool, run).await?.ok_or_else(|| Problem::not_found(run))?;
    let plan = row.plans.get(&step);
    let digest = &plan.ok_or_else(|| Problem::not_found(format!("a plan of {step}")))?.summary;
    match event_log::blob::get(&app.pool, digest).await? {
        Some(bytes) => serde_json::from_slice(&bytes).map_err(Problem::internal),
        None => Err(missing_summary(app, &row, digest).await?),
    }
}

/// Returns the problem of a summary that does not exist: it was erased with the data of its install.
async fn missing_summary(
    app: &App,
    row: &views::Row,
    digest: &Digest,
) -> Result<Problem, sqlx::Error> {
    let install = row.install().map(|install| install.to_string()).unwrap_or_default();
    Ok(match shred::is_shredded(&app.pool, &install).await? {
        true => Problem::new(
            Code::Erased,
            format!(
                "cannot show the plan: the data of {install} was erased; `stead subjects show {install}` shows when and why"
            ),
        ),
        false => Problem::internal(format!("blob {digest} is missing")),
    })
}

/// Returns the details of a step's newest plan.
pub(crate) async fn details(
    app: &App,
    caller: &Caller,
    (run, step): (RunId, StepId),
) -> Result<StepPlanDetails, Problem> {
    caller.authorize("GET", "/v1/runs/{run}/steps/{step}/plan/details")?;
    let row = views::run(&app.pool, run).await?.ok_or_else(|| Problem::not_found(run))?;
    let install = row.state.request.as_ref().map(|request| request.install.to_string());
    let plan =
        row.plans.get(&step).ok_or_else(|| Problem::not_found(format!("a plan of {step}")))?;
    let without = |state| StepPlanDetails {
        plan: plan.digest.clone(),
        state,
        salt: None,
        digest: plan.details.clone(),
        details: None,
    };
    let (Some(subject), Some(digest)) = (install, &plan.details) else {
        return Ok(without(DetailsState::None));
    };
    let id = DataId { subject: &subject, digest };
    let read = data::get(&app.pool, app.log().key_ring(), id).await.map_err(Problem::internal)?;
    let bytes = match read {
        Read::Found(bytes) => bytes,
        Read::Erased => return Ok(without(DetailsState::Erased)),
        Read::NotFound => {
            return Err(Problem::internal(format!("the details {digest} are missing")));
        }
    };
    let stored: SaltedDetails = serde_json::from_slice(&bytes).map_err(Problem::internal)?;
    let details = serde_json::from_str(&stored.content).map_err(Problem::internal)?;
    let (salt, details) = (Some(stored.salt), Some(details));
    Ok(StepPlanDetails { salt, details, ..without(DetailsState::Available) })
}
