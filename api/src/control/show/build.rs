//! Builds.
use domain::{
    app::App as AppState,
    build::{Build as BuildState, BuildEvent, State},
    job::Job,
};
use schemas::control::builds::{Artifact, Build};

use super::{waiting, word};
use crate::{control::read::History, problem::Problem, state::App};

/// A build; nothing when the stream has no order yet.
pub async fn build(app: &App, history: &History<BuildState>) -> Result<Option<Build>, Problem> {
    let Some(order) = &history.state.order else { return Ok(None) };
    let of = app.engine.load::<AppState>(order.app).await?;
    let ended = |event: &BuildEvent| {
        matches!(event, BuildEvent::Succeeded { .. } | BuildEvent::Failed { .. })
    };
    let job = history.events.iter().rev().find_map(|(_, event)| match event {
        BuildEvent::JobQueued { job } => Some(*job),
        BuildEvent::Requested(_)
        | BuildEvent::Succeeded { .. }
        | BuildEvent::Failed { .. }
        | BuildEvent::Awaited { .. } => None,
    });
    let mut build = Build {
        id: history.id.parse().map_err(Problem::internal)?,
        app: order.app,
        app_name: of.name.unwrap_or_default(),
        component: order.component,
        component_name: order.component_name.clone(),
        kind: order.kind.clone(),
        config_version: order.config_version,
        source: order.source.clone(),
        state: "requested".into(),
        job,
        artifact: None,
        reason: None,
        detail: None,
        waiting: None,
        requested_at: history.began(),
        ended_at: history.last(ended),
    };
    match &history.state.state {
        State::Unborn | State::Requested => {}
        State::Building { job } => {
            let state = app.engine.load::<Job>(job).await?;
            build.state = if state.execution().is_some() { "running" } else { "queued" }.into();
            build.waiting = waiting::job(app, &state).await?;
        }
        State::Succeeded { artifact } => {
            build.state = "succeeded".into();
            build.artifact = Some(Artifact {
                repository: artifact.repository.clone(),
                digest: artifact.digest.clone(),
                size_bytes: artifact.size_bytes,
            });
        }
        State::Failed { reason, detail } => {
            build.state = "failed".into();
            (build.reason, build.detail) = (Some(word(reason)), Some(detail.clone()));
        }
    }
    Ok(Some(build))
}
