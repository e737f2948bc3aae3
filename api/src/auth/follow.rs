//! Keeps [`People`](super::People) up with the log.
use std::{sync::Arc, time::Duration};

use event_log::Stored;
use tokio::sync::broadcast::{Receiver, error::RecvError};
use tracing::{error, warn};

use crate::state::App;

/// How many events one read brings when the tail is not enough.
const PAGE: u32 = 1_000;

/// Follow the log until the server stops. What this server appends comes through memory; what others
/// append is read. `tail` was taken before the people were loaded.
pub async fn follow(app: App, mut tail: Receiver<Arc<[Stored]>>) {
    let mut positions = app.log().positions();
    loop {
        let known = app.people.position();
        tokio::select! {
            // The tail first: what it brings need not be read.
            biased;
            () = app.stopping.cancelled() => return,
            batch = tail.recv() => match batch {
                Ok(batch) if batch.first().is_some_and(|first| first.position <= known + 1) => {
                    if batch.last().is_some_and(|last| last.position > known) {
                        take(&app, &batch);
                    }
                }
                // A gap, or the tail ran away.
                Ok(_) | Err(RecvError::Lagged(_)) => catch_up(&app).await,
                Err(RecvError::Closed) => return,
            },
            // What it saw is let go before anything is waited for.
            moved = async { positions.wait_for(|position| *position > known).await.is_ok() } => {
                if !moved {
                    return;
                }
                // Ours arrives through the tail in a moment.
                tokio::time::sleep(Duration::from_millis(2)).await;
                if tail.is_empty() {
                    catch_up(&app).await;
                }
            }
        }
    }
}

async fn catch_up(app: &App) {
    while app.people.position() < app.log().position() && !app.stopping.is_cancelled() {
        match app.log().read(app.people.position(), PAGE).await {
            Ok(events) if events.is_empty() => return,
            Ok(events) => take(app, &events),
            Err(reason) => {
                warn!(reason = %reason, "Cannot read the log to learn who may call: {reason}");
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        }
    }
}

fn take(app: &App, events: &[Stored]) {
    if let Err(reason) = app.people.take(events) {
        error!(reason = %reason, "Cannot understand who may call: {reason}");
    }
}
