//! Pages that only read. Each calls the queries of the Control API and passes on their responses.
use std::collections::BTreeMap;

use axum::extract::State;
use dashboard::pages::{self, AppPage, DiffPage, InstallPage, RunPage};
use domain::ids::{AppId, RunId};
use schemas::control::{
    PageQuery,
    apps::DiffQuery,
    builds::BuildsQuery,
    installs::StateQuery,
    runs::{Run, RunsQuery, StepPlanDetails},
};
use serde::Deserialize;

use super::{
    audit::{Point, point},
    response::{Page, PageResult, Ui},
};
use crate::{
    auth::sessions::Session,
    extract::{Caller, Path, Query},
    ids,
    problem::{Code, Problem},
    queries::{apps, audit, builds, installs, min_position, overview, plugins, runs, tokens},
    state::App,
};

/// Maximum number of plans whose details a run page shows. A runner determines their size.
const DETAILED_PLANS: usize = 8;
/// Maximum number of entries in each list of an overview.
pub(super) const ATTENTION: u32 = 10;

/// Position that a page must include: the change that the user just made.
#[derive(Deserialize)]
pub(super) struct Freshness {
    pub min_position: Option<u64>,
}

/// Returns the caller's part of the page frame.
pub(super) async fn caller_of(
    app: &App,
    caller: &Caller,
    session: &Session,
) -> Result<dashboard::Caller, Problem> {
    let who = tokens::whoami(app, caller).await?;
    Ok(dashboard::Caller {
        name: who.name.unwrap_or_else(|| who.principal.to_string()),
        roles: who.roles,
        form_token: session.form_token(),
        idempotency_key: ids::new_ulid().to_string(),
        position: app.projections.position(),
        version: who.version,
        now: app.now(),
    })
}

/// An empty field of a search form is no filter.
pub(super) fn set(field: &mut Option<String>) {
    field.take_if(|text| text.trim().is_empty());
}

/// Time or position as of which a page shows an install.
#[derive(Deserialize)]
pub(super) struct AsOf {
    as_of: Option<String>,
    min_position: Option<u64>,
}

pub(super) async fn install(
    State(app): State<App>,
    Ui(Path(name)): Ui<Path<String>>,
    Ui(Query(query)): Ui<Query<AsOf>>,
    caller: Caller,
    session: Session,
) -> PageResult {
    min_position::wait(&app, query.min_position).await?;
    let install = installs::get(&app, &caller, &name).await?;
    let frame = caller_of(&app, &caller, &session).await?;
    if let Some(when) = query.as_of.as_deref() {
        let earlier =
            installs::state(&app, &caller, &name, state_query(point(&app, when)?)).await?;
        let at = audit::point_at(&app, earlier.position).await?.recorded_at;
        return Ok(Page(pages::install_as_of(&frame, &install, &earlier, at)));
    }
    let of = RunsQuery {
        install: Some(install.id.to_string()),
        limit: Some(ATTENTION),
        ..RunsQuery::default()
    };
    let newest = runs::list(&app, &caller, of).await?.items;
    let versions = match frame.may(&[]) {
        true => {
            apps::versions(&app, &caller, &install.app.to_string(), PageQuery::default())
                .await?
                .items
        }
        false => vec![],
    };
    let versions = versions.iter().map(|version| version.version).collect();
    let config = config(&app, &caller, install.app, install.config_version).await?;
    Ok(Page(pages::install(&frame, &InstallPage { install, newest, versions, config })))
}

/// Returns the parsed configuration of a version, or null if the app has no version yet.
async fn config(
    app: &App,
    caller: &Caller,
    of: AppId,
    version: u32,
) -> Result<serde_json::Value, Problem> {
    match version {
        0 => Ok(serde_json::Value::Null),
        1.. => Ok(apps::version(app, caller, (&of.to_string(), version)).await?.config),
    }
}

fn state_query((position, time): Point) -> StateQuery {
    StateQuery { position, time, ..StateQuery::default() }
}

pub(super) async fn runs(
    State(app): State<App>,
    Ui(Query(mut query)): Ui<Query<RunsQuery>>,
    caller: Caller,
    session: Session,
) -> PageResult {
    set(&mut query.install);
    set(&mut query.state);
    min_position::wait(&app, query.min_position).await?;
    let page = runs::list(&app, &caller, query.clone()).await?;
    Ok(Page(pages::runs(&caller_of(&app, &caller, &session).await?, &query, &page)))
}

