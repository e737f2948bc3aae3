//! `/v1/builds`: builds of artifacts from sources.
use axum::{Json, extract::State};
use domain::ids::BuildId;
use schemas::control::{
    Page,
    apps::BuildRequested,
    builds::{Build, BuildsQuery, BuildsRetried},
};

use super::change_request::ChangeRequest;
use crate::{
    extract::{Caller, Path, Query},
    problem::ApiResult,
    queries::builds as queries,
    state::App,
    usecases::rebuild,
};

/// List builds, newest first
#[utoipa::path(
    get, path = "/v1/builds", tag = "builds", params(BuildsQuery),
    responses((status = 200, body = Page<Build>)),
)]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<BuildsQuery>,
) -> ApiResult<Page<Build>> {
    queries::list(&app, &caller, query).await.map(Json)
}

/// Get a build
#[utoipa::path(
    get, path = "/v1/builds/{build}", tag = "builds",
    params(("build" = String, Path, description = "The build's id")),
    responses((status = 200, body = Build)),
)]
pub(super) async fn show(
    State(app): State<App>,
    caller: Caller,
    Path(build): Path<BuildId>,
) -> ApiResult<Build> {
    queries::get(&app, &caller, build).await.map(Json)
}

/// Retry the failed builds of the newest config version
///
/// Publishes the same bundle as the next config version, with a new build for each failed one.
#[utoipa::path(
    post, path = "/v1/builds/{build}/retry", tag = "builds",
    params(("build" = String, Path, description = "Id of a failed build")),
    responses((status = 200, body = BuildsRetried)),
)]
pub(super) async fn retry(
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
