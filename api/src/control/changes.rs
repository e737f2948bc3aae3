//! `/v1/changes`: streams notifications of new events.
use std::{convert::Infallible, time::Duration};

use axum::{
    extract::State,
    response::sse::{Event, KeepAlive, Sse},
};
use futures::{Stream, StreamExt as _, stream};
use schemas::control::audit::{ChangesQuery, EventNotification};

use crate::{
    extract::{Caller, LastEvent, Query},
    problem::Problem,
    queries::changes as queries,
    state::App,
};

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
pub(super) async fn changes(
    State(app): State<App>,
    Query(query): Query<ChangesQuery>,
    LastEvent(last): LastEvent,
    caller: Caller,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    let query = ChangesQuery { after: last.or(query.after), ..query };
    let changes = queries::follow(app, caller, query)?.map(event);
    // Sent immediately, so that the client knows that the stream is open.
    let first = stream::once(async { Event::default().comment("listening") });
    let events = first.chain(changes).map(Ok);
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}

fn event(change: Result<EventNotification, Problem>) -> Event {
    match change {
        Ok(changed) => {
            let event = Event::default().id(changed.position.to_string()).event("changed");
            event.json_data(&changed).unwrap_or_else(|_| Event::default().comment("unreadable"))
        }
        Err(refused) => Event::default().event("end").data(refused.code.as_str()),
    }
}
