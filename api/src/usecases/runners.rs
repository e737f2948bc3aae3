//! Control of runners by the vendor.
use domain::{
    ids::RunnerId,
    runner::{Runner, RunnerCommand, Side},
};
use futures::FutureExt as _;
use serde::Deserialize;

use crate::{
    execute::{Call, Done},
    problem::Problem,
    state::App,
};

/// Control command for a runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RunnerControl {
    /// Disable the runner: it gets no jobs until it is enabled.
    Disable,
    Enable,
    /// Drain the runner: it finishes its jobs and accepts no further jobs.
    Drain,
    /// Resume after a drain.
    Resume,
    /// Request a new identity key from the runner.
    Rekey,
    Revoke,
}

/// Applies a control command to a runner, effective from the runner's next request.
pub(crate) async fn apply_control(
    app: &App,
    call: &Call,
    runner: RunnerId,
    order: RunnerControl,
    reason: Option<String>,
) -> Result<Done<()>, Problem> {
    let (side, by) = (Side::Vendor, call.meta.actor.clone());
    let command = match order {
        RunnerControl::Disable => {
            RunnerCommand::Disable { side, by, reason: reason.unwrap_or_default() }
        }
        RunnerControl::Enable => RunnerCommand::Enable { side, by, reason },
        RunnerControl::Drain => RunnerCommand::Drain { by, reason },
        RunnerControl::Resume => RunnerCommand::Resume { by, reason },
        RunnerControl::Rekey => RunnerCommand::RequestRekey { by, reason },
        RunnerControl::Revoke => RunnerCommand::Revoke { by, reason: reason.unwrap_or_default() },
    };
    let changed = app.engine.transact(call, move |unit| {
        let command = command.clone();
        async move { unit.handle::<Runner>(runner, command).await.map(drop) }.boxed()
    });
    let changed = changed.await?;
    app.principals.wait_for_position(changed.position).await;
    Ok(changed)
}
