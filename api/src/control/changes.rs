//! `/v1/changes`: that something happened, as it happens, so that nobody has to ask again and again.
use std::{convert::Infallible, time::Duration};

use axum::{
    extract::State,
    response::sse::{Event, KeepAlive, Sse},
};
use event_log::Stored;
use futures::Stream;
use schemas::control::audit::{Changed, ChangesQuery};

use crate::{
    auth::Who,
    extract::{LastEvent, Query},
    problem::Problem,
    state::App,
};

/// How many events are read at once when a listener is behind.
const PAGE: u32 = 500;
/// How often it is asked whether the listener may still listen, when nothing happens.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Proxies cut connections on which nothing moves.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Stream new events
///
/// The id of each event is its position; `Last-Event-ID` continues after it. An `end` event ends the stream; its data
/// is the problem code that rejects the token.
#[utoipa::path(
    get, path = "/v1/changes", tag = "audit",
    params(
        ChangesQuery,
        ("Last-Event-ID" = Option<u64>, Header, description = "Go on after this position"),
    ),
    responses((status = 200, body = Changed, content_type = "text/event-stream")),
)]
pub async fn changes(
    State(app): State<App>,
    Query(which): Query<ChangesQuery>,
    LastEvent(last): LastEvent,
    who: Who,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    let mut at: u64 = last.or(which.after).unwrap_or_else(|| app.engine.log().position());
    let mut positions = app.engine.log().positions();
    let events = async_stream::stream! {
        // At once, so that the listener knows that it listens.
        yield Ok(Event::default().comment("listening"));
        loop {
            if let Err(refused) = who.still(&app) {
                yield Ok(Event::default().event("end").data(refused.code.word()));
                break;
            }
            let Ok(page) = app.engine.log().read(at, PAGE).await else { break };
            for stored in &page {
                at = stored.position;
                if concerns(stored, which.stream.as_deref()) {
                    yield Ok(event(stored));
                }
            }
            if !page.is_empty() {
                continue;
            }
            tokio::select! {
                moved = positions.wait_for(|position| *position > at) => {
                    if moved.is_err() {
                        break;
                    }
                }
                () = tokio::time::sleep(LOOK_AGAIN) => {}
                () = app.stopping.cancelled() => break,
            }
        }
    };
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}

fn concerns(stored: &Stored, stream: Option<&str>) -> bool {
    match stream.map(|stream| stream.split_once('/').unwrap_or((stream, ""))) {
        None => true,
        Some((kind, id)) => {
            stored.stream.aggregate_type == kind
                && (id.is_empty() || stored.stream.aggregate_id == id)
        }
    }
}

fn event(stored: &Stored) -> Event {
    let changed = Changed {
        position: stored.position,
        stream: stored.stream.to_string(),
        event_type: stored.event_type.to_string(),
        recorded_at: stored.recorded_at,
    };
    let event = Event::default().id(stored.position.to_string()).event("changed");
    event.json_data(&changed).unwrap_or_else(|_| Event::default().comment("unreadable"))
}
