//! Pages that only read. Each calls the queries of the Control API and passes on their responses.
use std::collections::BTreeMap;

use axum::extract::State;
use chrono::{DateTime, Utc};
use dashboard::pages::{
    self, AppPage, AppVersions, Attention, DiffPage, InstallPage, RunDay, RunPage,
};
use domain::ids::RunId;
use schemas::control::{
    PageQuery,
    apps::DiffQuery,
    builds::BuildsQuery,
    installs::StateQuery,
    jobs::JobsQuery,
    runners::Runner,
    runs::{Run, RunsQuery, StepPlanDetails},
};
use serde::Deserialize;

use super::{
    audit::{Point, point, verification},
    response::{Page, PageResult, Ui},
};
use crate::{
    auth::sessions::Session,
    extract::{Caller, Path, Query},
    ids,
    problem::{Code, Problem},
    queries::{
        apps, audit, builds, installs, jobs, min_position, overview, plugins, runners, runs, tokens,
    },
    state::App,
};

/// Maximum number of plans whose details a run page shows. A runner determines their size.
const DETAILED_PLANS: usize = 8;
/// Maximum number of entries in each list of the home page.
const ATTENTION: u32 = 10;
/// Number of days whose runs the home page counts.
const DAYS: u64 = 14;
/// Maximum number of apps on the home page.
const APPS: u32 = 50;
/// Number of runners in each read of the home page, which looks for disconnected ones.
const RUNNERS: u32 = 200;
/// Maximum number of such reads.
const RUNNER_READS: u64 = 5;

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

pub(super) async fn home(State(app): State<App>, caller: Caller, session: Session) -> PageResult {
    min_position::wait(&app, None).await?;
    let frame = caller_of(&app, &caller, &session).await?;
    let of = |state: Option<&str>| RunsQuery {
        state: state.map(str::to_owned),
        limit: Some(ATTENTION),
        ..RunsQuery::default()
    };
    let unknown = JobsQuery {
        state: Some("outcome_unknown".into()),
        limit: Some(ATTENTION),
        ..JobsQuery::default()
    };
    let (disconnected, compared_runners) = disconnected(&app, &caller).await?;
    let (versions, are_versions_partial) = versions(&app, &caller).await?;
    let attention = Attention {
        waiting: runs::list(&app, &caller, of(Some("waiting_for_approval"))).await?.items,
        failed: runs::list(&app, &caller, of(Some("failed"))).await?.items,
        unknown: jobs::list(&app, &caller, unknown).await?.items,
        disconnected,
        compared_runners,
        newest: runs::list(&app, &caller, of(None)).await?.items,
        days: days(&app, &caller).await?,
        versions,
        are_versions_partial,
        verification: verification(&app),
    };
    Ok(Page(pages::home(&frame, &attention)))
}

/// Returns the runs of the last days by outcome. Without any run, returns no days.
async fn days(app: &App, caller: &Caller) -> Result<Vec<RunDay>, Problem> {
    let days = overview::run_days(app, caller, DAYS).await?;
    if days.iter().all(|(_, counts)| counts.is_empty()) {
        return Ok(vec![]);
    }
    let day = |(start, counts): (DateTime<Utc>, Vec<(String, u64)>)| {
        let of = |is: fn(&str) -> bool| -> u64 {
            counts.iter().filter(|(state, _)| is(state)).map(|(_, count)| count).sum()
        };
        RunDay {
            day: start.date_naive(),
            succeeded: of(|state| state == "succeeded"),
            failed: of(|state| state == "failed"),
            other: of(|state| state != "succeeded" && state != "failed"),
        }
    };
    Ok(days.into_iter().map(day).collect())
}

/// Returns the versions of the installs by app, and true if not all installs are counted.
async fn versions(app: &App, caller: &Caller) -> Result<(Vec<AppVersions>, bool), Problem> {
    let (counts, is_cut) = overview::versions(app, caller).await?;
    let query = PageQuery { limit: Some(APPS), ..PageQuery::default() };
    let apps = apps::list(app, caller, query).await?;
    let is_partial = is_cut || apps.next.is_some();
    let of = |shown: schemas::control::apps::App| AppVersions {
        counts: counts
            .iter()
            .filter(|count| count.app == shown.id)
            .map(|count| (count.version, count.installs))
            .collect(),
        app: shown.id.to_string(),
        name: shown.name,
        newest: shown.version,
    };
    let versions = apps.items.into_iter().map(of).filter(|app| !app.counts.is_empty());
    Ok((versions.collect(), is_partial))
}

/// Returns the first disconnected runners, and the number of compared runners if there are more.
async fn disconnected(app: &App, caller: &Caller) -> Result<(Vec<Runner>, Option<u64>), Problem> {
    let (mut disconnected, mut cursor, mut compared) = (Vec::new(), None, 0);
    for _ in 0..RUNNER_READS {
        let query = PageQuery { limit: Some(RUNNERS), cursor, ..PageQuery::default() };
        let page = runners::list(app, caller, query).await?;
        compared += page.items.len() as u64;
        disconnected.extend(page.items.into_iter().filter(|at| at.state == "disconnected"));
        cursor = page.next;
        if cursor.is_none() {
            disconnected.truncate(ATTENTION as usize);
            return Ok((disconnected, None));
        }
    }
    disconnected.truncate(ATTENTION as usize);
    Ok((disconnected, Some(compared)))
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
    Ok(Page(pages::install(&frame, &InstallPage { install, newest, versions })))
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
    let page = AppPage { app: shown, versions, builds };
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
