//! A person's word on plans.
use clap::Args;
use domain::digest::Digest;
use schemas::control::runs::{ApproveRun, DenyRun, Run, Step};

use super::{find, until_finished};
use crate::{failure::Failure, settings::Desk};

#[derive(Debug, Args)]
pub struct Approve {
    /// The run's id, or an install's name for its newest run
    run: String,
    /// Why, for the log
    #[arg(long)]
    reason: String,
    /// Only this step: its name or id; without it every step that waits
    #[arg(long)]
    step: Option<String>,
    /// The digest of the plan that you read: refused when it is another one by now
    #[arg(long, requires = "step")]
    digest: Option<Digest>,
    /// Then follow the run until it finishes
    #[arg(long)]
    wait: bool,
}

#[derive(Debug, Args)]
pub struct Deny {
    /// The run's id, or an install's name for its newest run
    run: String,
    /// Why, for the log
    #[arg(long)]
    reason: String,
    /// Which step: its name or id; not needed when only one waits
    #[arg(long)]
    step: Option<String>,
}

pub async fn approve(desk: &Desk, ask: Approve) -> Result<(), Failure> {
    let run = desk.client.run(find(desk, &ask.run).await?).await?;
    let steps = waiting(&run, ask.step.as_deref())?;
    for step in steps {
        let Some(plan) = &step.plan else { continue };
        let digest = ask.digest.clone().unwrap_or_else(|| plan.digest.clone());
        let word = ApproveRun { step: step.id, digest, reason: ask.reason.clone() };
        let done = desk.client.approve(run.run.id, &word).await?;
        desk.screen.one(&done, |_| {
            let (add, change, destroy) = (plan.add, plan.change, plan.destroy);
            format!("Approved {}: +{add} ~{change} -{destroy}, plan {}\n", step.name, word.digest)
        })?;
    }
    if ask.wait { until_finished(desk, run.run.id).await } else { Ok(()) }
}

pub async fn deny(desk: &Desk, ask: Deny) -> Result<(), Failure> {
    let run = desk.client.run(find(desk, &ask.run).await?).await?;
    let steps = waiting(&run, ask.step.as_deref())?;
    let [step] = steps.as_slice() else {
        let names: Vec<_> = steps.iter().map(|s| s.name.as_str()).collect();
        let names = names.join(", ");
        return Err(Failure::Usage(format!("{names} wait\n  try: name one with --step")));
    };
    let word = DenyRun { step: step.id, reason: ask.reason };
    let done = desk.client.deny(run.run.id, &word).await?;
    desk.screen.one(&done, |_| format!("Denied {}.\n", step.name))
}

/// The steps that wait for a word, or the one that is named.
fn waiting<'r>(run: &'r Run, named: Option<&str>) -> Result<Vec<&'r Step>, Failure> {
    let id = run.run.id;
    if let Some(name) = named {
        let step = run.dag.iter().find(|s| s.name == name || s.id.to_string() == name);
        let missing = || {
            Failure::NotFound(format!(
                "{id} has no step {name}\n  try: `stead runs show {id}` lists them"
            ))
        };
        return step.map(|s| vec![s]).ok_or_else(missing);
    }
    let steps: Vec<_> = run.dag.iter().filter(|s| s.state == "waiting_for_approval").collect();
    if steps.is_empty() {
        return Err(Failure::NotFound(format!(
            "no plan of {id} waits for a decision (it is {})\n  try: `stead runs show {id}`",
            run.run.state.replace('_', " ")
        )));
    }
    Ok(steps)
}
