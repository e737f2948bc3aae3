//! Approvals that nobody gave in time. What is due about executions, the liveness loop tells.
use std::time::Duration;

use domain::actor::Actor;
use event_log::Meta;
use projections::views::timers::{self, Timer};

use crate::{execute::Call, state::App, usecases::runs};

/// How late an approval may expire.
const TICK: Duration = Duration::from_secs(5);
const AT_ONCE: u32 = 200;

/// Look for due approvals until the server stops.
pub async fn run(app: App) {
    let mut ticks = tokio::time::interval(TICK);
    loop {
        tokio::select! {
            () = app.stopping.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let due = match timers::due_of_runs(&app.pool, app.now(), AT_ONCE).await {
            Ok(due) => due,
            Err(error) => {
                tracing::warn!(reason = %error, "Timers wait for the database: {error}");
                continue;
            }
        };
        for due in due {
            match due.timer {
                Timer::ApprovalExpiry { run, step, digest } => {
                    let actor = Actor::Timer("approval_expiry".into());
                    let call = Call::of(Meta::new(actor, ulid::Ulid::new().to_string()));
                    let said = runs::expire_approval(&app, &call, run, step, digest).await;
                    let Err(problem) = said else { continue };
                    let detail = &problem.detail;
                    if problem.code.status() < 500 {
                        tracing::info!(run.id = %run, reason = %detail, "Approval does not expire");
                    } else {
                        tracing::warn!(run.id = %run, reason = %detail, "An approval of {run} could not expire yet: {detail}");
                    }
                }
                Timer::StepRetry { run, step, attempt } => {
                    let actor = Actor::Timer("auto_retry".into());
                    let call = Call::of(Meta::new(actor, ulid::Ulid::new().to_string()));
                    let started = runs::start_retry(&app, &call, run, step, attempt).await;
                    if let Err(problem) = started {
                        let error = &problem.detail;
                        tracing::warn!(run.id = %run, step.id = %step, error = %error, "Cannot start a retry");
                    }
                }
                // Of jobs: the dispatcher has a clock of its own for each that it watches.
                Timer::QueueExpiry { .. }
                | Timer::Deadline { .. }
                | Timer::CancelConfirmation { .. }
                | Timer::LogFinalization { .. } => {}
            }
        }
    }
}
