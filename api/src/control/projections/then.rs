//! `GET /v1/projections/{name}/rows`: the rows of a projection as they were.
use std::{convert::Infallible, time::Duration};

use axum::{
    extract::State,
    response::sse::{Event, KeepAlive, Sse},
};
use futures::Stream;
use projections::{Past, RebuildError, as_of::PastRow};
use schemas::control::projections::{ProjectionRow, RowsProgress, RowsQuery};
use tokio::time::Instant;

use super::known;
use crate::{
    auth::Who,
    control::audit,
    extract::{Path, Query},
    problem::{Code, Problem},
    state::App,
};

/// How many rows go into one message.
const ROWS: u32 = 200;
/// How often it is said how far it is.
const EVERY: Duration = Duration::from_millis(250);
/// The longest key.
const KEY_BYTES: usize = 200;

/// Stream the rows of a projection at a position or time
///
/// Computed from the log. Sends server-sent events: progress, then rows in the order of their keys, then the last
/// message. Closing the connection stops the computation.
#[utoipa::path(
    get, path = "/v1/projections/{name}/rows", tag = "projections",
    params(("name" = String, Path, description = "The projection's name"), RowsQuery),
    responses((status = 200, body = RowsProgress, content_type = "text/event-stream")),
)]
pub async fn rows(
    State(app): State<App>,
    Path(name): Path<String>,
    Query(which): Query<RowsQuery>,
    who: Who,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    known(&app, &name).await?;
    if which.key.as_ref().is_some_and(|key| key.len() > KEY_BYTES) {
        return Err(Problem::new(Code::BadRequest, "key has more than 200 bytes"));
    }
    // Each keeps a connection for as long as it takes.
    let one_of_few = app.looking_back.clone().try_acquire_owned().map_err(|_| {
        let detail = "others look at the past here; ask again when they are done";
        Problem::new(Code::Busy, detail).retry_after(5)
    })?;
    let position = audit::position(&app, which.position, which.time).await?;
    let recorded_at = audit::point(&app, position).await?.recorded_at;
    let mut past = Past::begin(app.log(), &name, position, which.key).await.map_err(refused)?;
    let said = move |state: &str| RowsProgress {
        state: state.into(),
        events: 0,
        total: position,
        position,
        recorded_at,
        rows: vec![],
        detail: None,
    };
    let events = async_stream::stream! {
        let _one_of_few = one_of_few;
        let mut told = Instant::now();
        let failed = loop {
            if let Err(problem) = who.still(&app) {
                break Some(problem.detail);
            }
            match past.fold().await {
                Ok(Some(folded)) if told.elapsed() >= EVERY => {
                    told = Instant::now();
                    yield event(&RowsProgress { events: folded.events, ..said("replaying") });
                }
                Ok(Some(_)) => {}
                Ok(None) => break None,
                Err(error) => break Some(Problem::from(error).detail),
            }
        };
        if let Some(detail) = failed {
            yield event(&RowsProgress { detail: Some(detail), ..said("failed") });
            return;
        }
        loop {
            if let Err(problem) = who.still(&app) {
                yield event(&RowsProgress { detail: Some(problem.detail), ..said("failed") });
                return;
            }
            match past.rows(ROWS).await {
                Ok(rows) if rows.is_empty() => break,
                Ok(rows) => {
                    let rows = rows.into_iter().map(shown).collect();
                    yield event(&RowsProgress { events: position, rows, ..said("rows") });
                }
                Err(error) => {
                    let detail = Some(Problem::from(error).detail);
                    yield event(&RowsProgress { detail, ..said("failed") });
                    return;
                }
            }
        }
        yield event(&RowsProgress { events: position, ..said("done") });
    };
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}

fn event(look: &RowsProgress) -> Result<Event, Infallible> {
    let event = Event::default().event("look").json_data(look);
    Ok(event.unwrap_or_else(|_| Event::default().comment("unreadable")))
}

fn shown(row: PastRow) -> ProjectionRow {
    ProjectionRow { key: row.key, row: row.data }
}

fn refused(error: RebuildError) -> Problem {
    match error {
        RebuildError::Log(error) => error.into(),
        error @ (RebuildError::Unknown(_)
        | RebuildError::NotOwner(_)
        | RebuildError::Busy(_)
        | RebuildError::NothingKept(_)
        | RebuildError::AlreadyKept { .. }
        | RebuildError::OtherVersion { .. }) => Problem::internal(error),
    }
}
