//! Faults that tests inject: see [`proof::fault_injection`].
use proof::fault_injection::{Fault, has};

use crate::{dispatch::TimeoutCommand, state::App};

/// Changes the projection row of an overdue job without an event. Returns true if the fault is
/// active and the timeout belongs to a job.
pub(super) async fn reap_by_update(app: &App, due: &TimeoutCommand) -> bool {
    let TimeoutCommand::Job { job, .. } = due else { return false };
    if !has(Fault::ReaperByUpdate) {
        return false;
    }
    let update = "update projection_job_queue set waiting = false where key = $1";
    let _ = sqlx::query(update).bind(job.to_string()).execute(&app.pool).await;
    true
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::time::Duration;

    use domain::job::{JobCommand, JobKind};
    use proof::fault_injection::{Fault, inject};
    use tests::oracle;
    use ulid::Ulid;

    use crate::server::testing::{Started, append_commands, work};

    /// Findings of the oracle after queued jobs have exceeded their time limit.
    async fn after_waits_that_were_too_long() -> Vec<String> {
        let started = Started::new().await;
        let app = started.app();
        let manifest = event_log::blob::put(&app.pool, b"{}").await.unwrap();
        let mut work = work(JobKind::Build, manifest);
        work.queue_ttl_ms = 1;
        for _ in 0..3 {
            append_commands(
                app,
                domain::ids::JobId(Ulid::new()),
                vec![JobCommand::Queue(work.clone())],
            )
            .await;
        }
        tokio::time::sleep(Duration::from_millis(2_500)).await;
        oracle::check_all(&app.pool, &[]).await
    }

    /// If the server expires queued jobs with events, projections and log agree. If the server
    /// changes only the rows, the oracle finds the difference.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn oracle_finds_rows_changed_without_events() {
        assert_eq!(after_waits_that_were_too_long().await, [] as [String; 0]);
        let _fault = inject(Fault::ReaperByUpdate);
        let found = after_waits_that_were_too_long().await;
        assert!(found.iter().any(|what| what.starts_with("job_queue: ")), "{found:?}");
    }
}
