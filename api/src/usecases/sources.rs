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
    app_id: AppId,
    config_version: u32,
) -> Result<Done<()>, Problem> {
    let app = app.clone();
    let engine = app.engine.clone();
    engine
        .transact(call, move |unit| {
            let app = app.clone();
            async move { queue_jobs(&app, unit, app_id, config_version).await }.boxed()
        })
        .await
}

/// Records the result of a job that resolved a reference.
pub(crate) async fn complete(app: &App, call: &Call, job: JobId) -> Result<Done<()>, Problem> {
    app.engine.transact(call, move |unit| complete_source(unit, job).boxed()).await
}

/// Fails all open references of a version, after their jobs could not be queued.
pub(crate) async fn fail_open_references(
    app: &App,
    call: &Call,
    app_id: AppId,
    config_version: u32,
    detail: &str,
) -> Result<Done<()>, Problem> {
    let detail = truncated(&git::without_userinfo(detail));
    app.engine
        .transact(call, move |unit| {
            fail_references(unit, app_id, config_version, detail.clone()).boxed()
        })
        .await
}

/// Fails the reference of a job whose result could not be recorded.
pub(crate) async fn fail_job_reference(
    app: &App,
    call: &Call,
    job: JobId,
    detail: &str,
) -> Result<Done<()>, Problem> {
    let detail = truncated(&git::without_userinfo(detail));
    app.engine
        .transact(call, move |unit| fail_reference_of_job(unit, job, detail.clone()).boxed())
        .await
}

async fn fail_references(
    unit: &mut UnitOfWork,
    app_id: AppId,
    config_version: u32,
    detail: String,
) -> Result<(), Problem> {
    let state = unit.load::<AppState>(app_id).await?;
    let sources = state.sources.get(&config_version).cloned().unwrap_or_default();
    for source in sources.into_iter().filter(|source| source.resolution.is_pending()) {
        let (repo, reference) = (source.repo, source.reference);
        let detail = detail.clone();
        let command = AppCommand::FailResolve { config_version, repo, reference, detail };
        unit.handle::<AppState>(app_id, command).await?;
    }
    Ok(())
}

async fn fail_reference_of_job(
    unit: &mut UnitOfWork,
    id: JobId,
    detail: String,
) -> Result<(), Problem> {
    let origin = unit.load::<Job>(id).await?.work.as_ref().map(|work| work.origin.clone());
    let Some(Origin::Source { app, config_version, repo, reference }) = origin else {
        return Ok(());
    };
    let state = unit.load::<AppState>(app).await?;
    let of_version = state.sources.get(&config_version).into_iter().flatten();
    if of_version.filter(|source| source.resolution.is_resolved_by(id)).count() > 0 {
        let command = AppCommand::FailResolve { config_version, repo, reference, detail };
        unit.handle::<AppState>(app, command).await?;
    }
    Ok(())
}

async fn queue_jobs(
    app: &App,
    unit: &mut UnitOfWork,
    app_id: AppId,
    config_version: u32,
) -> Result<(), Problem> {
    let state = unit.load::<AppState>(app_id).await?;
    let sources = state.sources.get(&config_version).cloned().unwrap_or_default();
    for source in sources.into_iter().filter(|source| source.resolution.is_pending()) {
        let (repo, reference) = (source.repo, source.reference);
        let command = if git::is_commit(&reference) {
            let commit = reference.to_ascii_lowercase();
            AppCommand::Resolve { config_version, repo, reference, commit }
        } else {
            let job = JobId(ids::new_ulid());
            let target = (repo.as_str(), reference.as_str());
            let work = render::resolve::work(app, (app_id, config_version), target, job).await?;
            unit.create::<Job>(job, JobCommand::Queue(work)).await?;
            AppCommand::QueueResolve { config_version, repo, reference, job }
        };
        unit.handle::<AppState>(app_id, command).await?;
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
    let mut of_job = of_version.filter(|source| source.resolution.is_resolved_by(id));
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
            let detail = "the job succeeded but reported no commit; retry the build".into();
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

#[cfg(test)]
mod tests {
    use domain::{
        actor::Actor,
        app::{PublishedComponent, Resolution},
        git::GitSource,
        ids::{BuildId, ComponentId},
    };
    use event_log::Meta;
    use ulid::Ulid;

    use super::*;
    use crate::{clock::system_clock, server::testing::Started};

    fn component(name: &str, reference: &str) -> PublishedComponent {
        PublishedComponent {
            component: ComponentId(Ulid::new()),
            name: name.into(),
            kind: "terraform_module".into(),
            definition: format!("sha256:{:064x}", 1).parse().unwrap(),
            build: BuildId(Ulid::new()),
            git: Some(GitSource {
                repo: "acme/web".into(),
                directory: ".".into(),
                reference: reference.into(),
            }),
            commit: None,
        }
    }

    async fn publish(unit: &mut UnitOfWork, app_id: AppId, job: JobId) -> Result<(), Problem> {
        let components = vec![component("web", "main"), component("db", "v1")];
        let bundle = format!("sha256:{:064x}", 2).parse().unwrap();
        let (repo, reference) = ("acme/web".to_owned(), "main".to_owned());
        for command in [
            AppCommand::Create { name: "shop".into() },
            AppCommand::Publish { bundle, components, plugins: vec![] },
            AppCommand::QueueResolve { config_version: 1, repo, reference, job },
        ] {
            unit.handle::<AppState>(app_id, command).await?;
        }
        Ok(())
    }

    #[tokio::test]
    async fn the_open_sources_of_an_impossible_reaction_fail() {
        let started = Started::by(system_clock()).await;
        let app = started.app();
        let call = Call::of(Meta::new(Actor::System, "cmd"));
        let (app_id, job) = (AppId(Ulid::new()), JobId(Ulid::new()));
        // given a version with an open reference and one whose job is queued, when the server gives
        // up twice
        let done = app.engine.transact(&call, move |unit| {
            async move {
                publish(unit, app_id, job).await?;
                fail_references(unit, app_id, 1, "no manifest".into()).await?;
                fail_references(unit, app_id, 1, "again".into()).await
            }
            .boxed()
        });
        done.await.unwrap();
        // then only the open reference has failed
        let state = app.engine.log().reload::<AppState>(&app_id.to_string()).await.unwrap().state;
        let resolution = |reference: &str| {
            let mut all = state.sources[&1].iter();
            all.find(|source| source.reference == reference).unwrap().resolution.clone()
        };
        assert_eq!(resolution("v1"), Resolution::Failed { detail: "no manifest".into() });
        assert_eq!(resolution("main"), Resolution::Queued { job });
        started.server.stop().await;
    }
}