/// Position that a run page must include, and a search in its plans.
#[derive(Deserialize)]
pub(super) struct RunView {
    min_position: Option<u64>,
    search: Option<String>,
}

pub(super) async fn run(
    State(app): State<App>,
    Ui(Path(id)): Ui<Path<RunId>>,
    Ui(Query(mut query)): Ui<Query<RunView>>,
    caller: Caller,
    session: Session,
) -> PageResult {
    min_position::wait(&app, query.min_position).await?;
    let run = runs::get(&app, &caller, id).await?;
    let details = details(&app, &caller, &run).await?;
    let frame = caller_of(&app, &caller, &session).await?;
    set(&mut query.search);
    let page = RunPage { run, details, search: query.search };
    Ok(Page(pages::run(&frame, &page)))
}

/// Details of the plans that wait for an approval. A caller without the role gets none.
async fn details(
    app: &App,
    caller: &Caller,
    run: &Run,
) -> Result<BTreeMap<String, StepPlanDetails>, Problem> {
    let mut details = BTreeMap::new();
    for step in &run.dag {
        let waits = step.state == "waiting_for_approval" && details.len() < DETAILED_PLANS;
        if waits && step.plan.as_ref().is_some_and(|plan| plan.has_details) {
            match runs::details(app, caller, (run.run.id, step.id)).await {
                Ok(of) => drop(details.insert(step.id.to_string(), of)),
                Err(problem) if problem.code == Code::Forbidden => {}
                Err(problem) => return Err(problem),
            }
        }
    }
    Ok(details)
}

pub(super) async fn apps(
    State(app): State<App>,
    Ui(Query(query)): Ui<Query<PageQuery>>,
    caller: Caller,
    session: Session,
) -> PageResult {
    min_position::wait(&app, query.min_position).await?;
    let page = apps::list(&app, &caller, query).await?;
    Ok(Page(pages::apps(&caller_of(&app, &caller, &session).await?, &page)))
}

pub(super) async fn app(
    State(app): State<App>,
    Ui(Path(name)): Ui<Path<String>>,
    Ui(Query(query)): Ui<Query<PageQuery>>,
    caller: Caller,
    session: Session,
) -> PageResult {
    min_position::wait(&app, query.min_position).await?;
    let shown = apps::get(&app, &caller, &name).await?;
    let versions = apps::versions(&app, &caller, &name, query).await?;
    let of = BuildsQuery {
        app: Some(shown.id.to_string()),
        limit: Some(ATTENTION),
        ..BuildsQuery::default()
    };
    let builds = builds::list(&app, &caller, of).await?.items;
    let config = config(&app, &caller, shown.id, shown.version).await?;
    let (counts, is_partial) = overview::versions(&app, &caller).await?;
    let own = counts.iter().filter(|count| count.app == shown.id);
    let followers = (!is_partial).then(|| own.map(|of| (of.version, of.installs)).collect());
    let page = AppPage { app: shown, versions, builds, followers, config };
    Ok(Page(pages::app(&caller_of(&app, &caller, &session).await?, &page)))
}

/// Compares two versions of an app.
pub(super) async fn diff(
    State(app): State<App>,
    Ui(Path(name)): Ui<Path<String>>,
    Ui(Query(query)): Ui<Query<DiffQuery>>,
    caller: Caller,
    session: Session,
) -> PageResult {
    min_position::wait(&app, query.min_position).await?;
    let diff = apps::diff(&app, &caller, &name, query).await?;
    let page = DiffPage { app: apps::get(&app, &caller, &name).await?, diff };
    Ok(Page(pages::diff(&caller_of(&app, &caller, &session).await?, &page)))
}

/// Catalog of the components.
pub(super) async fn catalog(
    State(app): State<App>,
    caller: Caller,
    session: Session,
) -> PageResult {
    Ok(Page(pages::catalog(&caller_of(&app, &caller, &session).await?)))
}

pub(super) async fn plugins(
    State(app): State<App>,
    Ui(Query(query)): Ui<Query<PageQuery>>,
    caller: Caller,
    session: Session,
) -> PageResult {
    let page = plugins::list(&app, &caller, query).await?;
    Ok(Page(pages::plugins(&caller_of(&app, &caller, &session).await?, &page)))
}

pub(super) async fn plugin(
    State(app): State<App>,
    Ui(Path(name)): Ui<Path<String>>,
    caller: Caller,
    session: Session,
) -> PageResult {
    let shown = plugins::get(&app, &caller, &name).await?;
    Ok(Page(pages::plugin(&caller_of(&app, &caller, &session).await?, &shown)))
}
