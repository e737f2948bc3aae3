//! Findings about installs: failed runs that no later run has repaired, and drift. Lists of them have no
//! route of their own, so each authorizes by the list that it selects from.
use std::collections::BTreeMap;

use domain::{
    ids::InstallId,
    run::{StepState, Target},
};
use projections::views::{
    runs::{self as views, Row},
    waiting,
};
use schemas::control::{installs::ComponentDrift, runs::RunSummary};

use super::{lookup::Lookup, show};
use crate::{extract::Caller, problem::Problem, state::App};

/// Maximum number of failed runs that a summary reads.
const FAILED_RUNS: u32 = 50;

/// Install with components that differ from their config.
#[derive(Debug, Clone)]
pub(crate) struct Drifted {
    /// Newest check that found drift.
    pub check: RunSummary,
    /// Components that were not deployed since.
    pub components: BTreeMap<String, ComponentDrift>,
}

/// Lists the newest failed runs that no later run of the install has repaired.
pub(crate) async fn failed_runs(app: &App, caller: &Caller) -> Result<Vec<RunSummary>, Problem> {
    caller.authorize("GET", "/v1/runs")?;
    let rows = views::unrepaired(&app.pool, FAILED_RUNS).await?;
    Ok(summaries(app, &rows).await?.into_iter().map(|(_, summary)| summary).collect())
}

/// Lists the installs with drift, the newest check first.
pub(crate) async fn drifted(
    app: &App,
    caller: &Caller,
    limit: u32,
) -> Result<Vec<Drifted>, Problem> {
    caller.authorize("GET", "/v1/runs")?;
    let rows = views::with_drift(&app.pool, limit).await?;
    let mut found: Vec<Drifted> = Vec::new();
    for (row, check) in summaries(app, &rows).await? {
        let Some(install) = row.install() else { continue };
        if found.iter().any(|earlier| earlier.check.install == install) {
            continue;
        }
        let components = of_install(app, install).await?;
        if !components.is_empty() {
            found.push(Drifted { check, components });
        }
    }
    Ok(found)
}

/// Returns the drift of each component of an install.
pub(super) async fn of_install(
    app: &App,
    install: InstallId,
) -> Result<BTreeMap<String, ComponentDrift>, sqlx::Error> {
    Ok(newest_results(&views::since_drift(&app.pool, install).await?))
}

async fn summaries<'r>(
    app: &App,
    rows: &'r [Row],
) -> Result<Vec<(&'r Row, RunSummary)>, sqlx::Error> {
    let (mut look, mut items) = (Lookup::new(app), Vec::new());
    look.for_runs(rows).await?;
    for row in rows {
        items.extend(show::summary(&mut look, row).await?.map(|summary| (row, summary)));
    }
    Ok(items)
}

/// Returns the components whose newest successful step is a check that found drift. The runs are sorted
/// newest first. A deploy, a destroy and a clean check end the drift; a failed step does not.
fn newest_results(runs: &[Row]) -> BTreeMap<String, ComponentDrift> {
    let mut results: BTreeMap<&str, Option<ComponentDrift>> = BTreeMap::new();
    for run in runs {
        for step in &run.state.steps {
            match (&step.state, &step.spec.target) {
                (
                    StepState::Succeeded { .. },
                    Target::Sandbox { .. } | Target::Component { .. },
                ) => {
                    let drift = || drift(run, step);
                    results.entry(waiting::name(&step.spec.target)).or_insert_with(drift);
                }
                (
                    StepState::Succeeded { .. }
                    | StepState::Waiting
                    | StepState::Planning { .. }
                    | StepState::AwaitingApproval { .. }
                    | StepState::Approved { .. }
                    | StepState::Applying { .. }
                    | StepState::Executing { .. }
                    | StepState::RetryScheduled { .. }
                    | StepState::Failed { .. }
                    | StepState::Skipped { .. },
                    _,
                ) => {}
            }
        }
    }
    results.into_iter().filter_map(|(name, drift)| Some((name.to_owned(), drift?))).collect()
}

/// Returns the drift that a step found.
fn drift(run: &Row, step: &domain::run::Step) -> Option<ComponentDrift> {
    let plan = run.plans.get(&step.spec.step).filter(|_| views::has_drift(step))?;
    let found_at = run.times.get(&step.spec.step).and_then(|times| times.ended_at);
    Some(ComponentDrift {
        run: run.run,
        found_at: found_at.unwrap_or(run.requested_at),
        add: plan.add,
        change: plan.change,
        destroy: plan.destroy,
    })
}
