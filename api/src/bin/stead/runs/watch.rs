//! Following a run: one line for each thing that happens to it, and its picture at the end.
use std::{collections::HashMap, time::Duration};

use api::client::{ClientError, server_events};
use domain::ids::{RunId, StepId};
use futures::{StreamExt, pin_mut};
use schemas::control::{
    audit::ChangesQuery,
    runs::{Run, Step},
};

use super::{outcome, picture};
use crate::{
    failure::Failure,
    render::{Output, write},
    settings::Desk,
};

/// Without a word from the server for so long, ask anyway: what a run waits for may change without it.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Follow to the end; how the run ended is how the command ends.
pub async fn until_finished(desk: &Desk, run: RunId) -> Result<(), Failure> {
    watch(desk, run, false).await
}

/// Follow to the end, or to the first plan that waits for a decision.
pub async fn watch(desk: &Desk, run: RunId, until_approval: bool) -> Result<(), Failure> {
    let bar = desk.screen.spinner("");
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
            bar.set_message(format!("{} of {} steps are over", now.run.steps_ended, now.run.steps));
            let news = bar.suspend(|| shown.news(desk, &now));
            news?;
            let ended = outcome(&now);
            let asked = until_approval && now.dag.iter().any(|s| s.state == "waiting_for_approval");
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

/// What has been printed already.
#[derive(Default)]
struct Shown(HashMap<StepId, (String, Option<String>)>);

impl Shown {
    /// Print the steps that moved since the last look.
    fn news(&mut self, desk: &Desk, run: &Run) -> Result<(), Failure> {
        let width = run.dag.iter().map(|s| s.name.len() + s.kind.len() + 1).max().unwrap_or(0);
        for step in &run.dag {
            let is = (step.state.clone(), step.waiting.as_ref().map(|w| w.detail.clone()));
            let was = self.0.insert(step.id, is.clone());
            let silent = step.state == "pending" && was.is_none();
            if was.as_ref() == Some(&is) || silent {
                continue;
            }
            match desk.screen.output {
                Output::Table => {
                    let flat = Step { layer: 0, ..step.clone() };
                    write(&picture::line(&flat, width, &desk.screen))?;
                }
                Output::Ndjson => write(&format!("{}\n", serde_json::to_string(step)?))?,
                // One document, at the end.
                Output::Json => {}
            }
        }
        Ok(())
    }
}
