//! Creates the partitions of the event log in advance if the server's database role may create
//! tables. Otherwise `stead migrate` creates them.
use std::time::Duration;

use event_log::partitions::{AHEAD, create_missing};

use crate::state::App;

/// Interval between checks. With the default partition size, the head does not fill the empty
/// partition ahead of it in this time.
const CHECK_INTERVAL: Duration = Duration::from_secs(10 * 60);

/// Keeps a partition available ahead of the head until the server stops.
pub(crate) async fn run(app: App) {
    loop {
        match create_missing(app.owner(), app.config.partition_events, AHEAD).await {
            Ok(created) => {
                for created in created {
                    let (first, last) = (created.first, created.last);
                    tracing::info!(first, last, "Created a partition of the log");
                }
            }
            // Appends do not wait for a partition. Rows without one go to the default partition,
            // which can later be attached as a regular partition.
            Err(error) => {
                tracing::warn!(error = %error, "Cannot create partitions of the log; new events go to the default partition until DATABASE_OWNER_URL is set or `stead migrate` runs");
            }
        }
        tokio::select! {
            () = app.stopping.cancelled() => return,
            () = tokio::time::sleep(CHECK_INTERVAL) => {}
        }
    }
}
