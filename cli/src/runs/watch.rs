//! Follows a run: prints one line per change, and the whole run at its end.
use std::{collections::HashMap, time::Duration};

use crate::client::{ClientError, server_events};
use domain::ids::{RunId, StepId};
use futures::{StreamExt, pin_mut};
use schemas::control::{
    audit::ChangesQuery,
    runs::{Run, Step},
};

use super::{newest, outcome, output};
use crate::{
    failure::Failure,
    render::{Output, write},
    settings::CommandContext,
};

/// Interval of polls without events: the reason that a step waits can change without an event of
/// the run.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Returns the run to follow. Waits for the first run of an install, which starts when its runner
/// enrols.
pub(crate) async fn first(desk: &CommandContext, named: &str) -> Result<RunId, Failure> {
    let mut said = false;
    loop {
        if let Some(run) = newest(desk, named).await? {
            return Ok(run);
        }
        if !said {
            desk.screen.remark(&format!(
                "{named} has no run yet; `stead installs show {named}` shows what it waits for"
            ));
        }
        said = true;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Follows a run to its end. Returns its outcome.
pub(crate) async fn until_finished(desk: &CommandContext, run: RunId) -> Result<(), Failure> {
    watch(desk, run, false).await
}

/// Follows a run to its end, or to the first plan that waits for approval.
pub(crate) async fn watch(
    desk: &CommandContext,
    run: RunId,
    until_approval: bool,
) -> Result<(), Failure> {
    follow(desk, run, Hints::Show, async |_: &Run| Ok(until_approval)).await
}

/// Selects whether `follow` prints the commands that approve a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hints {
    Show,
    Hide,
}

/// Follows a run to its end. Calls `waiting` at each poll with a plan that waits for approval, and
/// stops if it returns `true`.
pub(crate) async fn follow(
    desk: &CommandContext,
    run: RunId,
    hints: Hints,
    mut waiting: impl AsyncFnMut(&Run) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let mut bar = desk.screen.spinner("");
    let mut shown = PrintedSteps::default();
    loop {
        // Subscribe before reading, so that no event in between is missed.
        let query = ChangesQuery { after: None, stream: Some(format!("run/{run}")) };
        let events = match desk.client.changes(&query).await {
            Ok(answer) => server_events(answer),
            Err(gone @ ClientError::Unreachable { .. }) => {
                bar.set_message(format!("{gone}; retrying"));
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        pin_mut!(events);
        loop {
            let now = match desk.client.run(run).await {
                Ok(now) => now,
                Err(ClientError::Unreachable { .. }) => break,
                Err(error) => return Err(error.into()),
            };
            bar.set_message(format!("{} of {} steps finished", now.run.steps_ended, now.run.steps));
            let news = bar.suspend(|| shown.print_changes(desk, &now, hints));
            news?;
            let ended = outcome(&now);
            let mut asked = false;
            if ended.is_none() && now.dag.iter().any(|s| s.state == "waiting_for_approval") {
                // The spinner and a question cannot share a line.
                bar.finish_and_clear();
                asked = waiting(&now).await?;
                bar = desk.screen.spinner("");
            }
            if ended.is_some() || asked {
                bar.finish_and_clear();
                desk.screen
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

/// State of each step at the last poll, with the last printed reason for its wait.
#[derive(Default)]
struct PrintedSteps(HashMap<StepId, PrintedStep>);

#[derive(Default)]
struct PrintedStep {
    state: String,
    waiting: Option<String>,
    said: Option<String>,
}

impl PrintedSteps {
    /// Prints the steps that have changed since the last poll, and unchanged ones that wait.
    fn print_changes(
        &mut self,
        desk: &CommandContext,
        run: &Run,
        hints: Hints,
    ) -> Result<(), Failure> {
        let width = run.dag.iter().map(|s| s.name.len() + s.kind.len() + 1).max().unwrap_or(0);
        for step in &run.dag {
            let seen = self.0.entry(step.id).or_default();
            let moved = seen.state != step.state;
            // These two waits end without an action of the user.
            let passes = |on: &str| matches!(on, "dependency" | "server");
            let waiting = step.waiting.as_ref().filter(|waiting| !passes(&waiting.on));
            let waiting = waiting.map(|w| w.detail.clone());
            // A wait that ends before the next poll is not printed.
            let stuck =
                !moved && waiting.is_some() && seen.waiting == waiting && seen.said != waiting;
            let asks = moved && step.state == "waiting_for_approval";
            let news = (moved && step.state != "pending") || stuck;
            if stuck || asks {
                seen.said.clone_from(&waiting);
            }
            seen.state.clone_from(&step.state);
            seen.waiting = waiting;
            if news {
                let hint = asks && hints == Hints::Show;
                print_step(desk, run, step, width, stuck || hint || step.reason.is_some())?;
            }
        }
        Ok(())
    }
}

fn print_step(
    desk: &CommandContext,
    run: &Run,
    step: &Step,
    width: usize,
    why: bool,
) -> Result<(), Failure> {
    match desk.screen.output {
        Output::Table if desk.screen.is_quiet() => Ok(()),
        Output::Table => {
            let flat = Step { layer: 0, ..step.clone() };
            let mut text = output::line(&flat, width, &desk.screen);
            if why {
                text += &output::step_details(&flat, &run.run.install_name, &desk.screen);
            }
            write(&text)
        }
        Output::Ndjson => write(&format!("{}\n", serde_json::to_string(step)?)),
        // JSON output is one document, printed at the end.
        Output::Json => Ok(()),
    }
}
