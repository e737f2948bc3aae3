//! `stead runs approve` and `stead runs deny`.
use std::{io::IsTerminal as _, time::Duration};

use clap::Args;
use domain::{digest::Digest, ids::RunId};
use schemas::control::{
    ChangeResult,
    runs::{ApproveRun, DenyRun, Run, Step},
};
use serde::Serialize;

use super::{
    find,
    follow::{self, Follow, discard_typed},
    outcome, output,
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
    let run = until_planned(context, find(context, &args.run).await?).await?;
    let steps = waiting_steps(&run, args.step.as_deref())?;
    let asks = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let (id, mut results, mut declined) = (run.run.id, Vec::new(), Vec::new());
    let selected = select_plans(&run, &steps, &args, asks)?;
    let unread = !args.all && args.digests.is_empty();
    for group in groups(&run, selected) {
        if unread && !confirmed(context, &run, &group, (decision, args.details)).await? {
            declined.extend(group.iter().map(|(step, _)| step.name.as_str()));
            continue;
        }
        for (step, digest) in group {
            let done = send(context, (id, step), (decision, &digest), &args.reason).await?;
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
    }
    if context.screen.output == Output::Json && !(args.wait && declined.is_empty()) {
        context.screen.print_one(&results, |_| String::new())?;
    }
    if let Some(later) = later_text(&run) {
        context.screen.remark(&later);
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

/// Sends a decision on a plan.
async fn send(
    context: &CommandContext,
    (run, step): (RunId, &Step),
    (decision, digest): (Decision, &Digest),
    reason: &str,
) -> Result<ChangeResult, Failure> {
    let (step, digest, reason) = (step.id, digest.clone(), reason.to_owned());
    Ok(match decision {
        Decision::Approve => {
            context.client.approve(run, &ApproveRun { step, digest, reason }).await?
        }
        Decision::Deny => context.client.deny(run, &DenyRun { step, digest, reason }).await?,
    })
}

/// Shows plans and asks for one confirmation. If a step is planned again meanwhile, the server
/// rejects the old digest.
async fn confirmed(
    context: &CommandContext,
    run: &Run,
    plans: &[(&Step, Digest)],
    (decision, details): (Decision, Option<DetailsMode>),
) -> Result<bool, Failure> {
    for (step, digest) in plans {
        let text = plans::text(context, (run.run.id, step), details).await?;
        write(&format!("{text}  plan {digest}\n"))?;
    }
    write(&prompt(run, decision.present(), plans))?;
    discard_typed(std::io::stdin())?;
    let mut input = String::new();
    let read = std::io::stdin().read_line(&mut input);
    read.map_err(|error| Failure::Usage(format!("cannot read the confirmation: {error}")))?;
    Ok(matches!(input.trim(), "y" | "Y" | "yes"))
}

/// Groups plans by prompt. A user decides once on all plans of a run with `plan_all`.
pub(super) fn groups<T>(run: &Run, plans: Vec<T>) -> Vec<Vec<T>> {
    match run.plan_all {
        true if plans.is_empty() => vec![],
        true => vec![plans],
        false => plans.into_iter().map(|plan| vec![plan]).collect(),
    }
}

/// Returns the prompt for a decision on these plans.
pub(super) fn prompt(run: &Run, verb: &str, plans: &[(&Step, Digest)]) -> String {
    match plans {
        [(step, _)] => format!("{verb} {}? [y/N] ", step.name),
        plans => {
            let later = later_text(run).map(|text| format!("{text}\n")).unwrap_or_default();
            format!("\n{later}{verb} these {} plans? [y/N] ", plans.len())
        }
    }
}

/// Lists the steps that are planned after a change of this run.
pub(super) fn later_text(run: &Run) -> Option<String> {
    let later = run.dag.iter().filter(|step| step.approval_later);
    let names: Vec<&str> = later.map(|step| step.name.as_str()).collect();
    let text = || format!("Approval later, after changes of this run: {}", names.join(", "));
    (!names.is_empty()).then(text)
}

/// Returns the run, after a run with `plan_all` has made the plans before its first change.
async fn until_planned(context: &CommandContext, run: RunId) -> Result<Run, Failure> {
    let bar = context.screen.spinner("waiting for the plans of the run");
    let planned = loop {
        let now = context.client.run(run).await?;
        if !now.awaits_plans || outcome(&now).is_some() {
            break now;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    };
    bar.finish_and_clear();
    Ok(planned)
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
