//! Notifications of open pages about later events and log output. A page then requests itself again.
use std::{convert::Infallible, time::Duration};

use axum::{
    extract::State,
    response::sse::{Event, KeepAlive, Sse},
};
use domain::ids::JobId;
use futures::{Stream, StreamExt as _};
use tokio::time::{Instant, sleep, timeout_at};

use super::response::{PageProblem, Ui};
use crate::{
    extract::{Caller, Path},
    queries::logs::{self, Growth},
    state::App,
};

/// Minimum time between two notifications of one page.
const INTERVAL: Duration = Duration::from_millis(500);
/// Interval of comments, which keep proxies from closing an idle connection.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Lifetime of a stream. The browser then connects again, which checks the session.
const LIFETIME: Duration = Duration::from_secs(600);

/// Streams the position of the projections whenever it changes. The stream reads no database, and
/// ends with the token of the session.
pub(super) async fn live(
    State(app): State<App>,
    caller: Caller,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let mut positions = app.projections.positions();
    let end = Instant::now() + LIFETIME;
    let events = async_stream::stream! {
        while Instant::now() < end && caller.recheck(&app).is_ok() {
            let position = *positions.borrow_and_update();
            yield Ok(Event::default().event("position").data(position.to_string()));
            tokio::select! {
                () = sleep(INTERVAL) => {}
                () = app.stopping.cancelled() => break,
            }
            tokio::select! {
                moved = positions.changed() => if moved.is_err() { break },
                () = sleep(KEEP_ALIVE) => {}
                () = app.stopping.cancelled() => break,
            }
        }
    };
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
}

/// Streams a notification after new output of a job, until its log is finalized. Meanwhile, the
/// runner sends output more often.
pub(super) async fn log(
    State(app): State<App>,
    Ui(Path(attempt)): Ui<Path<(JobId, u32)>>,
    caller: Caller,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, PageProblem> {
    let end = Instant::now() + LIFETIME;
    let growth = logs::growth(app, caller, attempt, INTERVAL).await?;
    let events = async_stream::stream! {
        let mut growth = std::pin::pin!(growth);
        while let Ok(Some(growth)) = timeout_at(end, growth.next()).await {
            let state = match growth {
                Growth::Grown => "grown",
                Growth::Finalized => "finalized",
            };
            yield Ok(Event::default().event("log").data(state));
        }
    };
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}
