//! Makes the days of job logs ahead, where the server may make tables. Where it may not, `stead migrate` does.
use std::time::Duration;

use crate::{logs::days, state::App};

/// How often is looked.
const LOOK: Duration = Duration::from_secs(60 * 60);

/// Keep the days ahead until the server stops.
pub async fn run(app: App) {
    loop {
        match days::make(app.owner(), app.now().date_naive(), days::AHEAD).await {
            Ok(made) => {
                if let Some(last) = made.last() {
                    tracing::info!(days = made.len(), %last, "Created partitions of job logs");
                }
            }
            // Nothing is lost: what has no day goes into the rest, and from there when its day is made.
            Err(error) => {
                tracing::warn!(reason = %error, "Job logs get no partition a day, only a common one; give DATABASE_OWNER_URL, or run `stead migrate` every quarter: {error}");
            }
        }
        tokio::select! {
            () = app.stopping.cancelled() => return,
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}
