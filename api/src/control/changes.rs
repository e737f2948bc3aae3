//! `/v1/changes`: streams notifications of new events, so that clients need not poll.
use std::{convert::Infallible, time::Duration};

use axum::{
    extract::State,
    response::sse::{Event, KeepAlive, Sse},
};
use event_log::StoredEvent;
use futures::Stream;
use schemas::control::audit::{ChangesQuery, EventNotification};

use crate::{
    extract::{Caller, LastEvent, Query},
    problem::Problem,
    state::App,
};

/// Number of events that are read at a time for a client that lags.
const PAGE: u32 = 500;
/// Interval at which the token of an idle client is checked.
pub(super) const IDLE_CHECK: Duration = Duration::from_secs(1);
/// Interval of keep-alive comments. Proxies close idle connections.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Stream changes as they are recorded
///
/// The id of each event is its position; `Last-Event-ID` resumes after it. An `end` event means
/// that the token is no longer valid. Its data is the problem code.
#[utoipa::path(
    get, path = "/v1/changes", tag = "audit",
    params(
        ChangesQuery,
        ("Last-Event-ID" = Option<u64>, Header, description = "Resume after this position"),
    ),
    responses((status = 200, body = EventNotification, content_type = "text/event-stream")),
)]
pub async fn changes(
    State(app): State<App>,
    Query(which): Query<ChangesQuery>,
    LastEvent(last): LastEvent,
    who: Caller,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    let mut at: u64 = last.or(which.after).unwrap_or_else(|| app.engine.log().position());
    let mut positions = app.engine.log().positions();
    let events = async_stream::stream! {
        // Sent immediately, so that the client knows that the stream is open.
        yield Ok(Event::default().comment("listening"));
        loop {
            if let Err(rejection) = who.recheck(&app) {
                yield Ok(Event::default().event("end").data(rejection.code.as_str()));
                break;
            }
            let Ok(page) = app.engine.log().read(at, PAGE).await else { break };
            for stored in &page {
                at = stored.position;
                if matches_stream(stored, which.stream.as_deref()) {
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
                () = tokio::time::sleep(IDLE_CHECK) => {}
                () = app.stopping.cancelled() => break,
            }
        }
    };
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}

fn matches_stream(stored: &StoredEvent, stream: Option<&str>) -> bool {
    match stream.map(|stream| stream.split_once('/').unwrap_or((stream, ""))) {
        None => true,
        Some((kind, id)) => {
            stored.stream.aggregate_type == kind
                && (id.is_empty() || stored.stream.aggregate_id == id)
        }
    }
}

fn event(stored: &StoredEvent) -> Event {
    let changed = EventNotification {
        position: stored.position,
        stream: stored.stream.to_string(),
        event_type: stored.event_type.to_string(),
        recorded_at: stored.recorded_at,
    };
    let event = Event::default().id(stored.position.to_string()).event("changed");
    event.json_data(&changed).unwrap_or_else(|_| Event::default().comment("unreadable"))
}
