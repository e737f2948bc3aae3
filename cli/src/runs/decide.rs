//! `stead runs approve` and `stead runs deny`.
use std::io::IsTerminal as _;

use clap::Args;
use domain::digest::Digest;
use schemas::control::{
    ChangeResult,
    runs::{ApproveRun, DenyRun, Run, Step},
};
use serde::Serialize;

use super::{
    find,
    follow::{self, Follow, discard_typed},
    output,
    plans::{self, DetailsMode},
    until_finished,
};
use crate::{
    failure::Failure,
    render::{Output, write},
    settings::CommandContext,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    Approve,
    Deny,
}

#[derive(Debug, Args)]
pub(crate) struct DecideArgs {
    /// Id of the run, or name of an install for its newest run
    run: String,
    /// Reason, recorded in the log
    #[arg(long)]
    reason: String,
    /// Decide only on this step: name or id [default: every waiting step]
    #[arg(long)]
    step: Option<String>,
    /// Digest of a plan that you have read; may be repeated. The command fails if the plan
    /// has changed
    #[arg(long = "digest", value_name = "DIGEST")]
    digests: Vec<Digest>,
    /// Decide on all waiting plans without showing them
    #[arg(long, conflicts_with = "digests")]
    all: bool,
    /// Amount of detail in the plans [default: values, with long ones folded]
    #[arg(long, value_enum)]
    details: Option<DetailsMode>,
    /// Follow the run until it finishes
    #[arg(long)]
    wait: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Approve {
    #[command(flatten)]
    decision: DecideArgs,
    /// Continue with later plans until the run ends; prompts for each plan unless --all is set
    #[arg(long, conflicts_with_all = ["step", "digests", "wait"])]
    follow: bool,
}

/// Approves the waiting plans. With `--follow`, approves the plans of the run until its end.
pub(crate) async fn approve(context: &CommandContext, args: Approve) -> Result<(), Failure> {
    let Approve { decision, follow } = args;
    if !follow {
        return decide(context, Decision::Approve, decision).await;
    }
    let DecideArgs { run, reason, all, details, .. } = decision;
    follow::approve(context, &run, Follow { reason, all, details }).await
}

/// Result of a decision on one plan.
#[derive(Debug, Serialize)]
struct DecisionResult {
    step: String,
    decision: &'static str,
    digest: Digest,
    #[serde(flatten)]
    done: ChangeResult,
}

pub(crate) async fn decide(
    context: &CommandContext,
    decision: Decision,
    args: DecideArgs,
) -> Result<(), Failure> {
    let run = context.client.run(find(context, &args.run).await?).await?;
    let steps = waiting_steps(&run, args.step.as_deref())?;
    let asks = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let (id, mut results, mut declined) = (run.run.id, Vec::new(), Vec::new());
    for (step, digest) in select_plans(&run, &steps, &args, asks)? {
        let unread = !args.all && args.digests.is_empty();
        let shown = (decision, &digest, args.details);
        if unread && !confirmed(context, (&run, step), shown).await? {
            declined.push(step.name.as_str());
            continue;
        }
        let (step, reason) = (step, args.reason.clone());
        let done = match decision {
            Decision::Approve => {
                let body = ApproveRun { step: step.id, digest: digest.clone(), reason };
                context.client.approve(id, &body).await?
            }
            Decision::Deny => {
                let body = DenyRun { step: step.id, digest: digest.clone(), reason };
                context.client.deny(id, &body).await?
            }
        };
        let result =
            DecisionResult { step: step.name.clone(), decision: decision.past(), digest, done };
        match context.screen.output {
            Output::Table | Output::Ndjson => {
                context.screen.print_one(&result, |_| line(step, &result))?
            }
            // JSON output is one document, printed at the end.
            Output::Json => results.push(result),
        }
    }
    if context.screen.output == Output::Json && !(args.wait && declined.is_empty()) {
        context.screen.print_one(&results, |_| String::new())?;
    }
    if !declined.is_empty() {
        let (past, names) = (decision.past(), declined.join(", "));
        return Err(Failure::Outcome(format!(
            "not {past}: {names}; each plan still waits for a decision"
        )));
    }
    if args.wait { until_finished(context, id).await } else { Ok(()) }
}

impl Decision {
    /// Imperative form for the prompt.
    fn present(self) -> &'static str {
        match self {
            Decision::Approve => "Approve",
            Decision::Deny => "Deny",
        }
    }

