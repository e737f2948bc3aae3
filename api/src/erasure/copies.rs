//! Copies of installs' data that the log names. Reads every event up to the present head, archived ones included,
//! because projections may lag.
use std::collections::{BTreeSet, HashSet};

use domain::{digest::Digest, ids::InstallId, job::Origin};
use event_log::Stored;
use serde::Deserialize;

use crate::{problem::Problem, state::App};

/// Number of events that are read at once.
const PAGE: u32 = 2_000;

/// Copies of some installs' data, as the log names them.
#[derive(Default)]
pub(super) struct Copies {
    installs: HashSet<InstallId>,
    jobs: HashSet<String>,
    runs: HashSet<String>,
    executions: BTreeSet<String>,
    /// Manifests and plan summaries, without those that other installs' jobs have, too.
    digests: BTreeSet<String>,
}

impl Copies {
    pub(super) async fn of(app: &App, installs: &[InstallId]) -> Result<Copies, Problem> {
        let mut copies =
            Copies { installs: installs.iter().copied().collect(), ..Copies::default() };
        if installs.is_empty() {
            return Ok(copies);
        }
        let to = app.log().current_position().await?;
        each(app, to, |event| copies.take(event)).await?;
        if !copies.digests.is_empty() {
            // Plans of two installs may have identical bytes: such a plan belongs to the other install, too.
            each(app, to, |event| copies.leave(event)).await?;
        }
        Ok(copies)
    }

    pub(super) fn executions(&self) -> Vec<String> {
        self.executions.iter().cloned().collect()
    }

    pub(super) fn digests(&self) -> Vec<String> {
        self.digests.iter().cloned().collect()
    }

    /// Whether a stream is of one of the installs, their runs or jobs.
    pub(super) fn has_stream(&self, id: &str) -> bool {
        self.jobs.contains(id)
            || self.runs.contains(id)
            || id.parse().is_ok_and(|install: InstallId| self.installs.contains(&install))
    }

    fn take(&mut self, event: &Stored) {
        let id = &event.stream.aggregate_id;
        match &*event.event_type {
            "run.requested" => {
                let install = named(event).install;
                if install.is_some_and(|install| self.installs.contains(&install)) {
                    self.runs.insert(id.clone());
                }
            }
            "job.queued" => {
                let named = named(event);
                let of_step = |origin: Origin| match origin {
                    Origin::Step { install, .. } => Some(install),
                    Origin::Build { .. } => None,
                };
                let install = named.origin.and_then(of_step);
                if install.is_some_and(|install| self.installs.contains(&install)) {
                    self.jobs.insert(id.clone());
                    self.digests.extend(named.manifest.map(|digest| digest.to_string()));
                }
            }
            "job.claimed" if self.jobs.contains(id) => {
                self.executions.extend(named(event).execution);
            }
            "job.plan_produced" if self.jobs.contains(id) => {
                self.digests.extend(summary(event));
            }
            _ => {}
        }
    }

    fn leave(&mut self, event: &Stored) {
        if event.event_type == "job.plan_produced"
            && !self.jobs.contains(&event.stream.aggregate_id)
            && let Some(summary) = summary(event)
        {
            self.digests.remove(&summary);
        }
    }
}

/// Fields of events without personal data, which are read without decryption.
#[derive(Default, Deserialize)]
struct Named {
    execution: Option<String>,
    manifest: Option<Digest>,
    plan: Option<Plan>,
    origin: Option<Origin>,
    install: Option<InstallId>,
}

#[derive(Deserialize)]
struct Plan {
    summary: Option<Digest>,
}

fn named(event: &Stored) -> Named {
    serde_json::from_str(&event.payload).unwrap_or_default()
}

fn summary(event: &Stored) -> Option<String> {
    Some(named(event).plan?.summary?.to_string())
}

/// Read all events up to a position.
async fn each(app: &App, to: u64, mut take: impl FnMut(&Stored)) -> Result<(), Problem> {
    let mut at = 0;
    while at < to {
        let page = app.log().read(at, PAGE).await?;
        let Some(last) = page.last() else { break };
        at = last.position;
        page.iter().filter(|event| event.position <= to).for_each(&mut take);
    }
    Ok(())
}
