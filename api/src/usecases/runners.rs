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

/// Disable, enable, drain, resume, rekey or revoke a runner. It holds from the next call of the runner on.
pub async fn order(
    app: &App,
    call: &Call,
    runner: RunnerId,
    verb: &str,
    reason: Option<String>,
) -> Result<Done<()>, Problem> {
    let (side, by) = (Side::Vendor, call.meta.actor.clone());
    let command = match verb {
        "disable" => RunnerCommand::Disable { side, by, reason: reason.unwrap_or_default() },
        "enable" => RunnerCommand::Enable { side, by, reason },
        "drain" => RunnerCommand::Drain { by, reason },
        "resume" => RunnerCommand::Resume { by, reason },
        "rekey" => RunnerCommand::RequestRekey { by, reason },
        "revoke" => RunnerCommand::Revoke { by, reason: reason.unwrap_or_default() },
        other => return Err(Problem::not_found(format!("the order {other:?}"))),
    };
    let told = app.engine.transact(call, move |unit| {
        let command = command.clone();
        async move { unit.tell::<Runner>(runner, command).await.map(drop) }.boxed()
    });
    let told = told.await?;
    app.people.caught_up(told.position).await;
    Ok(told)
}
