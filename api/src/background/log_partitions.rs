//! Makes the partitions of the log ahead, where the server may make tables. Where it may not, `stead migrate` does.
use std::time::Duration;

use event_log::partitions::{AHEAD, make};

use crate::state::App;

/// How often is looked: the head is a whole partition away from having none.
const LOOK: Duration = Duration::from_secs(10 * 60);

/// Keep a partition ahead until the server stops.
pub async fn run(app: App) {
    loop {
        match make(app.owner(), app.config.partition_events, AHEAD).await {
            Ok(made) => {
                for made in made {
                    let (first, last) = (made.first, made.last);
                    tracing::info!(first, last, "Created a partition of the log");
                }
            }
            // Nothing waits for it: what has no partition goes into the rest, and becomes one as it is.
            Err(error) => {
                tracing::warn!(reason = %error, "The log gets no partitions ahead, and goes into log_event_default; give DATABASE_OWNER_URL, or run `stead migrate`: {error}");
            }
        }
        tokio::select! {
            () = app.stopping.cancelled() => return,
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}
