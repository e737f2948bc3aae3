//! As-of tables: the rows of a projection as of a position, in a separate table.
use axum::{Json, extract::State};
use projections::RebuildError;
use schemas::control::{
    ChangeResult,
    projections::{Progress, RebuildQuery},
};

use super::{ALL, ProgressStream, done_progress, progress_reporter, run_with_progress};
use crate::{
    extract::Path,
    problem::{ApiResult, Code, Problem},
    queries::{audit, projections::check_exists},
    state::App,
};

/// Creates an as-of table in a separate task, completely or not at all.
pub(super) async fn create(
    app: App,
    name: String,
    how: RebuildQuery,
) -> Result<ProgressStream, Problem> {
    let rejection = |detail: &str| Err(Problem::new(Code::BadRequest, detail));
    if name == ALL {
        return rejection(
            "invalid projection `all`: an as-of rebuild covers one projection; pass the name of a projection",
        );
    }
    if how.parallel.is_some_and(|parallel| parallel != 1) {
        return rejection("invalid parallel: an as-of rebuild uses one worker; omit parallel");
    }
    check_exists(&app, &name).await?;
    let position = audit::resolve_position(&app, how.as_of_position, how.as_of_time).await?;
    Ok(run_with_progress(("rebuild", name), move |name, sender| {
        Box::pin(async move {
            let report = progress_reporter(&name, &sender);
            let created =
                projections::as_of_table::create(app.owner_source(), &name, position, report)
                    .await?;
            let over = done_progress(&name, created.position);
            Ok(Progress { rows: Some(created.rows), table: Some(created.table), ..over })
        })
    }))
}

/// Drop the table of an as-of rebuild
#[utoipa::path(
    delete, path = "/v1/projections/{name}/as-of/{position}", tag = "projections",
    params(
        ("name" = String, Path, description = "The projection's name"),
        ("position" = u64, Path, description = "Position of the as-of table"),
    ),
    responses((status = 200, body = ChangeResult)),
)]
pub(crate) async fn discard(
    State(app): State<App>,
    Path((name, position)): Path<(String, u64)>,
) -> ApiResult<ChangeResult> {
    check_exists(&app, &name).await?;
    let dropped = projections::as_of_table::discard(app.owner(), &name, position).await;
    let changed = dropped.map_err(|error| match error {
        RebuildError::Log(error) => error.into(),
        error @ (RebuildError::NotOwner(_) | RebuildError::Busy(_)) => {
            Problem::new(Code::Rejected, error.to_string())
        }
        error @ (RebuildError::Unknown(_)
        | RebuildError::NoPreviousRows(_)
        | RebuildError::TableExists { .. }
        | RebuildError::OtherVersion { .. }) => Problem::internal(error),
    })?;
    Ok(Json(ChangeResult { position: app.log().position(), changed }))
}
