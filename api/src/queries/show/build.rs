//! Converts rows of builds to the API type.
use domain::build::{BuildSource, State};
use projections::views::{builds, waiting};
use schemas::control::builds::{Artifact, Build};

use super::{variant_name, waiting};
use crate::queries::lookup::Lookup;

/// Converts a build, with the condition that its job waits for.
pub(crate) async fn build(
    lookup: &mut Lookup<'_>,
    row: &builds::Row,
) -> Result<Build, sqlx::Error> {
    let order = &row.order;
    let app = lookup.app(order.app).await?;
    let mut build = Build {
        id: row.build,
        app: order.app,
        app_name: app.map(|app| app.name.clone()).unwrap_or_default(),
        component: order.component,
        component_name: order.component_name.clone(),
        kind: order.kind.clone(),
        config_version: order.config_version,
        source: None,
        git: None,
        image: None,
        commit: row.commit.clone(),
        reused_build: row.reused_build,
        state: row.state_name().into(),
        job: row.job,
        artifact: None,
        reason: None,
        detail: None,
        waiting: None,
        requested_by: row.requested_by.to_string(),
        requested_by_name: lookup.name(&row.requested_by),
        requested_at: row.requested_at,
        ended_at: row.ended_at,
    };
    match &order.source {
        BuildSource::Bundle { digest } => build.source = Some(digest.clone()),
        BuildSource::Git(git) => build.git = Some(git.clone()),
        BuildSource::Image(image) => build.image = Some(image.clone()),
    }
    match &row.state {
        State::NotCreated | State::Requested => {}
        State::Building { job } => {
            if let Some(job) = lookup.job(*job).await? {
                if job.held().is_some() {
                    build.state = "running".into();
                }
                let runner = lookup.build_runner().await?;
                build.waiting = {
                    let runner = runner.as_deref().map(|row| lookup.with_contact(row));
                    waiting::of_job(&job, runner, 0).map(waiting)
                };
            }
        }
        State::Succeeded { artifact } => {
            build.artifact = Some(Artifact {
                repository: artifact.repository.clone(),
                digest: artifact.digest.clone(),
                size_bytes: artifact.size_bytes,
                upstream: artifact.upstream.clone(),
            });
        }
        State::Failed { reason, detail } => {
            (build.reason, build.detail) = (Some(variant_name(reason)), Some(detail.clone()));
        }
    }
    Ok(build)
}
