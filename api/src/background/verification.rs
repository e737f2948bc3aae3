//! Reads the log again and believes nothing: at the start what is newer than the last published checkpoint, then
//! everything once a day. A server that was started on a damaged log must not sign on top of it unheard.
use std::time::Duration;

use event_log::{
    LogError,
    verify::{Difference, Verified, VerifyError, verify},
};
use tokio::time::{MissedTickBehavior, interval};

use crate::state::App;

/// How often everything is read.
pub const DAILY: Duration = Duration::from_secs(24 * 3600);

/// Look until the server stops.
pub async fn run(app: App, every: Duration) {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut from = app.log().newest_seal().await.unwrap_or(0);
    loop {
        tokio::select! {
            () = app.stopping.cancelled() => return,
            _ = ticks.tick() => {}
        }
        tokio::select! {
            () = app.stopping.cancelled() => return,
            seen = look(&app, from) => tell(&app, &seen),
        }
        from = 0;
    }
}

/// A log that was computed anew as a whole holds together; what was published of it before does not.
async fn look(app: &App, from: u64) -> Result<Verified, VerifyError> {
    let verified = verify(&app.pool, from, |_| {}).await?;
    if from == 0 {
        let keys = app.keys.current().checkpoint_keys();
        match app.log().check_seals(&keys).await {
            Ok(_) => {}
            Err(LogError::Damaged { position, what }) => {
                return Err(Difference { position, what }.into());
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(verified)
}

fn tell(app: &App, seen: &Result<Verified, VerifyError>) {
    match seen {
        Ok(Verified { size, checked, .. }) => {
            app.metrics.set("stead_log_verified_position", &[], *size as f64);
            app.metrics.set("stead_log_damaged_position", &[], 0.0);
            tracing::info!(size, checked, "The log is what it says it is, up to position {size}");
        }
        Err(VerifyError::Differs(difference)) => {
            app.metrics.set("stead_log_damaged_position", &[], difference.position as f64);
            tracing::error!(
                position = difference.position,
                "The log was damaged or rewritten at {difference}; stop the servers, keep this database as it is and \
                 see \"A log that does not verify\" in docs/operations.md"
            );
        }
        Err(VerifyError::Log(error)) => {
            tracing::warn!(reason = %error, "The log cannot be verified now: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::testing::Started;

    /// Waits until the metrics say so.
    async fn says(app: &App, line: &str) -> bool {
        for _ in 0..200 {
            if app.metrics.text().lines().any(|said| said == line) {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        false
    }

    #[tokio::test]
    async fn a_log_that_somebody_changed_is_found_while_the_server_runs() {
        let started = Started::new().await;
        let app = started.app().clone();
        tokio::spawn(run(app.clone(), Duration::from_millis(50)));
        assert!(says(&app, "stead_log_damaged_position 0").await, "{}", app.metrics.text());
        let change = "update log_event set payload = '{\"type\":\"other\"}' where position = 2";
        sqlx::query(change).execute(&app.pool).await.unwrap();
        assert!(says(&app, "stead_log_damaged_position 2").await, "{}", app.metrics.text());
        started.server.stop().await;
    }
}
