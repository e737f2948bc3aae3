//! Builds: queue their jobs and complete them with the results.
use domain::{
    app::{App as AppState, Published, PublishedComponent, Resolution},
    artifact::Artifact,
    build::{Build, BuildCommand, BuildFailure, BuildRequest, BuildSource, State as BuildState},
    ids::{BuildId, JobId},
    job::{Job, JobCommand, JobEvent, Origin, Outcome, State as JobState},
};
use futures::FutureExt as _;

use super::steps::truncated;
use crate::{
    execute::{Call, Done, UnitOfWork},
    ids,
    problem::Problem,
    render,
    state::App,
};

/// Maximum number of earlier versions to search for a build with the same source.
const MAX_EARLIER: usize = 20;

/// Queues the job that builds the artifact. A build from git waits until its reference is resolved,
/// and uses the artifact of an earlier build of the same commit and directory. Repeated calls have
/// no effect.
pub(crate) async fn queue(app: &App, call: &Call, build: BuildId) -> Result<Done<()>, Problem> {
    let app = app.clone();
    let engine = app.engine.clone();
    engine
        .transact(call, move |unit| {
            let app = app.clone();
            async move { queue_job(&app, unit, build).await }.boxed()
        })
        .await
}

/// Completes a build with the result of its job.
pub(crate) async fn complete(app: &App, call: &Call, job: JobId) -> Result<Done<()>, Problem> {
    app.engine.transact(call, move |unit| complete_build(unit, job).boxed()).await
}

/// Fails a build whose manifest cannot be rendered or whose job result cannot be applied.
pub(crate) async fn give_up(
    app: &App,
    call: &Call,
    build: BuildId,
    detail: &str,
) -> Result<Done<()>, Problem> {
    let detail = truncated(detail);
    app.engine
        .transact(call, move |unit| {
            let (reason, detail) = (BuildFailure::RenderFailed, detail.clone());
            async move {
                unit.handle::<Build>(build, BuildCommand::Fail { reason, detail }).await.map(|_| ())
            }
            .boxed()
        })
        .await
}

async fn queue_job(app: &App, unit: &mut UnitOfWork, build: BuildId) -> Result<(), Problem> {
    let state = unit.load::<Build>(build).await?.clone();
    let (Some(order), BuildState::Requested) = (&state.request, &state.state) else {
        return Ok(());
    };
    let of = unit.load::<AppState>(order.app).await?.clone();
    let commit = match &order.source {
        BuildSource::Bundle { .. } | BuildSource::Image(_) => None,
        BuildSource::Git(git) => match of.resolution(order.config_version, git) {
            Some(Resolution::Resolved { commit }) => Some(commit.clone()),
            Some(Resolution::Failed { detail }) => {
                let (repo, reference) = (domain::git::without_userinfo(&git.repo), &git.reference);
                let detail = truncated(&format!("cannot resolve {repo} at {reference}: {detail}"));
                let reason = BuildFailure::SourceUnresolved;
                unit.handle::<Build>(build, BuildCommand::Fail { reason, detail }).await?;
                return Ok(());
            }
            // The log commit that requests the build publishes the version, or a later one does.
            Some(Resolution::Pending | Resolution::Queued { .. }) | None => return Ok(()),
        },
    };
    if let Some(commit) = &commit
        && let Some((earlier, artifact)) = reusable_build(app, unit, &of, order, commit).await?
    {
        let commit = commit.clone();
        let command = BuildCommand::ReuseArtifact { build: earlier, commit, artifact };
        unit.handle::<Build>(build, command).await?;
        return Ok(());
    }
    let name = of.name.clone().unwrap_or_default();
    let job = JobId(ids::new_ulid());
    let version = of.versions.get(&order.config_version);
    let work = render::build::work(app, build, order, (&name, version), job, commit.as_deref());
    let work = work.await?;
    unit.create::<Job>(job, JobCommand::Queue(work)).await?;
    unit.handle::<Build>(build, BuildCommand::QueueJob { job, commit }).await?;
    Ok(())
}

/// Returns an earlier successful build of the component from the same commit and directory, with
/// the same type and plugin, whose artifact still exists.
async fn reusable_build(
    app: &App,
    unit: &mut UnitOfWork,
    of: &AppState,
    order: &BuildRequest,
    commit: &str,
) -> Result<Option<(BuildId, Artifact)>, Problem> {
    let BuildSource::Git(git) = &order.source else { return Ok(None) };
    let pinned = |version: &Published| version.plugin(&order.kind).cloned();
    let plugin = of.versions.get(&order.config_version).and_then(pinned);
    let earlier = of.versions.range(..order.config_version).rev().take(MAX_EARLIER);
    let mut builds: Vec<BuildId> = vec![];
    for (_, version) in earlier.filter(|(_, version)| pinned(version) == plugin) {
        let part = version.components.iter().find(|part| part.component == order.component);
        let is_same = |part: &&PublishedComponent| {
            part.git
                .as_ref()
                .is_some_and(|other| (&other.repo, &other.directory) == (&git.repo, &git.directory))
                && part.kind == order.kind
                && part.commit.as_deref() == Some(commit)
        };
        builds.extend(part.filter(is_same).map(|part| part.build));
    }
    builds.dedup();
    for build in builds {
        let state = unit.load::<Build>(build).await?.clone();
        if let (BuildState::Succeeded { artifact }, Some(built)) = (state.state, state.commit)
            && built == commit
            && app.registry.renew(&artifact, app.now()).await.map_err(Problem::internal)?
        {
            return Ok(Some((build, artifact)));
        }
    }
    Ok(None)
}

async fn complete_build(unit: &mut UnitOfWork, id: JobId) -> Result<(), Problem> {
    let job = unit.load::<Job>(id).await?.clone();
    let Some(Origin::Build { build, .. }) = job.work.as_ref().map(|work| work.origin.clone())
    else {
        return Ok(());
    };
    let JobState::Ended { outcome, .. } = job.state else { return Ok(()) };
    if unit.load::<Build>(build).await?.state != (BuildState::Building { job: id }) {
        return Ok(());
    }
    let detail = || {
        let reported = job.reports.iter().rev().find_map(|event| {
            let JobEvent::Failed { detail, .. } = event else { return None };
            Some(truncated(detail))
        });
        reported.unwrap_or_else(|| format!("the outcome of the job is {outcome}"))
    };
    let pushed = job.reports.iter().rev().find_map(|event| {
        let JobEvent::ArtifactPushed { artifact, .. } = event else { return None };
        Some(artifact.clone())
    });
    let command = match (outcome, pushed) {
        (Outcome::Succeeded, Some(artifact)) => BuildCommand::Succeed { artifact },
        (Outcome::Succeeded, None) => BuildCommand::Fail {
            reason: BuildFailure::NoArtifact,
            detail: "the job succeeded but pushed no artifact".into(),
        },
        (Outcome::Failed, _) => {
            BuildCommand::Fail { reason: BuildFailure::JobFailed, detail: detail() }
        }
        (Outcome::Cancelled, _) => {
            BuildCommand::Fail { reason: BuildFailure::JobCancelled, detail: detail() }
        }
        (Outcome::Lost, _) => {
            BuildCommand::Fail { reason: BuildFailure::JobLost, detail: detail() }
        }
    };
    unit.handle::<Build>(build, command).await?;
    Ok(())
}
