//! Deletes runner uploads that no report references within a day, and counts the bytes of the
//! remaining uploads.
use std::time::Duration;

use event_log::upload;

use crate::state::App;

/// Interval at which expired uploads are deleted and the others counted.
const TICK: Duration = Duration::from_secs(60);

/// Deletes and counts uploads until the server stops.
pub(crate) async fn run(app: App) {
    let mut ticks = tokio::time::interval(TICK);
    loop {
        tokio::select! {
            () = app.stopping.cancelled() => return,
            _ = ticks.tick() => {}
        }
        if let Err(error) = collect(&app).await {
            tracing::warn!(error = %error, "Cannot delete uploads that no report references");
        }
    }
}

async fn collect(app: &App) -> Result<(), sqlx::Error> {
    let collected = upload::delete_expired(&app.pool, app.log().clock()).await?;
    app.metrics.uploads_collected.inc_by(collected);
    let waiting = upload::unreferenced_bytes(&app.pool).await?;
    app.metrics.uploads_bytes.set(waiting);
    Ok(())
}
