//! Expires approvals and starts scheduled retries of steps. The liveness loop applies the timeouts
//! of executions.
use std::time::Duration;

use domain::actor::Actor;
use event_log::Meta;
use projections::views::timers::{self, Timer};

use crate::{execute::Call, ids, state::App, usecases::runs};

/// Interval between checks for due timers.
const TICK: Duration = Duration::from_secs(5);
const AT_ONCE: u32 = 200;

/// Applies due timers of runs until the server stops.
pub(crate) async fn run(app: App) {
    let mut ticks = tokio::time::interval(TICK);
    loop {
        tokio::select! {
            () = app.stopping.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let due = match timers::due(&app.pool, app.now(), AT_ONCE).await {
            Ok(due) => due,
            Err(error) => {
                tracing::warn!(error = %error, "Cannot read due timers, trying again");
                continue;
            }
        };
        for due in due {
            match due.timer {
                Timer::ApprovalExpiry { run, step, digest } => {
                    let actor = Actor::Timer("approval_expiry".into());
                    let call = Call::of(Meta::new(actor, ids::new_ulid().to_string()));
                    let result = runs::expire_approval(&app, &call, run, step, digest).await;
                    let Err(problem) = result else { continue };
                    let detail = &problem.detail;
                    if problem.code.status() < 500 {
                        tracing::info!(run.id = %run, error = %detail, "Skipped the expiry of an approval");
                    } else {
                        tracing::warn!(run.id = %run, error = %detail, "Cannot expire an approval, trying again");
                    }
                }
                Timer::StepRetry { run, step, attempt } => {
                    let actor = Actor::Timer("auto_retry".into());
                    let call = Call::of(Meta::new(actor, ids::new_ulid().to_string()));
                    let started = runs::start_retry(&app, &call, run, step, attempt).await;
                    if let Err(problem) = started {
                        let error = &problem.detail;
                        tracing::warn!(run.id = %run, step.id = %step, error = %error, "Cannot start a retry");
                    }
                }
            }
        }
    }
}
