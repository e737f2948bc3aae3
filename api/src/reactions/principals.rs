//! Keeps the [`PrincipalCache`](crate::auth::PrincipalCache) up to date with the log.
use std::{sync::Arc, time::Duration};

use event_log::StoredEvent;
use tokio::{
    sync::broadcast::{Receiver, error::RecvError},
    time::{Instant, MissedTickBehavior},
};
use tracing::warn;

use crate::state::App;

/// Number of events per read when the in-memory tail has a gap.
const PAGE: u32 = 1_000;
/// Interval between checks of the log's age and of unreadable callers.
const TICK: Duration = Duration::from_secs(1);
/// First back-off after a failed read.
const BACK_OFF: Duration = Duration::from_millis(500);
const MAX_BACK_OFF: Duration = Duration::from_secs(5);
/// First interval between reads of unreadable streams.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// Follows the log until the server stops. Receives the appends of this server in memory, and reads
/// the appends of other servers. The caller must subscribe `tail` before it loads the cache.
pub(crate) async fn run(app: App, mut tail: Receiver<Arc<[StoredEvent]>>) {
    let mut positions = app.log().positions();
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut again = RetrySchedule { wait: RETRY_INTERVAL, due: Instant::now(), unreadable: 0 };
    loop {
        let known = app.principals.position();
        app.principals.age(app.log());
        tokio::select! {
            // Polls the tail first, because its events need not be read.
            biased;
            () = app.stopping.cancelled() => return,
            batch = tail.recv() => match batch {
                Ok(batch) if batch.first().is_some_and(|first| first.position <= known + 1) => {
                    if batch.last().is_some_and(|last| last.position > known) {
                        apply(&app, &batch);
                    }
                }
                // The tail has a gap, or this task lagged behind it.
                Ok(_) | Err(RecvError::Lagged(_)) => catch_up(&app).await,
                Err(RecvError::Closed) => return,
            },
            _ = ticks.tick() => again.retry(&app).await,
            // The borrowed value must be dropped before the next wait.
            moved = async { positions.wait_for(|position| *position > known).await.is_ok() } => {
                if !moved {
                    return;
                }
                // This server's own appends arrive through the tail shortly.
                tokio::time::sleep(Duration::from_millis(2)).await;
                if tail.is_empty() {
                    catch_up(&app).await;
                }
            }
        }
    }
}

/// Applies later events to the cache, and remembers them for the open pages of the dashboard.
fn apply(app: &App, events: &[StoredEvent]) {
    app.principals.apply_events(events);
    app.recent_changes.record(events);
}

async fn catch_up(app: &App) {
    let mut wait = BACK_OFF;
    while app.principals.position() < app.log().position() && !app.stopping.is_cancelled() {
        match app.log().read(app.principals.position(), PAGE).await {
            Ok(events) if events.is_empty() => return,
            Ok(events) => {
                apply(app, &events);
                wait = BACK_OFF;
            }
            Err(error) => {
                warn!(error = %error, retry_in_ms = wait.as_millis(), "Cannot read the log to update the principals");
                tokio::select! {
                    () = app.stopping.cancelled() => return,
                    () = tokio::time::sleep(wait) => {}
                }
                wait = (wait * 2).min(MAX_BACK_OFF);
            }
        }
    }
}

/// Schedule for reading unreadable streams again.
struct RetrySchedule {
    wait: Duration,
    due: Instant,
    unreadable: usize,
}

impl RetrySchedule {
    async fn retry(&mut self, app: &App) {
        let unreadable = app.principals.unreadable();
        if unreadable > self.unreadable {
            self.wait = RETRY_INTERVAL;
        }
        self.unreadable = unreadable;
        if unreadable == 0 || Instant::now() < self.due {
            return;
        }
        for runner in app.principals.read_again(app.log()).await {
            let Ok(id) = runner.stream.aggregate_id.parse() else { continue };
            let now = app.dispatch.moment().instant;
            let mut dispatch = app.dispatch.state();
            // The dispatcher skipped the event that could not be read.
            if dispatch.runners.get(id).is_some() {
                dispatch.runners.meet(id, (*runner.state).clone(), runner.version, now);
            }
        }
        self.due = Instant::now() + self.wait;
        self.wait = (self.wait * 2).min(MAX_RETRY_INTERVAL);
    }
}
