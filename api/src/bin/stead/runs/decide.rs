//! A person's word on plans.
use std::io::IsTerminal as _;

use clap::Args;
use domain::digest::Digest;
use schemas::control::runs::{ApproveRun, DenyRun, Run, Step};

use super::{find, picture, until_finished};
use crate::{failure::Failure, render::write, settings::Desk};

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
    /// The digest of a plan that you read; may be repeated; refused when it is another one by now
    #[arg(long = "digest", value_name = "DIGEST")]
    digests: Vec<Digest>,
    /// Whatever waits now, read or not
    #[arg(long, conflicts_with = "digests")]
    all: bool,
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
    let asks = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    for (step, digest) in named(&run, &steps, &ask, asks)? {
        if !ask.all && ask.digests.is_empty() && !reads(desk, &run, step, &digest).await? {
            desk.screen.remark(&format!("{} waits on.", step.name));
            continue;
        }
        let word = ApproveRun { step: step.id, digest, reason: ask.reason.clone() };
        let done = desk.client.approve(run.run.id, &word).await?;
        desk.screen.one(&done, |_| match &step.plan {
            Some(plan) => {
                let (add, change, destroy) = (plan.add, plan.change, plan.destroy);
                let counts = format!("+{add} ~{change} -{destroy}");
                format!("Approved {}: {counts}, plan {}\n", step.name, word.digest)
            }
            None => format!("Approved {}: plan {}\n", step.name, word.digest),
        })?;
    }
    if ask.wait { until_finished(desk, run.run.id).await } else { Ok(()) }
}

/// Which plans the word is on: those that were read, never those that happen to wait by now.
fn named<'r>(
    run: &Run,
    steps: &[&'r Step],
    ask: &Approve,
    asks: bool,
) -> Result<Vec<(&'r Step, Digest)>, Failure> {
    let id = run.run.id;
    if let ([digest], [step], Some(_)) = (ask.digests.as_slice(), steps, &ask.step) {
        // The server knows best whether it is still the plan that waits.
        return Ok(vec![(*step, digest.clone())]);
    }
    if !ask.digests.is_empty() {
        let of = |digest: &Digest| {
            let has = |step: &&&Step| step.plan.as_ref().is_some_and(|p| p.digest == *digest);
            let step = steps.iter().find(has).map(|step| (*step, digest.clone()));
            step.ok_or_else(|| {
                Failure::NotFound(format!(
                    "no plan of {id} that waits is {digest}\n  try: `stead runs show {id} --plans` shows those that do"
                ))
            })
        };
        return ask.digests.iter().map(of).collect();
    }
    if !ask.all && !asks {
        return Err(Failure::Usage(format!(
            "nobody can be asked here: say which plans you read\n  try: `stead runs show {id} --plans`, then --digest sha256:… for each; or --all for whatever waits"
        )));
    }
    let planned = steps.iter().filter_map(|step| Some((*step, step.plan.as_ref()?.digest.clone())));
    let planned: Vec<_> = planned.collect();
    if planned.is_empty() {
        let names: Vec<_> = steps.iter().map(|step| step.name.as_str()).collect();
        return Err(Failure::NotFound(format!(
            "there is no plan of {} yet\n  try: `stead runs show {id}` says what it waits for",
            names.join(", ")
        )));
    }
    Ok(planned)
}

/// Show a plan and ask. If it is planned again in between, the digest is not that of the plan that
/// waits, and the server refuses it.
async fn reads(desk: &Desk, run: &Run, step: &Step, digest: &Digest) -> Result<bool, Failure> {
    let summary = desk.client.plan(run.run.id, step.id).await?;
    let text = picture::plan(&step.name, &summary, &desk.screen);
    write(&format!("{text}  plan {digest}\nApprove {}? [y/N] ", step.name))?;
    let mut said = String::new();
    let heard = std::io::stdin().read_line(&mut said);
    heard.map_err(|error| Failure::Usage(format!("cannot read the answer: {error}")))?;
    Ok(matches!(said.trim(), "y" | "Y" | "yes"))
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

#[cfg(test)]
mod tests;