    fn past(self) -> &'static str {
        match self {
            Decision::Approve => "approved",
            Decision::Deny => "denied",
        }
    }
}

fn line(step: &Step, result: &DecisionResult) -> String {
    let counts = step.plan.as_ref().map(output::counts).unwrap_or_default();
    format!("{} {}: {counts}, plan {}\n", result.step, result.decision, result.digest)
}

/// Selects the plans to decide on: those with a digest on the command line, otherwise those of
/// `steps`. A plan that becomes ready later is not selected.
fn select_plans<'r>(
    run: &Run,
    steps: &[&'r Step],
    args: &DecideArgs,
    asks: bool,
) -> Result<Vec<(&'r Step, Digest)>, Failure> {
    let id = run.run.id;
    if let ([digest], [step], Some(_)) = (args.digests.as_slice(), steps, &args.step) {
        // The server checks whether this is still the current plan.
        return Ok(vec![(*step, digest.clone())]);
    }
    if !args.digests.is_empty() {
        let of = |digest: &Digest| {
            let has = |step: &&&Step| step.plan.as_ref().is_some_and(|p| p.digest == *digest);
            let step = steps.iter().find(has).map(|step| (*step, digest.clone()));
            step.ok_or_else(|| {
                Failure::NotFound(format!(
                    "cannot decide on the plan {digest}: no waiting plan of {id} has this digest\n  try: `stead runs show {id} --plans` shows the waiting plans"
                ))
            })
        };
        return args.digests.iter().map(of).collect();
    }
    if !args.all && !asks {
        return Err(Failure::Usage(format!(
            "cannot prompt for a decision: no terminal\n  try: `stead runs show {id} --plans`, then --digest sha256:… for each plan; or --all for all waiting plans"
        )));
    }
    let planned = steps.iter().filter_map(|step| Some((*step, step.plan.as_ref()?.digest.clone())));
    let planned: Vec<_> = planned.collect();
    if planned.is_empty() {
        let names: Vec<_> = steps.iter().map(|step| step.name.as_str()).collect();
        return Err(Failure::NotFound(format!(
            "cannot decide: no plan exists yet for {}\n  try: `stead runs show {id}` shows the reason why each step waits",
            names.join(", ")
        )));
    }
    Ok(planned)
}

/// Shows a plan and asks for confirmation. If the step is planned again meanwhile, the server
/// rejects the old digest.
async fn confirmed(
    context: &CommandContext,
    (run, step): (&Run, &Step),
    (decision, digest, details): (Decision, &Digest, Option<DetailsMode>),
) -> Result<bool, Failure> {
    let text = plans::text(context, (run.run.id, step), details).await?;
    let verb = decision.present();
    write(&format!("{text}  plan {digest}\n{verb} {}? [y/N] ", step.name))?;
    discard_typed(std::io::stdin())?;
    let mut input = String::new();
    let read = std::io::stdin().read_line(&mut input);
    read.map_err(|error| Failure::Usage(format!("cannot read the confirmation: {error}")))?;
    Ok(matches!(input.trim(), "y" | "Y" | "yes"))
}

/// Returns the steps that wait for approval, or the named step.
fn waiting_steps<'r>(run: &'r Run, step_name: Option<&str>) -> Result<Vec<&'r Step>, Failure> {
    let id = run.run.id;
    if let Some(name) = step_name {
        let step = run.dag.iter().find(|s| s.name == name || s.id.to_string() == name);
        let missing = || {
            Failure::NotFound(format!(
                "cannot decide on the step {name}: {id} has no such step\n  try: `stead runs show {id}` to list its steps"
            ))
        };
        return step.map(|s| vec![s]).ok_or_else(missing);
    }
    let steps: Vec<_> = run.dag.iter().filter(|s| s.state == "waiting_for_approval").collect();
    if steps.is_empty() {
        return Err(Failure::NotFound(format!(
            "cannot decide: no plan of {id} waits for approval (the run is {})\n  try: `stead runs show {id}`",
            run.run.state.replace('_', " ")
        )));
    }
    Ok(steps)
}

#[cfg(test)]
mod tests;
