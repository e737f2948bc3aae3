//! `/v1/projections`: how far the views are, and making them again or holding them against the log.
mod kept;
mod then;

pub use kept::{__path_discard, discard};
pub use then::{__path_rows, rows};

use std::{collections::HashMap, convert::Infallible};

use axum::{
    Json,
    extract::State,
    response::sse::{Event, KeepAlive, KeepAliveStream, Sse},
};
use futures::{StreamExt as _, future::BoxFuture, stream::BoxStream};
use projections::{Class, Difference, RebuildError, rebuild::WORKERS};
use schemas::control::{
    Page,
    projections::{Progress, Projection, RebuildQuery},
};
use tokio::sync::mpsc;

use crate::{
    background::{
        parked::{self, Progress as Reached},
        policies,
    },
    extract::{Path, Query, Unrepeatable},
    problem::{Answer, Code, Problem},
    state::App,
};

/// What stands for every projection.
const ALL: &str = "all";

/// List projections with position and lag
#[utoipa::path(
    get, path = "/v1/projections", tag = "projections",
    responses((status = 200, body = Page<Projection>)),
)]
pub async fn list(State(app): State<App>) -> Answer<Page<Projection>> {
    let mut connection = app.pool.acquire().await?;
    let all = projections::list(&mut connection).await?;
    let mut kept = HashMap::new();
    for name in all.iter().map(|status| status.name) {
        kept.insert(name, projections::kept::positions(&mut connection, name).await?);
    }
    let mut shown = |status: projections::Status| Projection {
        name: status.name.into(),
        class: match status.class {
            Class::Synchronous => "synchronous",
            Class::Asynchronous => "asynchronous",
        }
        .into(),
        version: status.version.unsigned_abs(),
        position: status.position,
        lag: status.lag,
        as_of_positions: kept.remove(status.name).unwrap_or_default(),
        dead_letters: None,
    };
    let mut shown: Vec<Projection> = all.into_iter().map(&mut shown).collect();
    drop(connection);
    shown.push(followed(&app).await?);
    Ok(Json(Page::whole(shown)))
}

/// What goes on by itself follows the log as a view does, and is looked for in the same place.
async fn followed(app: &App) -> Result<Projection, Problem> {
    let Reached { position, parked } = parked::progress(&app.pool).await?;
    let (name, _, version) = policies::CONSUMER;
    Ok(Projection {
        name: name.into(),
        class: "policy".into(),
        version: version.unsigned_abs(),
        position,
        lag: app.log().position().saturating_sub(position),
        as_of_positions: vec![],
        dead_letters: Some(parked),
    })
}

/// Rebuild a projection
#[utoipa::path(
    post, path = "/v1/projections/{name}/rebuild", tag = "projections",
    params(
        ("name" = String, Path, description = "The projection's name, or `all`: the log is read once for all of them"),
        RebuildQuery,
    ),
    responses((status = 200, body = Progress, content_type = "text/event-stream")),
)]
pub async fn rebuild(
    State(app): State<App>,
    Path(name): Path<String>,
    Query(how): Query<RebuildQuery>,
    _: Unrepeatable,
) -> Result<Telling, Problem> {
    if how.as_of_position.is_some() || how.as_of_time.is_some() {
        return kept::make(app, name, how).await;
    }
    let parallel = how.parallel.unwrap_or(1);
    if !(1..=WORKERS).contains(&parallel) {
        return Err(Problem::new(Code::BadRequest, format!("parallel takes 1 to {WORKERS}")));
    }
    let all = named(&app).await?;
    let names: Vec<_> = all.iter().copied().filter(|one| name == ALL || name == *one).collect();
    if names.is_empty() {
        return Err(unknown(&name, &all));
    }
    Ok(told(name, move |name, said| {
        Box::pin(async move {
            let report = report(&name, &said);
            let done =
                projections::rebuild_all(app.owner_source(), &names, parallel, report).await?;
            let mut last = over(&name, 0);
            for one in done {
                let progress = Progress { rows: Some(one.rows), ..over(one.name, one.position) };
                if name == ALL {
                    let _ = said.send(progress);
                    last = over(ALL, one.position.max(last.events));
                } else {
                    last = progress;
                }
            }
            Ok(last)
        })
    }))
}

