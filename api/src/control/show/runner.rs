//! Runners.
use domain::{
    install::Install,
    job::{Job, State as JobState},
    runner::{Runner as RunnerState, RunnerEvent},
};
use schemas::control::runners::Runner;

use super::word;
use crate::{control::read::History, problem::Problem, state::App};

/// A runner; nothing when the stream has no enrolment yet.
pub async fn runner(app: &App, history: &History<RunnerState>) -> Result<Option<Runner>, Problem> {
    let state = &history.state;
    let Some(identity) = &state.identity else { return Ok(None) };
    let install_name = match identity.install {
        Some(install) => Some(app.engine.load::<Install>(install).await?.name),
        None => None,
    };
    let reason = history.events.iter().rev().find_map(|(_, event)| match event {
        RunnerEvent::Disabled { reason, .. } | RunnerEvent::Revoked { reason } => {
            Some(reason.clone())
        }
        _ => None,
    });
    let host = &identity.host;
    let hostname = host.hostname.as_deref().map(|name| format!(" ({name})")).unwrap_or_default();
    Ok(Some(Runner {
        id: history.id.parse().map_err(Problem::internal)?,
        mode: word(&identity.mode),
        install: identity.install,
        install_name,
        state: standing(state).into(),
        disabled_by: state.disabled.iter().map(word).collect(),
        reason: reason.filter(|_| state.revoked || !state.disabled.is_empty()),
        version: identity.version.clone(),
        host: format!("{}/{}{hostname}", host.os, host.arch),
        online: None,
        jobs: held(app, &history.id).await?,
        enrolled_at: history.began(),
        silent_since: state.silent_since,
    }))
}

fn standing(state: &RunnerState) -> &'static str {
    if state.revoked {
        "revoked"
    } else if !state.disabled.is_empty() {
        "disabled"
    } else if state.silent_since.is_some() {
        "disconnected"
    } else if state.draining {
        "drained"
    } else {
        "active"
    }
}

/// The jobs that it holds now, from what it claimed in the last while.
async fn held(app: &App, runner: &str) -> Result<Vec<domain::ids::JobId>, Problem> {
    let claimed: Vec<String> = sqlx::query_scalar(
        "select aggregate_id from log_event where aggregate_type = 'job' \
         and event_type = 'job.claimed' and payload ->> 'runner' = $1 \
         order by position desc limit 64",
    )
    .bind(runner)
    .fetch_all(&app.pool)
    .await?;
    let mut jobs = Vec::new();
    for id in claimed {
        let job = app.engine.load::<Job>(&id).await?;
        let holds = match &job.state {
            JobState::Claimed(held) | JobState::Running(held) | JobState::OutcomeUnknown(held) => {
                held.runner.to_string() == runner
            }
            JobState::Unborn | JobState::Queued { .. } | JobState::Ended { .. } => false,
        };
        if holds {
            jobs.push(id.parse().map_err(Problem::internal)?);
        }
    }
    Ok(jobs)
}
