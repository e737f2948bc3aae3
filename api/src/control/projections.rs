//! `/v1/projections`: positions of the projections; rebuild, rollback and verification.
mod as_of_table;

pub(super) use as_of_table::{__path_discard, discard};

use std::convert::Infallible;

use axum::{
    Json,
    extract::State,
    response::sse::{Event, KeepAlive, KeepAliveStream, Sse},
};
use futures::{Stream, StreamExt as _, future::BoxFuture, stream::BoxStream};
use projections::{Difference, RebuildError, rebuild::WORKERS};
use schemas::control::{
    Page,
    projections::{Progress, Projection, RebuildQuery, RowsProgress, RowsQuery},
};
use tokio::sync::mpsc;

use crate::{
    extract::{Caller, NoIdempotencyKey, Path, Query},
    problem::{ApiResult, Code, Problem},
    queries::projections::{self as queries, check_exists, projection_names, unknown_projection},
    state::App,
};

/// Name that selects every projection.
const ALL: &str = "all";

/// List projections with their positions and lag
#[utoipa::path(
    get, path = "/v1/projections", tag = "projections",
    responses((status = 200, body = Page<Projection>)),
)]
pub(super) async fn list(State(app): State<App>, caller: Caller) -> ApiResult<Page<Projection>> {
    queries::list(&app, &caller).await.map(Json)
}

/// Get the rows of a projection as of a position or a time, as server-sent events
///
/// The server folds the log with the code of the projection. With a key, it reads only the events
/// of that key. Sends messages with progress, then messages with rows in the order of their keys,
/// then a final message. Stops if the client disconnects.
#[utoipa::path(
    get, path = "/v1/projections/{name}/rows", tag = "projections",
    params(("name" = String, Path, description = "The projection's name"), RowsQuery),
    responses((status = 200, body = RowsProgress, content_type = "text/event-stream")),
)]
pub(super) async fn rows(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
    Query(query): Query<RowsQuery>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    let progress = queries::rows(app, caller, name, query).await?;
    let events = progress.map(|progress| {
        let event = Event::default().event("progress").json_data(&progress);
        Ok(event.unwrap_or_else(|_| Event::default().comment("unreadable")))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}

/// Rebuild a projection while the server runs
#[utoipa::path(
    post, path = "/v1/projections/{name}/rebuild", tag = "projections",
    params(
        ("name" = String, Path, description = "Projection name, or `all` to rebuild every projection in one pass over the log"),
        RebuildQuery,
    ),
    responses((status = 200, body = Progress, content_type = "text/event-stream")),
)]
pub(super) async fn rebuild(
    State(app): State<App>,
    Path(name): Path<String>,
    Query(how): Query<RebuildQuery>,
    _: NoIdempotencyKey,
) -> Result<ProgressStream, Problem> {
    if how.as_of_position.is_some() || how.as_of_time.is_some() {
        return as_of_table::create(app, name, how).await;
    }
    let parallel = how.parallel.unwrap_or(1);
    if !(1..=WORKERS).contains(&parallel) {
        return Err(Problem::new(
            Code::BadRequest,
            format!("invalid parallel {parallel}: it must be between 1 and {WORKERS}"),
        ));
    }
    let all = projection_names(&app).await?;
    let names: Vec<_> = all.iter().copied().filter(|one| name == ALL || name == *one).collect();
    if names.is_empty() {
        return Err(unknown_projection(&name, &all));
    }
    Ok(run_with_progress(("rebuild", name), move |name, sender| {
        Box::pin(async move {
            let report = progress_reporter(&name, &sender);
            let done =
                projections::rebuild_all(app.owner_source(), &names, parallel, report).await?;
            let mut last = done_progress(&name, 0);
            for one in done {
                let progress =
                    Progress { rows: Some(one.rows), ..done_progress(one.name, one.position) };
                if name == ALL {
                    let _ = sender.send(progress);
                    last = done_progress(ALL, one.position.max(last.events));
                } else {
                    last = progress;
                }
            }
            Ok(last)
        })
    }))
}

