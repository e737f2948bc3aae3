//! `stead runs`: operations on installs, and approvals of their plans.
mod decide;
mod follow;
pub(crate) mod output;
pub(crate) mod plans;
mod preflight;
mod watch;

use clap::{Args, Subcommand};
use domain::ids::RunId;
use schemas::control::{
    ReasonBody,
    jobs::Cancel,
    runs::{Run, RunsQuery},
};

use decide::Decision;
use plans::DetailsMode;
pub(crate) use watch::{until_finished, until_quietly_finished};

use crate::{
    failure::Failure,
    render::{Output, Table, actor_text, moment},
    settings::{CommandContext, PageArgs, Settings},
};

#[derive(Debug, Subcommand)]
pub(crate) enum Runs {
    /// List runs, newest first
    #[command(after_help = "\
Examples:
  stead runs list
  stead runs list --install acme --state waiting_for_approval")]
    List(List),
    /// Show a run with its steps, their plans, and the reason why each step waits
    #[command(after_help = "\
Examples:
  stead runs show run_01JD…
  stead runs show acme            the newest run of the install acme
  stead runs show acme --plans    with the changes of each plan
  stead runs show acme --plans --details=full    with all values")]
    Show {
        /// Id of the run, or name of an install for its newest run
        run: String,
        /// Also print the changes of each plan
        #[arg(long)]
        plans: bool,
        /// Amount of detail in the plans [default: values, with long ones folded]
        #[arg(long, value_enum, requires = "plans")]
        details: Option<DetailsMode>,
    },
    /// Follow a run until it finishes; exit code 1 unless it succeeds. If an install has no run
    /// yet, the command waits for its first run
    #[command(after_help = "\
Examples:
  stead runs watch acme
  stead runs watch acme --until-approval    return when a plan waits for an approval")]
    Watch {
        /// Id of the run, or name of an install for its newest run
        run: String,
        /// Return when a plan waits for an approval
        #[arg(long)]
        until_approval: bool,
    },
    /// Approve waiting plans: shows each plan and prompts, unless --digest or --all selects the
    /// plans
    #[command(after_help = "\
Examples:
  stead runs approve acme --reason 'read it, looks right'       shows each plan and prompts
  stead runs approve acme --digest sha256:… --digest sha256:… --reason 'CHG-1204'
  stead runs approve acme --all --reason 'a test account'       without showing the plans
  stead runs approve acme --follow --reason 'first install'     until the run ends")]
    Approve(decide::Approve),
    /// Deny waiting plans; dependent steps are skipped
    #[command(after_help = "\
Examples:
  stead runs deny acme --step network --reason 'destroys the bucket'    shows the plan and prompts
  stead runs deny acme --digest sha256:… --reason 'CHG-1204 was rejected'")]
    Deny(decide::DecideArgs),
    /// Cancel a run and its running jobs; no further jobs start
    #[command(after_help = "Example:\n  stead runs cancel acme --reason 'wrong version'")]
    Cancel {
        /// Id of the run, or name of an install for its newest run
        run: String,
        /// Reason, recorded in the log
        #[arg(long)]
        reason: String,
        /// Shorten the grace period of running jobs to 5 seconds
        #[arg(long)]
        force: bool,
    },
    /// Retry a run: failed steps of a run in progress, or all unfinished steps in a new run
    #[command(after_help = "Example:\n  stead runs retry acme --reason 'quota was raised' --wait")]
    Retry {
        /// Id of the run, or name of an install for its newest run
        run: String,
        /// Reason, recorded in the log
        #[arg(long)]
        reason: Option<String>,
        /// Follow the run until it finishes
        #[arg(long)]
        wait: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Only runs of this install: name or id
    #[arg(long)]
    install: Option<String>,
    /// Only runs in this state: requested, running, waiting_for_approval, cancelling, succeeded,
    /// failed, cancelled, denied, expired
    #[arg(long)]
    state: Option<String>,
    #[command(flatten)]
    part: PageArgs,
}

pub(crate) async fn run(verb: Runs, settings: &Settings) -> Result<(), Failure> {
    let context = settings.context()?;
    match verb {
        Runs::List(list) => self::list(&context, list).await,
        Runs::Show { run, plans, details } => show(&context, &run, plans, details).await,
        Runs::Watch { run, until_approval } => {
            let run = watch::first(&context, &run).await?;
            watch::watch(&context, run, until_approval).await
        }
        Runs::Approve(args) => decide::approve(&context, args).await,
        Runs::Deny(args) => decide::decide(&context, Decision::Deny, args).await,
        Runs::Cancel { run, reason, force } => {
            let run = find(&context, &run).await?;
            let done = context.client.cancel_run(run, &Cancel { reason, force }).await?;
            context.screen.print_one(&done, |_| match done.changed {
                true => format!(
                    "Requested the cancellation of {run}. Follow it: stead runs watch {run}\n"
                ),
                false => format!("No change: {run} is being cancelled already, or has finished\n"),
            })
        }
        Runs::Retry { run, reason, wait } => {
            let run = find(&context, &run).await?;
            let retried = context.client.retry_run(run, &ReasonBody { reason }).await?;
            match retried.run {
                Some(run) => print_run(&context, &retried, run, "Retrying as", wait).await,
                None => context
                    .screen
                    .print_one(&retried, |_| "No changes: the run has no steps to retry\n".into()),
            }
        }
    }
}

/// Prints a new run, and follows it if `wait` is set. JSON output is one document: for a followed
/// run, its final state.
pub(crate) async fn print_run(
    context: &CommandContext,
    response: &impl serde::Serialize,
    run: RunId,
    label: &str,
    wait: bool,
) -> Result<(), Failure> {
    if !(wait && context.screen.output == Output::Json) {
        context.screen.print_one(response, |_| match wait {
            true => format!("{label} {run}.\n"),
            false => format!("{label} {run}. Follow it: stead runs watch {run}\n"),
        })?;
    }
    if wait { until_finished(context, run).await } else { Ok(()) }
}

/// Finds a run by its id, or the newest run of the install with this name.
pub(crate) async fn find(context: &CommandContext, text: &str) -> Result<RunId, Failure> {
    newest(context, text).await?.ok_or_else(|| {
        Failure::NotFound(format!(
            "cannot find a run: the install {text} has no run yet\n  try: `stead installs show {text}` shows the reason"
        ))
    })
}

/// Like [`find`]. Returns `None` if the install has no run yet.
async fn newest(context: &CommandContext, text: &str) -> Result<Option<RunId>, Failure> {
    if let Ok(id) = text.parse() {
        return Ok(Some(id));
    }
    let install = Some(text.to_owned());
    let query = RunsQuery { install, limit: Some(1), ..RunsQuery::default() };
    let page = context.client.runs(&query).await?;
    Ok(page.items.first().map(|run| run.id))
}

async fn list(context: &CommandContext, list: List) -> Result<(), Failure> {
    let List { install, state, part: PageArgs { limit, cursor } } = list;
    let query = RunsQuery { install, state, limit: Some(limit), cursor, ..RunsQuery::default() };
    let page = context.client.runs(&query).await?;
    context.screen.print_list(&page.items, "No runs.", |screen| {
        let mut table =
            Table::new(["RUN", "INSTALL", "WHAT", "STATE", "STEPS", "REQUESTED", "BY", "REASON"]);
        for run in &page.items {
            table.row([
                run.id.to_string(),
                run.install_name.clone(),
                output::operation(run),
                screen.state(&run.state),
                format!("{}/{}", run.steps_ended, run.steps),
                moment(&run.requested_at),
                actor_text(&run.requested_by, run.requested_by_name.as_deref()),
                run.reason.clone().unwrap_or_default(),
            ]);
        }
        table
    })?;
    context.more(page.next.as_deref());
    Ok(())
}

async fn show(
    context: &CommandContext,
    text: &str,
    plans: bool,
    details: Option<DetailsMode>,
) -> Result<(), Failure> {
    let run = context.client.run(find(context, text).await?).await?;
    context.screen.print_one(&run, |screen| output::run_text(&run, screen))?;
    if plans { plans::print(context, (run.run.id, &run.dag), details).await } else { Ok(()) }
}

/// Outcome of a finished run. `None` while the run is in progress.
fn outcome(run: &Run) -> Option<Result<(), Failure>> {
    match run.run.state.as_str() {
        "succeeded" => Some(Ok(())),
        "failed" | "cancelled" | "denied" | "expired" => {
            let bad = run.dag.iter().filter(|s| s.state == "failed");
            let names: Vec<_> = bad
                .map(|s| {
                    format!("{} ({})", s.name, s.reason.as_deref().unwrap_or("no reason given"))
                })
                .collect();
            let id = run.run.id;
            let state = &run.run.state;
            Some(Err(Failure::Outcome(match names.is_empty() {
                true => format!(
                    "{id} did not succeed: its state is {state}\n  try: `stead runs show {id}`"
                ),
                false => format!(
                    "{id} {state}: {}\n  try: `stead runs show {id}`, then `stead runs retry {id}`",
                    names.join(", ")
                ),
            })))
        }
        _ => None,
    }
}

/// Prints the result of a command: its run, or `no_run_text` without a run.
pub(crate) async fn print_run_or_text(
    context: &CommandContext,
    response: &impl serde::Serialize,
    run: Option<RunId>,
    no_run_text: &str,
    wait: bool,
) -> Result<(), Failure> {
    match run {
        Some(run) => print_run(context, response, run, "Requested", wait).await,
        None => context.screen.print_one(response, |_| format!("{no_run_text}\n")),
    }
}
