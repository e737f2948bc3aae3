//! Notifications of new events, so that clients need not poll.
use std::time::Duration;

use event_log::StoredEvent;
use futures::Stream;
use schemas::control::audit::{ChangesQuery, EventNotification};

use crate::{extract::Caller, problem::Problem, state::App};

/// Number of events that are read at a time for a client that lags.
const PAGE: u32 = 500;
/// Interval at which the token of an idle client is checked.
const IDLE_CHECK: Duration = Duration::from_secs(1);

/// Streams notifications of new events, after a position or from now on. If the token becomes
/// invalid, the stream ends with an error.
pub(crate) fn follow(
    app: App,
    caller: Caller,
    query: ChangesQuery,
) -> Result<impl Stream<Item = Result<EventNotification, Problem>>, Problem> {
    caller.authorize("GET", "/v1/changes")?;
    let mut at = query.after.unwrap_or_else(|| app.engine.log().position());
    let mut positions = app.engine.log().positions();
    Ok(async_stream::stream! {
        loop {
            if let Err(refused) = caller.recheck(&app) {
                yield Err(refused);
                break;
            }
            let Ok(page) = app.engine.log().read(at, PAGE).await else { break };
            for stored in &page {
                at = stored.position;
                if matches_stream(stored, query.stream.as_deref()) {
                    yield Ok(notification(stored));
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
    })
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

fn notification(stored: &StoredEvent) -> EventNotification {
    EventNotification {
        position: stored.position,
        stream: stored.stream.to_string(),
        event_type: stored.event_type.to_string(),
        recorded_at: stored.recorded_at,
    }
}