/// Restore the rows from before the last rebuild, and apply the events since then
#[utoipa::path(
    post, path = "/v1/projections/{name}/rollback", tag = "projections",
    params(("name" = String, Path, description = "The projection's name")),
    responses((status = 200, body = Progress, content_type = "text/event-stream")),
)]
pub(super) async fn rollback(
    State(app): State<App>,
    Path(name): Path<String>,
    _: NoIdempotencyKey,
) -> Result<ProgressStream, Problem> {
    check_exists(&app, &name).await?;
    Ok(run_with_progress(("rollback", name), move |name, sender| {
        Box::pin(async move {
            let done =
                projections::rollback(app.owner_source(), &name, progress_reporter(&name, &sender))
                    .await?;
            Ok(Progress { rows: Some(done.rows), ..done_progress(&name, done.position) })
        })
    }))
}

/// Compare every row of a projection with the log
#[utoipa::path(
    post, path = "/v1/projections/{name}/verify", tag = "projections",
    params(("name" = String, Path, description = "The projection's name")),
    responses((status = 200, body = Progress, content_type = "text/event-stream")),
)]
pub(super) async fn verify(
    State(app): State<App>,
    Path(name): Path<String>,
    _: NoIdempotencyKey,
) -> Result<ProgressStream, Problem> {
    check_exists(&app, &name).await?;
    Ok(run_with_progress(("verify", name), move |name, sender| {
        Box::pin(async move {
            let done =
                projections::verify(app.owner_source(), &name, progress_reporter(&name, &sender))
                    .await?;
            let differences = done.differences.iter().map(Difference::to_string).collect();
            let over = done_progress(&name, done.position);
            Ok(Progress { rows: Some(done.rows), differences, ..over })
        })
    }))
}

type ProgressSender = mpsc::UnboundedSender<Progress>;
type ProgressStream = Sse<KeepAliveStream<BoxStream<'static, Result<Event, Infallible>>>>;

/// Runs the work in a separate task, so that a client that disconnects does not interrupt a swap.
fn run_with_progress(
    (operation, name): (&'static str, String),
    work: impl FnOnce(String, ProgressSender) -> BoxFuture<'static, Result<Progress, RebuildError>>,
) -> ProgressStream {
    let (sender, mut receiver) = mpsc::unbounded_channel::<Progress>();
    let running = work(name.clone(), sender.clone());
    #[expect(clippy::disallowed_methods, reason = "the stream below ends with the task")]
    tokio::spawn(async move {
        let last = running.await.unwrap_or_else(|error| {
            tracing::warn!(
                projection = name,
                operation,
                error = %error,
                "Cannot finish the rebuild, rollback or verification of a projection"
            );
            let (state, detail) = ("failed".into(), Some(error.to_string()));
            Progress { state, detail, ..done_progress(&name, 0) }
        });
        // The send fails if the client has disconnected.
        let _ = sender.send(last);
    });
    let events = async_stream::stream! {
        while let Some(progress) = receiver.recv().await {
            let event = Event::default().event("progress").json_data(&progress);
            yield Ok(event.unwrap_or_else(|_| Event::default().comment("unreadable")));
        }
    };
    Sse::new(events.boxed()).keep_alive(KeepAlive::default())
}

/// Reports progress at most once per percent.
fn progress_reporter(
    name: &str,
    sender: &ProgressSender,
) -> impl FnMut(projections::Progress) + Send + 'static {
    let (name, sender, mut last) = (name.to_owned(), sender.clone(), None);
    move |progress| {
        let (state, events, total) = match progress {
            projections::Progress::Replaying { events, total } => ("replaying", events, total),
            projections::Progress::Swapping => ("swapping", 0, 0),
            projections::Progress::Comparing => ("comparing", 0, 0),
        };
        let hundredth = (state, events.saturating_mul(100) / total.max(1));
        if last.replace(hundredth) != Some(hundredth) {
            let state = state.into();
            let _ = sender.send(Progress { state, events, total, ..done_progress(&name, 0) });
        }
    }
}

fn done_progress(name: &str, position: u64) -> Progress {
    Progress {
        projection: name.into(),
        state: "done".into(),
        events: position,
        total: position,
        rows: None,
        table: None,
        differences: Vec::new(),
        detail: None,
    }
}
