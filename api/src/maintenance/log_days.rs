//! Creates the daily partitions of job logs in advance if the server's database role may create
//! tables. Otherwise `stead migrate` creates them.
use std::time::Duration;

use crate::{logs::days, state::App};

/// Interval between checks.
const CHECK_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// Keeps partitions for the next days available until the server stops.
pub(crate) async fn run(app: App) {
    loop {
        match days::create_missing(app.owner(), app.now().date_naive(), days::AHEAD).await {
            Ok(created) => {
                if let Some(last) = created.last() {
                    tracing::info!(days = created.len(), %last, "Created partitions of job logs");
                }
            }
            // No log bytes are lost, because rows without a daily partition go to the default
            // partition. The rows move when their partition is created.
            Err(error) => {
                tracing::warn!(error = %error, "Cannot create daily partitions of job logs; set DATABASE_OWNER_URL, or run `stead migrate` every quarter");
            }
        }
        tokio::select! {
            () = app.stopping.cancelled() => return,
            () = tokio::time::sleep(CHECK_INTERVAL) => {}
        }
    }
}
