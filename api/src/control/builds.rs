//! `/v1/builds`: builds of artifacts from sources.
use axum::{Json, extract::State};
use domain::ids::BuildId;
use projections::views::builds as views;
use schemas::control::{
    Page,
    apps::BuildRequested,
    builds::{Build, BuildsQuery, BuildsRetried},
};

use super::{change_request::ChangeRequest, filter, lookup::Lookup, pagination::PageRequest, show};
use crate::{
    extract::{Path, Query},
    problem::{ApiResult, Problem},
    state::App,
    usecases::rebuild,
};

/// List builds, newest first
#[utoipa::path(
    get, path = "/v1/builds", tag = "builds", params(BuildsQuery),
    responses((status = 200, body = Page<Build>)),
)]
pub async fn list(
    State(app): State<App>,
    Query(which): Query<BuildsQuery>,
) -> ApiResult<Page<Build>> {
    let of = match &which.app {
        Some(name) => Some(filter::app(&app, name).await?),
        None => None,
    };
    filter::one_of("state", which.state.as_deref(), &views::STATES)?;
    let part = PageRequest::of(which.limit, which.cursor)?;
    let filter = views::Filter { app: of, component: None, state: which.state };
    let rows = views::page(&app.pool, &filter, part.after, part.rows()).await?;
    let (rows, next) = part.cut(rows, |row| row.build);
    let (mut lookup, mut items) = (Lookup::new(&app), Vec::new());
    lookup.for_builds(&rows).await?;
    for row in &rows {
        items.push(show::build(&mut lookup, row).await?);
    }
    Ok(Json(Page { items, next }))
}

/// Get a build
#[utoipa::path(
    get, path = "/v1/builds/{build}", tag = "builds",
    params(("build" = String, Path, description = "The build's id")),
    responses((status = 200, body = Build)),
)]
pub async fn show(State(app): State<App>, Path(build): Path<BuildId>) -> ApiResult<Build> {
    let row = views::build(&app.pool, build).await?;
    let row = row.ok_or_else(|| Problem::not_found(build))?;
    Ok(Json(show::build(&mut Lookup::new(&app), &row).await?))
}

/// Retry the failed builds of the newest config version
///
/// Publishes the same bundle as the next config version, with a new build for each failed one.
#[utoipa::path(
    post, path = "/v1/builds/{build}/retry", tag = "builds",
    params(("build" = String, Path, description = "Id of a failed build")),
    responses((status = 200, body = BuildsRetried)),
)]
pub async fn retry(
    State(app): State<App>,
    Path(build): Path<BuildId>,
    ChangeRequest { call, .. }: ChangeRequest,
) -> ApiResult<BuildsRetried> {
    let done = rebuild::retry(&app, &call, build).await?;
    let rebuild::RetriedBuilds { app, version, builds } = done.value;
    let builds = builds.into_iter().map(|(component, id)| BuildRequested { id, component });
    let (builds, position) = (builds.collect(), done.position);
    Ok(Json(BuildsRetried { app, version, builds, position }))
}
