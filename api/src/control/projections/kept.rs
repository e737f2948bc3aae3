//! The rows of a projection as of a position, in a table of their own.
use axum::{Json, extract::State};
use projections::RebuildError;
use schemas::control::{
    Done,
    projections::{Progress, RebuildQuery},
};

use super::{ALL, Telling, known, over, report, told};
use crate::{
    control::audit,
    extract::Path,
    problem::{Answer, Code, Problem},
    state::App,
};

/// Make it, apart from the connection: it is there whole or not at all.
pub async fn make(app: App, name: String, how: RebuildQuery) -> Result<Telling, Problem> {
    let refused = |detail: &str| Err(Problem::new(Code::BadRequest, detail));
    if name == ALL {
        return refused("a rebuild as of a position is of one projection");
    }
    if how.parallel.is_some_and(|parallel| parallel != 1) {
        return refused("a rebuild as of a position has one worker: leave parallel out");
    }
    known(&app, &name).await?;
    let position = audit::position(&app, how.as_of_position, how.as_of_time).await?;
    Ok(told(name, move |name, said| {
        Box::pin(async move {
            let report = report(&name, &said);
            let kept = projections::kept::keep(app.owner_source(), &name, position, report).await?;
            let over = over(&name, kept.position);
            Ok(Progress { rows: Some(kept.rows), table: Some(kept.table), ..over })
        })
    }))
}

/// Drop an as-of table of a projection
#[utoipa::path(
    delete, path = "/v1/projections/{name}/as-of/{position}", tag = "projections",
    params(
        ("name" = String, Path, description = "The projection's name"),
        ("position" = u64, Path, description = "As of which position"),
    ),
    responses((status = 200, body = Done)),
)]
pub async fn discard(
    State(app): State<App>,
    Path((name, position)): Path<(String, u64)>,
) -> Answer<Done> {
    known(&app, &name).await?;
    let dropped = projections::kept::discard(app.owner(), &name, position).await;
    let changed = dropped.map_err(|error| match error {
        RebuildError::Log(error) => error.into(),
        error @ (RebuildError::NotOwner(_) | RebuildError::Busy(_)) => {
            Problem::new(Code::Rejected, error.to_string())
        }
        error @ (RebuildError::Unknown(_)
        | RebuildError::NothingKept(_)
        | RebuildError::AlreadyKept { .. }
        | RebuildError::OtherVersion { .. }) => Problem::internal(error),
    })?;
    Ok(Json(Done { position: app.log().position(), changed }))
}
