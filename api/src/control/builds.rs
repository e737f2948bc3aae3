//! `/v1/builds`: from sources to artifacts.
use axum::{Json, extract::State};
use domain::{build::Build as BuildState, ids::BuildId};
use schemas::control::{
    Page,
    builds::{Build, BuildsQuery},
};

use super::{read, read::Part, show};
use crate::{
    extract::{Path, Query},
    problem::{Answer, Problem},
    state::App,
    usecases::apps,
};

/// Builds, the newest first
#[utoipa::path(
    get, path = "/v1/builds", tag = "builds", params(BuildsQuery),
    responses((status = 200, body = Page<Build>)),
)]
pub async fn list(State(app): State<App>, Query(which): Query<BuildsQuery>) -> Answer<Page<Build>> {
    let of = match &which.app {
        Some(name) => Some(apps::find(&app, name).await?),
        None => None,
    };
    let (owned, wanted) = (&app, which.state.as_deref());
    let part = Part::of::<BuildState>(which.limit, which.cursor)?;
    let page = read::list::<BuildState, _, _>(&app, part, |history| async move {
        if of.is_some() && history.state.order.as_ref().map(|order| order.app) != of {
            return Ok(None);
        }
        let shown = show::build(owned, &history).await?;
        Ok(shown.filter(|build| wanted.is_none_or(|state| state == build.state)))
    });
    Ok(Json(page.await?))
}

/// One build
#[utoipa::path(
    get, path = "/v1/builds/{build}", tag = "builds",
    params(("build" = String, Path, description = "The build's id")),
    responses((status = 200, body = Build)),
)]
pub async fn show(State(app): State<App>, Path(build): Path<BuildId>) -> Answer<Build> {
    let history = read::one::<BuildState>(&app, build).await?;
    let shown = show::build(&app, &history).await?;
    shown.map(Json).ok_or_else(|| Problem::not_found(build))
}
