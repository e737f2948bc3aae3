//! What the vendor tells a runner.
use domain::{
    ids::RunnerId,
    runner::{Runner, RunnerCommand, Side},
};
use futures::FutureExt as _;

use crate::{
    execute::{Call, Done},
    problem::Problem,
    state::App,
};

/// What a runner is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Take nothing more until it is enabled.
    Disable,
    /// Take work again.
    Enable,
    /// Finish what there is and take no more.
    Drain,
    /// Take work again after a drain.
    Resume,
    /// Make a new identity key.
    Rekey,
    /// Be heard no more.
    Revoke,
}

/// Tell a runner. It holds from the next call of the runner on.
pub async fn order(
    app: &App,
    call: &Call,
    runner: RunnerId,
    order: Order,
    reason: Option<String>,
) -> Result<Done<()>, Problem> {
    let (side, by) = (Side::Vendor, call.meta.actor.clone());
    let command = match order {
        Order::Disable => RunnerCommand::Disable { side, by, reason: reason.unwrap_or_default() },
        Order::Enable => RunnerCommand::Enable { side, by, reason },
        Order::Drain => RunnerCommand::Drain { by, reason },
        Order::Resume => RunnerCommand::Resume { by, reason },
        Order::Rekey => RunnerCommand::RequestRekey { by, reason },
        Order::Revoke => RunnerCommand::Revoke { by, reason: reason.unwrap_or_default() },
    };
    let told = app.engine.transact(call, move |unit| {
        let command = command.clone();
        async move { unit.tell::<Runner>(runner, command).await.map(drop) }.boxed()
    });
    let told = told.await?;
    app.people.caught_up(told.position).await;
    Ok(told)
}
