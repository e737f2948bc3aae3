//! Verifies the log from its stored bytes. At the start, verifies the events after the last
//! published checkpoint. Verifies the whole log some minutes later, and then daily.
use std::time::Duration;

use event_log::verify::{Verified, VerifyError, verify};

use crate::{metrics::Metrics, state::App};

/// Schedule of the complete verification. The random wait prevents servers that start together from
/// reading at the same time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// Minimum wait before the first verification. The maximum is twice as long.
    pub first: Duration,
    /// Interval between later verifications.
    pub every: Duration,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { first: Duration::from_secs(300), every: Duration::from_secs(24 * 3600) }
    }
}

/// Verifies the log until the server stops.
pub(crate) async fn run(app: App, pace: Pace) {
    let mut from = app.log().latest_checkpoint().await.unwrap_or(0);
    let mut wait = pace.first.mul_f64(1.0 + rand::random::<f64>());
    loop {
        tokio::select! {
            () = app.stopping.cancelled() => return,
            verified = verify_from(&app, from) => update_metrics(&app.metrics, from, &verified),
        }
        tokio::select! {
            () = app.stopping.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
        (from, wait) = (0, pace.every);
    }
}

/// Verifies the log from a position, and the published checkpoints too if the position is 0. A log
/// that was recomputed completely is consistent in itself but contradicts its checkpoints.
async fn verify_from(app: &App, from: u64) -> Result<Verified, VerifyError> {
    let verified = verify(app.log(), from, |_| {}).await?;
    if from == 0 {
        let keys = app.keys.current().seal_keys();
        app.log().verify_checkpoints(&keys).await?;
    }
    Ok(verified)
}

fn update_metrics(metrics: &Metrics, from: u64, verified: &Result<Verified, VerifyError>) {
    match verified {
        Ok(Verified { size, checked, reported, .. }) => {
            metrics.log_verified_position.set(*size);
            metrics.log_corrupt_position.set(0);
            let forged = reported.wrong.first().map_or(0, |first| first.position);
            // A partial verification does not count earlier forged reports, so it must not clear
            // the alarm.
            if from == 0 || forged > 0 {
                metrics.log_forged_position.set(forged);
            }
            if from == 0 {
                metrics.log_unsigned_results.set(reported.tally.unsigned);
            }
            if let Some(first) = reported.tally.first_unsigned {
                let unsigned = reported.tally.unsigned;
                tracing::warn!(
                    position = first,
                    after_position = from,
                    unsigned,
                    "Results in the log have no signature of a runner; see docs/audit.md"
                );
            }
            for wrong in &reported.wrong {
                tracing::error!(
                    position = wrong.position,
                    difference = %wrong,
                    "Forged report in the log; see docs/operations.md"
                );
            }
            tracing::info!(size, checked, "Verified the log");
        }
        Err(VerifyError::Differs(difference)) => {
            metrics.log_corrupt_position.set(difference.position);
            tracing::error!(
                position = difference.position,
                difference = %difference,
                "Log is corrupt or was tampered with; stop the servers, preserve this database and see docs/operations.md"
            );
        }
        Err(VerifyError::Log(error)) => {
            tracing::warn!(error = %error, "Cannot verify the log, trying again later");
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::actor::Actor;
    use event_log::{
        Commit, Meta, NewEvent, StreamId, Write,
        verify::{Difference, Reported},
    };
    use proof::report::ReportCounts;

    use super::*;
    use crate::server::testing::Started;

    /// Waits until the metrics contain this line.
    async fn has_metric(app: &App, line: &str) -> bool {
        for _ in 0..200 {
            if app.metrics.text().lines().any(|metric| metric == line) {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        false
    }

    fn verified(wrong: Vec<Difference>, tally: ReportCounts) -> Result<Verified, VerifyError> {
        let reported = Reported { tally, wrong };
        Ok(Verified { size: 9, root: [0; 32], chain: [0; 32], checked: 9, reported })
    }

    #[test]
    fn partial_verification_clears_no_alarm_and_counts_nothing() {
        let metrics = Metrics::default();
        let one = || vec![Difference { position: 7, what: "invented".into() }];
        let unsigned =
            ReportCounts { unsigned: 2, first_unsigned: Some(3), ..ReportCounts::default() };
        let gauge = |name: &str| {
            let text = metrics.text();
            let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
            line.map(str::to_owned)
        };
        let after = |from, wrong, tally| {
            update_metrics(&metrics, from, &verified(wrong, tally));
            (gauge("stead_log_forged_position"), gauge("stead_log_unsigned_results"))
        };
        let is = |value: &str| Some(value.to_owned());
        assert_eq!(after(5, vec![], unsigned), (None, None));
        assert_eq!(after(5, one(), unsigned), (is("7"), None));
        assert_eq!(after(5, vec![], unsigned), (is("7"), None));
        assert_eq!(after(0, vec![], unsigned), (is("0"), is("2")));
    }

    #[tokio::test]
    async fn tampering_is_detected_while_the_server_runs() {
        let started = Started::new().await;
        let app = started.app().clone();
        let soon = Duration::from_millis(50);
        tokio::spawn(run(app.clone(), Pace { first: soon, every: soon }));
        assert!(has_metric(&app, "stead_log_corrupt_position 0").await, "{}", app.metrics.text());
        assert!(has_metric(&app, "stead_log_forged_position 0").await, "{}", app.metrics.text());
        // A party with write access to the log can add a result but cannot sign it.
        let end = NewEvent {
            event_type: "job.succeeded".into(),
            event_version: "1".into(),
            payload: r#"{"type":"succeeded","execution":"exe_01ARZ3NDEKTSV4RRFFQ69G5FAV","seq":3,"exit_code":0,
                "signed":{"statement":"{}","key":"00","signature":"00"}}"#
                .into(),
            customer: None,
        };
        let stream = StreamId::new("job", "job_01ARZ3NDEKTSV4RRFFQ69G5FAV");
        let write = Write { stream, expected: 0, events: vec![end] };
        let meta = Meta::new(Actor::System, "cmd");
        let at = app.log().append(Commit::of(meta, vec![write])).await.unwrap().last;
        let line = format!("stead_log_forged_position {at}");
        assert!(has_metric(&app, &line).await, "{line}: {}", app.metrics.text());
        // Tampers with a payload, and with a salt. The changed salt makes the row an invalid event.
        for (position, change) in [(3, "payload = '{\"type\":\"other\"}'"), (2, "salt = '\\x00'")] {
            let change = format!("update log_event set {change} where position = {position}");
            sqlx::query(&change).execute(&app.pool).await.unwrap();
            let line = format!("stead_log_corrupt_position {position}");
            assert!(has_metric(&app, &line).await, "{line}: {}", app.metrics.text());
        }
        // Without its head the log is unreadable.
        sqlx::query("delete from log_head").execute(&app.pool).await.unwrap();
        let line = "stead_log_corrupt_position 1";
        assert!(has_metric(&app, line).await, "{}", app.metrics.text());
        started.server.stop().await;
    }
}
