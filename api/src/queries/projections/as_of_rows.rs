//! As-of rows of a projection.
use std::time::Duration;

use event_log::{Source, transaction::completed};
use futures::Stream;
use projections::{AsOfQuery, RebuildError, as_of::AsOfRow};
use schemas::control::projections::{ProjectionRow, RowsProgress, RowsQuery};
use tokio::time::Instant;

use super::check_exists;
use crate::{
    extract::Caller,
    problem::{Code, Problem},
    queries::audit,
    state::App,
};

/// Maximum number of rows in one message.
const ROWS_PER_MESSAGE: u32 = 200;
/// Minimum interval between progress messages.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);
/// Maximum length of a key.
const MAX_KEY_BYTES: usize = 200;

/// Streams the rows of a projection as of a position or a time. Sends items with progress, then
/// items with rows sorted by key, then a final item.
pub(crate) async fn rows(
    app: App,
    caller: Caller,
    name: String,
    which: RowsQuery,
) -> Result<impl Stream<Item = RowsProgress>, Problem> {
    caller.authorize("GET", "/v1/projections/{name}/rows")?;
    check_exists(&app, &name).await?;
    let key_bytes = which.key.as_ref().map_or(0, String::len);
    if key_bytes > MAX_KEY_BYTES {
        let detail = format!(
            "invalid key: it has {key_bytes} bytes, but the limit is {MAX_KEY_BYTES}; shorten it"
        );
        return Err(Problem::new(Code::BadRequest, detail));
    }
    // Each as-of query holds a database connection until it ends.
    let permit = app.as_of_permits.clone().try_acquire_owned().map_err(|_| {
        let detail = "cannot start the as-of query: too many others are in progress on this server; try again later";
        Problem::new(Code::Busy, detail).retry_after(5)
    })?;
    let position = audit::resolve_position(&app, which.position, which.time).await?;
    let recorded_at = audit::point_at(&app, position).await?.recorded_at;
    let source = Source::from(app.log());
    let begun =
        completed(async move { AsOfQuery::begin(source, &name, position, which.key).await });
    let mut query = begun.await.map_err(to_problem)?;
    let message = move |state: &str| RowsProgress {
        state: state.into(),
        events: 0,
        total: position,
        position,
        recorded_at,
        rows: vec![],
        detail: None,
    };
    Ok(async_stream::stream! {
        let _permit = permit;
        let mut last_progress = Instant::now();
        let failed = loop {
            if let Err(problem) = caller.recheck(&app) {
                break Some(problem.detail);
            }
            match query.fold().await {
                Ok(Some(folded)) if last_progress.elapsed() >= PROGRESS_INTERVAL => {
                    last_progress = Instant::now();
                    yield RowsProgress { events: folded.events, ..message("replaying") };
                }
                Ok(Some(_)) => {}
                Ok(None) => break None,
                Err(error) => break Some(Problem::from(error).detail),
            }
        };
        if let Some(detail) = failed {
            yield RowsProgress { detail: Some(detail), ..message("failed") };
            return;
        }
        loop {
            if let Err(problem) = caller.recheck(&app) {
                yield RowsProgress { detail: Some(problem.detail), ..message("failed") };
                return;
            }
            match query.rows(ROWS_PER_MESSAGE).await {
                Ok(rows) if rows.is_empty() => break,
                Ok(rows) => {
                    let rows = rows.into_iter().map(row_to_wire).collect();
                    yield RowsProgress { events: position, rows, ..message("rows") };
                }
                Err(error) => {
                    let detail = Some(Problem::from(error).detail);
                    yield RowsProgress { detail, ..message("failed") };
                    return;
                }
            }
        }
        yield RowsProgress { events: position, ..message("done") };
    })
}

fn row_to_wire(row: AsOfRow) -> ProjectionRow {
    ProjectionRow { key: row.key, row: row.data }
}

fn to_problem(error: RebuildError) -> Problem {
    match error {
        RebuildError::Log(error) => error.into(),
        error @ (RebuildError::Unknown(_)
        | RebuildError::NotOwner(_)
        | RebuildError::Busy(_)
        | RebuildError::NoPreviousRows(_)
        | RebuildError::TableExists { .. }
        | RebuildError::OtherVersion { .. }) => Problem::internal(error),
    }
}
