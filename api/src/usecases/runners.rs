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
    let command = match verb {
        "disable" => {
            RunnerCommand::Disable { by: Side::Vendor, reason: reason.unwrap_or_default() }
        }
        "enable" => RunnerCommand::Enable { by: Side::Vendor, reason },
        "drain" => RunnerCommand::Drain { reason },
        "resume" => RunnerCommand::Resume { reason },
        "rekey" => RunnerCommand::RequestRekey { reason },
        "revoke" => RunnerCommand::Revoke { reason: reason.unwrap_or_default() },
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