/// Roll back the last rebuild of a projection; the former rows are updated first
#[utoipa::path(
    post, path = "/v1/projections/{name}/rollback", tag = "projections",
    params(("name" = String, Path, description = "The projection's name")),
    responses((status = 200, body = Progress, content_type = "text/event-stream")),
)]
pub async fn rollback(
    State(app): State<App>,
    Path(name): Path<String>,
    _: Unrepeatable,
) -> Result<Telling, Problem> {
    known(&app, &name).await?;
    Ok(told(name, move |name, said| {
        Box::pin(async move {
            let done =
                projections::rollback(app.owner_source(), &name, report(&name, &said)).await?;
            Ok(Progress { rows: Some(done.rows), ..over(&name, done.position) })
        })
    }))
}

/// Compare every row of a projection with the log
#[utoipa::path(
    post, path = "/v1/projections/{name}/verify", tag = "projections",
    params(("name" = String, Path, description = "The projection's name")),
    responses((status = 200, body = Progress, content_type = "text/event-stream")),
)]
pub async fn verify(
    State(app): State<App>,
    Path(name): Path<String>,
    _: Unrepeatable,
) -> Result<Telling, Problem> {
    known(&app, &name).await?;
    Ok(told(name, move |name, said| {
        Box::pin(async move {
            let done = projections::verify(app.owner_source(), &name, report(&name, &said)).await?;
            let differences = done.differences.iter().map(Difference::to_string).collect();
            let over = over(&name, done.position);
            Ok(Progress { rows: Some(done.rows), differences, ..over })
        })
    }))
}

async fn named(app: &App) -> Result<Vec<&'static str>, Problem> {
    let mut connection = app.pool.acquire().await?;
    let all = projections::list(&mut connection).await?;
    Ok(all.iter().map(|status| status.name).collect())
}

async fn known(app: &App, name: &str) -> Result<(), Problem> {
    let all = named(app).await?;
    if all.contains(&name) { Ok(()) } else { Err(unknown(name, &all)) }
}

fn unknown(name: &str, all: &[&str]) -> Problem {
    Problem::not_found(format!("the projection {name:?} (there are {})", all.join(", ")))
}

type Said = mpsc::UnboundedSender<Progress>;
/// How far it is, as it goes on.
type Telling = Sse<KeepAliveStream<BoxStream<'static, Result<Event, Infallible>>>>;

/// Do it apart from the connection: a listener that goes away does not stop a swap half way.
fn told(
    name: String,
    work: impl FnOnce(String, Said) -> BoxFuture<'static, Result<Progress, RebuildError>>,
) -> Telling {
    let (said, mut heard) = mpsc::unbounded_channel::<Progress>();
    let doing = work(name.clone(), said.clone());
    tokio::spawn(async move {
        let last = doing.await.unwrap_or_else(|error| {
            tracing::warn!(projection = name, reason = %error, "Work on {name} failed: {error}");
            let (state, detail) = ("failed".into(), Some(error.to_string()));
            Progress { state, detail, ..over(&name, 0) }
        });
        // Nobody listens any more: it is done all the same.
        let _ = said.send(last);
    });
    let events = async_stream::stream! {
        while let Some(progress) = heard.recv().await {
            let event = Event::default().event("progress").json_data(&progress);
            yield Ok(event.unwrap_or_else(|_| Event::default().comment("unreadable")));
        }
    };
    Sse::new(events.boxed()).keep_alive(KeepAlive::default())
}

/// A reporter that speaks at most once per hundredth of the way.
fn report(name: &str, said: &Said) -> impl FnMut(projections::Progress) + Send + 'static {
    let (name, said, mut last) = (name.to_owned(), said.clone(), None);
    move |progress| {
        let (state, events, total) = match progress {
            projections::Progress::Replaying { events, total } => ("replaying", events, total),
            projections::Progress::Swapping => ("swapping", 0, 0),
            projections::Progress::Comparing => ("comparing", 0, 0),
        };
        let hundredth = (state, events.saturating_mul(100) / total.max(1));
        if last.replace(hundredth) != Some(hundredth) {
            let state = state.into();
            let _ = said.send(Progress { state, events, total, ..over(&name, 0) });
        }
    }
}

fn over(name: &str, position: u64) -> Progress {
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
