//! Git references of config versions: queue the jobs that resolve them, and record the commits.
use domain::{
    app::{App as AppState, AppCommand},
    git,
    ids::{AppId, JobId},
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

/// Queues a job for each open reference of a version. A commit id resolves to itself, without a
/// job. Repeated calls have no effect.
pub(crate) async fn resolve(
    app: &App,
    call: &Call,
    of: AppId,
    config_version: u32,
) -> Result<Done<()>, Problem> {
    let app = app.clone();
    let engine = app.engine.clone();
    engine
        .transact(call, move |unit| {
            let app = app.clone();
            async move { queue_jobs(&app, unit, of, config_version).await }.boxed()
        })
        .await
}

/// Records the result of a job that resolved a reference.
pub(crate) async fn complete(app: &App, call: &Call, job: JobId) -> Result<Done<()>, Problem> {
    app.engine.transact(call, move |unit| complete_source(unit, job).boxed()).await
}

async fn queue_jobs(
    app: &App,
    unit: &mut UnitOfWork,
    of: AppId,
    config_version: u32,
) -> Result<(), Problem> {
    let state = unit.load::<AppState>(of).await?;
    let sources = state.sources.get(&config_version).cloned().unwrap_or_default();
    for source in sources.into_iter().filter(|source| source.resolution.is_pending()) {
        let (repo, reference) = (source.repo, source.reference);
        let command = if git::is_commit(&reference) {
            let commit = reference.to_ascii_lowercase();
            AppCommand::Resolve { config_version, repo, reference, commit }
        } else {
            let job = JobId(ids::new_ulid());
            let target = (repo.as_str(), reference.as_str());
            let work = render::resolve::work(app, (of, config_version), target, job).await?;
            unit.create::<Job>(job, JobCommand::Queue(work)).await?;
            AppCommand::QueueResolve { config_version, repo, reference, job }
        };
        unit.handle::<AppState>(of, command).await?;
    }
    Ok(())
}

async fn complete_source(unit: &mut UnitOfWork, id: JobId) -> Result<(), Problem> {
    let job = unit.load::<Job>(id).await?.clone();
    let origin = job.work.as_ref().map(|work| work.origin.clone());
    let Some(Origin::Source { app, config_version, repo, reference }) = origin else {
        return Ok(());
    };
    let JobState::Ended { outcome, .. } = job.state else { return Ok(()) };
    let state = unit.load::<AppState>(app).await?;
    let of_version = state.sources.get(&config_version).into_iter().flatten();
    let mut of_job = of_version.filter(|source| source.resolution.is_queued_as(id));
    if of_job.next().is_none() {
        return Ok(());
    }
    let commit = job.reports.iter().rev().find_map(|event| {
        let JobEvent::OutputsReported { outputs, .. } = event else { return None };
        let commit = outputs.get("commit")?.as_str()?;
        git::is_commit(commit).then(|| commit.to_ascii_lowercase())
    });
    let command = match (outcome, commit) {
        (Outcome::Succeeded, Some(commit)) => {
            AppCommand::Resolve { config_version, repo, reference, commit }
        }
        (Outcome::Succeeded, None) => {
            let detail = "the job succeeded but reported no commit".into();
            AppCommand::FailResolve { config_version, repo, reference, detail }
        }
        (Outcome::Failed | Outcome::Cancelled | Outcome::Lost, _) => {
            let reported = job.reports.iter().rev().find_map(|event| {
                let JobEvent::Failed { detail, .. } = event else { return None };
                Some(truncated(&git::without_userinfo(detail)))
            });
            let detail = reported.unwrap_or_else(|| format!("the outcome of {id} is {outcome}"));
            AppCommand::FailResolve { config_version, repo, reference, detail }
        }
    };
    unit.handle::<AppState>(app, command).await?;
    Ok(())
}
