//! Follows a run: prints one line per change, and the whole run at its end.
use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use crate::client::{ClientError, server_events};
use domain::ids::{RunId, StepId};
use futures::{StreamExt, pin_mut};
use schemas::control::{
    audit::ChangesQuery,
    runs::{Preflight, Run, Step},
};
use serde_json::json;

use super::{newest, outcome, output, preflight};
use crate::{
    failure::Failure,
    render::{Output, write},
    settings::CommandContext,
};

/// Interval of polls without events. The reason why a step waits can change without an event of the
/// run.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Returns the run to follow. Waits for the first run of an install, which starts when its runner
/// enrols.
pub(crate) async fn first(context: &CommandContext, text: &str) -> Result<RunId, Failure> {
    let mut reported = false;
    loop {
        if let Some(run) = newest(context, text).await? {
            return Ok(run);
        }
        if !reported {
            context.screen.remark(&format!(
                "{text} has no run yet; `stead installs show {text}` shows the reason"
            ));
        }
        reported = true;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Follows a run to its end. Returns its outcome.
pub(crate) async fn until_finished(context: &CommandContext, run: RunId) -> Result<(), Failure> {
    watch(context, run, false).await
}

/// Waits for the end of a run and returns it, whatever its outcome. Shows only the number of finished
/// steps, and each step that waits for another run.
pub(crate) async fn until_quietly_finished(
    context: &CommandContext,
    run: RunId,
) -> Result<Run, Failure> {
    let bar = context.screen.spinner("");
    let mut held = HeldSteps::default();
    let waited = async {
        loop {
            match context.client.run(run).await {
                Ok(now) if outcome(&now).is_some() => return Ok(now),
                Ok(now) => {
                    let waiting = now.dag.iter().find_map(|step| step.waiting.as_ref());
                    let waiting = waiting
                        .map(|waiting| format!(", waiting for {}: {}", waiting.on, waiting.detail));
                    let (ended, steps) = (now.run.steps_ended, now.run.steps);
                    let waiting = waiting.unwrap_or_default();
                    bar.set_message(format!("{ended} of {steps} steps finished{waiting}"));
                    for remark in held.new_remarks(context, &now).await? {
                        bar.suspend(|| context.screen.remark(&remark));
                    }
                }
                Err(unreachable @ ClientError::Unreachable { .. }) => {
                    bar.set_message(format!("{unreachable}; retrying"));
                }
                Err(error) => return Err(Failure::from(error)),
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    let ended = tokio::select! {
        ended = waited => ended,
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            Err(Failure::Interrupted(format!(
                "stopped waiting for {run}; the run continues\n  try: `stead runs cancel {run} --reason …` cancels it"
            )))
        }
    };
    bar.finish_and_clear();
    ended
}

/// Steps that waited for another run at the last poll, and those of them that were reported.
#[derive(Default)]
struct HeldSteps {
    last: HashSet<(StepId, RunId)>,
    reported: HashSet<(StepId, RunId)>,
}

impl HeldSteps {
    /// Describes the steps that wait for another run since the last poll or longer, once per step
    /// and run.
    async fn new_remarks(
        &mut self,
        context: &CommandContext,
        run: &Run,
    ) -> Result<Vec<String>, Failure> {
        let held = |step: &Step| {
            let waiting = step.waiting.as_ref().filter(|waiting| waiting.on == "reservation")?;
            Some(((step.id, waiting.run?), format!("{} waits: {}", step.name, waiting.detail)))
        };
        let held: Vec<_> = run.dag.iter().filter_map(held).collect();
        let mut remarks = vec![];
        for (key, text) in &held {
            if !self.last.contains(key) || self.reported.contains(key) {
                continue;
            }
            let other = match context.client.run(key.1).await {
                Ok(other) => other.run,
                // The next poll tries again.
                Err(ClientError::Unreachable { .. }) => continue,
                Err(error) => return Err(error.into()),
            };
            self.reported.insert(*key);
            let (operation, state) = (output::operation(&other), other.state.replace('_', " "));
            remarks.push(format!(
                "{text} ({operation}, {state})\n  try: `stead runs show {}`; to give up waiting: `stead runs cancel {} --reason …`",
                other.id, run.run.id
            ));
        }
        self.last = held.into_iter().map(|(key, _)| key).collect();
        Ok(remarks)
    }
}

/// Follows a run to its end, or to the first plan that waits for approval.
pub(crate) async fn watch(
    context: &CommandContext,
    run: RunId,
    until_approval: bool,
) -> Result<(), Failure> {
    follow(context, run, Hints::Show, async |_: &Run| Ok(until_approval)).await
}

/// Selects whether `follow` prints the commands that approve a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hints {
    Show,
    Hide,
}

/// Follows a run to its end. At each poll with a plan that waits for approval, calls `waiting`, and
/// stops if `waiting` returns `true`.
pub(crate) async fn follow(
    context: &CommandContext,
    run: RunId,
    hints: Hints,
    mut waiting: impl AsyncFnMut(&Run) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let mut bar = context.screen.spinner("");
    let mut printed = PrintedSteps::default();
    loop {
        // Subscribe before reading, so that no event in between is missed.
        let query = ChangesQuery { after: None, stream: Some(format!("run/{run}")) };
        let events = match context.client.changes(&query).await {
            Ok(response) => server_events(response),
            Err(unreachable @ ClientError::Unreachable { .. }) => {
                bar.set_message(format!("{unreachable}; retrying"));
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        pin_mut!(events);
        loop {
            let now = match context.client.run(run).await {
                Ok(now) => now,
                Err(ClientError::Unreachable { .. }) => break,
                Err(error) => return Err(error.into()),
            };
            bar.set_message(format!("{} of {} steps finished", now.run.steps_ended, now.run.steps));
            let printed_changes = bar.suspend(|| printed.print_changes(context, &now, hints));
            printed_changes?;
            let ended = outcome(&now);
            let mut waits = false;
            if ended.is_none() && now.dag.iter().any(|s| s.state == "waiting_for_approval") {
                // The spinner and a prompt cannot share a line.
                bar.finish_and_clear();
                waits = waiting(&now).await?;
                bar = context.screen.spinner("");
            }
            if ended.is_some() || waits {
                bar.finish_and_clear();
                context
                    .screen
                    .print_one(&now, |screen| format!("\n{}", output::run_text(&now, screen)))?;
                return ended.unwrap_or(Ok(()));
            }
            match tokio::time::timeout(POLL_INTERVAL, events.next()).await {
                // A step has changed, or the poll interval has passed: read again.
                Ok(Some(Ok(_))) | Err(_) => {}
                Ok(Some(Err(_)) | None) => break,
            }
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// State of the preflight and of each step at the last poll, with the last printed reason for the
/// wait of a step.
#[derive(Default)]
struct PrintedSteps {
    preflight: Option<String>,
    steps: HashMap<StepId, PrintedStep>,
}

#[derive(Default)]
struct PrintedStep {
    state: String,
    waiting: Option<String>,
    printed_reason: Option<String>,
}

impl PrintedSteps {
    /// Prints the steps that have changed since the last poll, and waiting steps whose reason is
    /// not printed yet.
    fn print_changes(
        &mut self,
        context: &CommandContext,
        run: &Run,
        hints: Hints,
    ) -> Result<(), Failure> {
        if let Some(preflight) = &run.preflight
            && self.preflight.as_ref() != Some(&preflight.state)
        {
            self.preflight = Some(preflight.state.clone());
            if preflight.state != "pending" {
                print_preflight(context, preflight)?;
            }
        }
        let width = run.dag.iter().map(|s| s.name.len() + s.kind.len() + 1).max().unwrap_or(0);
        for step in &run.dag {
            let printed = self.steps.entry(step.id).or_default();
            let changed = printed.state != step.state;
            // A wait for a dependency, the preflight, a plan or the server ends without an action of the user.
            let ends_without_user =
                |on: &str| matches!(on, "dependency" | "server" | "preflight" | "plans");
            let waiting = step.waiting.as_ref().filter(|waiting| !ends_without_user(&waiting.on));
            let waiting = waiting.map(|w| w.detail.clone());
            // A wait that ends before the next poll is not printed.
            let is_stuck = !changed
                && waiting.is_some()
                && printed.waiting == waiting
                && printed.printed_reason != waiting;
            let needs_approval = changed && step.state == "waiting_for_approval";
            let print = (changed && step.state != "pending") || is_stuck;
            if is_stuck || needs_approval {
                printed.printed_reason.clone_from(&waiting);
            }
            printed.state.clone_from(&step.state);
            printed.waiting = waiting;
            if print {
                let hint = needs_approval && hints == Hints::Show;
                print_step(context, run, step, width, is_stuck || hint || step.reason.is_some())?;
            }
        }
        Ok(())
    }
}

fn print_preflight(context: &CommandContext, preflight: &Preflight) -> Result<(), Failure> {
    match context.screen.output {
        Output::Table if context.screen.is_quiet() => Ok(()),
        Output::Table => write(&preflight::text(preflight, &context.screen)),
        Output::Ndjson => write(&format!("{}\n", json!({ "preflight": preflight }))),
        // JSON output is one document, printed at the end.
        Output::Json => Ok(()),
    }
}

fn print_step(
    context: &CommandContext,
    run: &Run,
    step: &Step,
    width: usize,
    with_details: bool,
) -> Result<(), Failure> {
    match context.screen.output {
        Output::Table if context.screen.is_quiet() => Ok(()),
        Output::Table => {
            let flat = Step { layer: 0, ..step.clone() };
            let mut text = output::line(&flat, width, &context.screen);
            if with_details {
                text += &output::step_details(&flat, &run.run.install_name, &context.screen);
            }
            write(&text)
        }
        Output::Ndjson => write(&format!("{}\n", serde_json::to_string(step)?)),
        // JSON output is one document, printed at the end.
        Output::Json => Ok(()),
    }
}
