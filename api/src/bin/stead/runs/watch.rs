//! Following a run: one line for each thing that happens to it, and its picture at the end.
use std::{collections::HashMap, time::Duration};

use api::client::{ClientError, server_events};
use domain::ids::{RunId, StepId};
use futures::{StreamExt, pin_mut};
use schemas::control::{
    audit::ChangesQuery,
    runs::{Run, Step},
};

use super::{newest, outcome, picture};
use crate::{
    failure::Failure,
    render::{Output, write},
    settings::Desk,
};

/// Without a word from the server for so long, ask anyway: what a run waits for may change without it.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// The run to follow. An install begins its first one by itself, when its runner has enrolled: that is waited for.
pub async fn first(desk: &Desk, named: &str) -> Result<RunId, Failure> {
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

/// Follow to the end; how the run ended is how the command ends.
pub async fn until_finished(desk: &Desk, run: RunId) -> Result<(), Failure> {
    watch(desk, run, false).await
}

/// Follow to the end, or to the first plan that waits for a decision.
pub async fn watch(desk: &Desk, run: RunId, until_approval: bool) -> Result<(), Failure> {
    follow(desk, run, Hints::Show, async |_: &Run| Ok(until_approval)).await
}

/// Whether commands that approve a plan are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hints {
    Show,
    Hide,
}

/// Follow to the end. With a plan that waits for a decision, `waiting` is called at each look, and ends it with `true`.
pub async fn follow(
    desk: &Desk,
    run: RunId,
    hints: Hints,
    mut waiting: impl AsyncFnMut(&Run) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let mut bar = desk.screen.spinner("");
    let mut shown = Shown::default();
    loop {
        // Listen first, then look: what happens in between is heard.
        let query = ChangesQuery { after: None, stream: Some(format!("run/{run}")) };
        let events = match desk.client.changes(&query).await {
            Ok(answer) => server_events(answer),
            Err(gone @ ClientError::Unreachable { .. }) => {
                bar.set_message(format!("{gone}; trying again"));
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
            let news = bar.suspend(|| shown.news(desk, &now, hints));
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
                desk.screen.one(&now, |screen| format!("\n{}", picture::of(&now, screen)))?;
                return ended.unwrap_or(Ok(()));
            }
            match tokio::time::timeout(LOOK_AGAIN, events.next()).await {
                // A step that moved, or nothing for a while: look.
                Ok(Some(Ok(_))) | Err(_) => {}
                Ok(Some(Err(_)) | None) => break,
            }
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// What was seen of each step at the last look, and what it was last said to wait for.
#[derive(Default)]
struct Shown(HashMap<StepId, Seen>);

#[derive(Default)]
struct Seen {
    state: String,
    waiting: Option<String>,
    said: Option<String>,
}

impl Shown {
    /// Print the steps that moved since the last look, and those that did not and wait for something.
    fn news(&mut self, desk: &Desk, run: &Run, hints: Hints) -> Result<(), Failure> {
        let width = run.dag.iter().map(|s| s.name.len() + s.kind.len() + 1).max().unwrap_or(0);
        for step in &run.dag {
            let seen = self.0.entry(step.id).or_default();
            let moved = seen.state != step.state;
            // Both pass without an action of the user.
            let passes = |on: &str| matches!(on, "dependency" | "server");
            let waiting = step.waiting.as_ref().filter(|waiting| !passes(&waiting.on));
            let waiting = waiting.map(|w| w.detail.clone());
            // What is over by the next look is no news.
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
                tell(desk, run, step, width, stuck || hint || step.reason.is_some())?;
            }
        }
        Ok(())
    }
}

fn tell(desk: &Desk, run: &Run, step: &Step, width: usize, why: bool) -> Result<(), Failure> {
    match desk.screen.output {
        Output::Table if desk.screen.is_quiet() => Ok(()),
        Output::Table => {
            let flat = Step { layer: 0, ..step.clone() };
            let mut text = picture::line(&flat, width, &desk.screen);
            if why {
                text += &picture::below(&flat, &run.run.install_name, &desk.screen);
            }
            write(&text)
        }
        Output::Ndjson => write(&format!("{}\n", serde_json::to_string(step)?)),
        // One document, at the end.
        Output::Json => Ok(()),
    }
}
