//! Notifications of open pages about later events and log output. A page then requests itself again.
use std::{collections::BTreeSet, convert::Infallible, pin::Pin, time::Duration};

use axum::{
    extract::State,
    response::sse::{Event, KeepAlive, Sse},
};
use futures::{
    Stream, StreamExt as _,
    stream::{SelectAll, select},
};
use serde::Deserialize;
use tokio::time::{Instant, sleep, sleep_until};

use super::response::Ui;
use crate::{
    extract::{Caller, Query},
    queries::logs,
    state::App,
};

/// Minimum time between two notifications of one page.
const INTERVAL: Duration = Duration::from_millis(500);
/// Interval of comments, which keep proxies from closing an idle connection.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Lifetime of a stream. The browser then connects again, which checks the session.
const LIFETIME: Duration = Duration::from_secs(600);
/// Maximum number of logs that one browser follows.
const MAX_LOGS: usize = 8;
/// Maximum number of keys that one browser names. With more, every event wakes it.
const MAX_KEYS: usize = 256;
/// Time in which the loop that follows the log reaches the position of the projections.
const CATCH_UP: Duration = Duration::from_millis(20);

/// Logs that the pages of a browser show, and the keys of the changes that concern them.
#[derive(Deserialize)]
pub(super) struct Followed {
    /// Jobs with the number of an attempt: `job_….1,job_….2`.
    logs: Option<String>,
    /// Aggregate types and streams: `runner,run/run_…`. Default: all.
    keys: Option<String>,
}

type Events = Pin<Box<dyn Stream<Item = Event> + Send>>;

/// Streams the position of the projections with the keys that changed, and the names of logs that
/// grew. One browser has one stream. Without logs, the stream reads no database. It ends with the token of the
/// session.
pub(super) async fn live(
    State(app): State<App>,
    Ui(Query(followed)): Ui<Query<Followed>>,
    caller: Caller,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let mut logs = SelectAll::new();
    let names = followed.logs.unwrap_or_default();
    for name in names.split(',').filter(|name| !name.is_empty()).take(MAX_LOGS) {
        // A log that the caller cannot read only lacks updates: the page shows the reason.
        if let Some(events) = growth(&app, &caller, name).await {
            logs.push(events);
        }
    }
    let end = sleep_until(Instant::now() + LIFETIME);
    let events = select(positions(app, caller, keys(followed.keys)), logs).map(Ok).take_until(end);
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
}

/// Keys of the pages of a browser. `None` stands for all keys.
fn keys(names: Option<String>) -> Option<BTreeSet<String>> {
    let names = names?;
    let keys: BTreeSet<String> = names
        .split(',')
        .filter(|key| !key.is_empty())
        .take(MAX_KEYS + 1)
        .map(str::to_owned)
        .collect();
    Some(keys).filter(|keys| keys.len() <= MAX_KEYS)
}

/// Positions at which something changed that the pages show, each with the changed keys. The first
/// one concerns all pages, because they may be older than the stream.
fn positions(
    app: App,
    caller: Caller,
    keys: Option<BTreeSet<String>>,
) -> impl Stream<Item = Event> {
    let mut positions = app.projections.positions();
    async_stream::stream! {
        let mut sent = *positions.borrow_and_update();
        yield position_event(sent, "*");
        while caller.recheck(&app).is_ok() {
            let position = *positions.borrow_and_update();
            if position > sent {
                let changed = changed(&app, keys.as_ref(), (sent, position)).await;
                sent = position;
                if !changed.is_empty() {
                    yield position_event(position, &changed);
                }
            }
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
    }
}

fn position_event(position: u64, keys: &str) -> Event {
    Event::default().event("position").data(format!("{position} {keys}"))
}

/// Returns the changed keys, or `*` if all pages must be requested again.
async fn changed(app: &App, keys: Option<&BTreeSet<String>>, range: (u64, u64)) -> String {
    let Some(keys) = keys else { return "*".into() };
    for _ in 0..2 {
        if let Some(found) = app.recent_changes.among(keys, range) {
            return found.into_iter().collect::<Vec<_>>().join(",");
        }
        sleep(CATCH_UP).await;
    }
    "*".into()
}

/// Notifications after new output of a job, until its log is finalized. Meanwhile, the runner sends
/// output more often. Returns `None` if there is no such log, or the caller may not read it.
async fn growth(app: &App, caller: &Caller, name: &str) -> Option<Events> {
    let (job, attempt) = name.split_once('.')?;
    let attempt = (job.parse().ok()?, attempt.parse().ok()?);
    let growth = logs::growth(app.clone(), caller.clone(), attempt, INTERVAL).await.ok()?;
    let name = name.to_owned();
    Some(growth.map(move |_| Event::default().event("log").data(&name)).boxed())
}
