//! Decision about several plans of a run in one commit.
use domain::{
    ids::RunId,
    run::{PlanDecision, Run, RunCommand},
};
use futures::FutureExt as _;

use super::steps;
use crate::{
    execute::{Call, Done},
    problem::Problem,
    state::App,
};

/// Approves or denies all these plans, or none of them if one cannot be decided.
pub(crate) async fn decide_all(
    app: &App,
    call: &Call,
    run: RunId,
    plans: Vec<PlanDecision>,
    approves: bool,
) -> Result<Done<()>, Problem> {
    let decided = app.engine.transact(call, move |unit| {
        let plans = plans.clone();
        async move {
            for plan in plans {
                let command = match approves {
                    true => RunCommand::Approve(plan),
                    false => RunCommand::Deny(plan),
                };
                unit.handle::<Run>(run, command).await?;
            }
            steps::release_finished(unit, run).await
        }
        .boxed()
    });
    decided.await
}
