//! Components from git: one resolution per reference and version, then builds of its commit.
use cli::client::Client;
use domain::{
    app::{App as AppState, Resolution},
    artifact::Artifact,
    ids::{AppId, ExecutionId, JobId, RunnerId, SessionId},
    job::{ExecutionResult, FailureReason, Job, JobCommand, JobKind, Report},
};
use schemas::control::{
    PageQuery,
    apps::ConfigVersion,
    builds::{Build, BuildsQuery},
};
use serde_json::json;
use ulid::Ulid;

use super::{
    bundle_of_files, owner,
    reactions::{store_artifact, wait_for},
};
use crate::server::testing::{Started, append_commands};

const FIRST: &str = "1111111111111111111111111111111111111111";
const SECOND: &str = "2222222222222222222222222222222222222222";

fn bundle(components: &[(&str, &str)]) -> bytes::Bytes {
    let files = components.iter().map(|(name, branch)| {
        let text = format!(
            "name = \"{name}\"\ntype = \"terraform_module\"\n[public_repo]\nrepo = \"acme/x\"\n\
             directory = \"{name}\"\nbranch = \"{branch}\"\n"
        );
        (format!("app/components/{name}.toml"), text)
    });
    let mut files: Vec<(String, String)> = files.collect();
    files.push(("app/metadata.toml".into(), "version = \"v2\"\n".into()));
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (&**path, &**text)).collect();
    bundle_of_files(&files)
}

/// Runs a job to its end with these reports.
async fn run(started: &Started, job: JobId, reports: Vec<Report>) {
    let (execution, runner) = (ExecutionId(Ulid::new()), RunnerId(Ulid::new()));
    let (session, claim_id) = (SessionId(Ulid::new()), "claim".to_owned());
    let mut commands = vec![JobCommand::Claim { execution, runner, session, claim_id }];
    let reports = [vec![Report::Started { isolation: None }], reports].concat();
    commands.extend((1..).zip(reports).map(|(seq, report)| JobCommand::Report {
        execution,
        seq,
        report,
        signed: None,
    }));
    append_commands(started.app(), job, commands).await;
}

fn succeeded() -> Report {
    Report::Finished(ExecutionResult::Succeeded { exit_code: None, not_ended: vec![] })
}

fn commit(commit: &str) -> Vec<Report> {
    let outputs = serde_json::from_value(json!({ "commit": commit })).unwrap();
    vec![Report::Outputs { outputs }, succeeded()]
}

fn failed() -> Vec<Report> {
    let (reason, detail) = (FailureReason::ExitCode, "no such host https://me:pw@h/x".into());
    let (exit_code, signal, not_ended) = (Some(1), None, vec![]);
    let failed = ExecutionResult::Failed { reason, detail, exit_code, signal, not_ended };
    vec![Report::Finished(failed)]
}

/// Returns the job that resolves a reference of a version.
async fn resolve_job(started: &Started, app: AppId, version: u32, reference: &str) -> JobId {
    wait_for(async || {
        let state = started.app().log().reload::<AppState>(&app.to_string()).await.unwrap().state;
        let sources = state.sources.get(&version)?;
        let source = sources.iter().find(|source| source.reference == reference)?;
        match source.resolution {
            Resolution::Queued { job } => Some(job),
            Resolution::Pending | Resolution::Resolved { .. } | Resolution::Failed { .. } => None,
        }
    })
    .await
}

/// Returns the newest build of a component in this state.
async fn build(owner: &Client, component: &str, state: &str) -> Build {
    wait_for(async || {
        let query = BuildsQuery { app: Some("shop".into()), ..BuildsQuery::default() };
        let builds = owner.builds(&query).await.unwrap().items;
        let newest = builds.into_iter().find(|build| build.component_name == component)?;
        (newest.state == state).then_some(newest)
    })
    .await
}

async fn version(owner: &Client, state: &str) -> ConfigVersion {
    wait_for(async || {
        let page = owner.versions("shop", &PageQuery::default()).await.unwrap();
        page.items.into_iter().next().filter(|version| version.state == state)
    })
    .await
}

#[tokio::test]
async fn a_reference_is_resolved_once_and_its_builds_get_the_commit() {
    let (started, of) = (Started::new().await, [("a", "main"), ("b", "main"), ("c", SECOND)]);
    let owner = owner(&started);
    let synced = owner.sync("shop", bundle(&of), false).await.unwrap();
    let app = synced.app.unwrap();
    let job = resolve_job(&started, app, 1, "main").await;
    assert_eq!(build(&owner, "a", "resolving").await.job, None);
    assert_eq!(version(&owner, "resolving").await.sources.len(), 2);
    // A commit id needs no resolution.
    let pinned = build(&owner, "c", "queued").await;
    assert_eq!(pinned.commit.as_deref(), Some(SECOND));

    run(&started, job, commit(FIRST)).await;

    let built = build(&owner, "a", "queued").await;
    assert_eq!(built.commit.as_deref(), Some(FIRST));
    let job = started.app().engine.load::<Job>(built.job.unwrap()).await.unwrap();
    let work = job.work.unwrap();
    assert_eq!(work.kind, JobKind::Build);
    let manifest = started.app().manifests.get(&started.app().pool, &work.manifest).await.unwrap();
    let source = json!({"repo": "acme/x", "directory": "a", "ref": "main", "commit": FIRST});
    assert_eq!(manifest.inputs["git"], source);
    assert_eq!(build(&owner, "b", "queued").await.commit.as_deref(), Some(FIRST));
    let resolved = version(&owner, "resolved").await;
    let commits: Vec<_> = resolved.components.iter().map(|one| one.commit.as_deref()).collect();
    assert_eq!(commits, [Some(FIRST), Some(FIRST), Some(SECOND)]);
}

#[tokio::test]
async fn a_reference_that_fails_can_be_retried_and_the_others_keep_their_commit() {
    let (started, of) = (Started::new().await, [("a", "main"), ("b", "gone")]);
    let owner = owner(&started);
    let app = owner.sync("shop", bundle(&of), false).await.unwrap().app.unwrap();
    let [main, gone] =
        [resolve_job(&started, app, 1, "main").await, resolve_job(&started, app, 1, "gone").await];
    run(&started, gone, failed()).await;
    let broken = build(&owner, "b", "failed").await;
    let detail = broken.detail.unwrap();
    assert_eq!(detail, "cannot resolve acme/x at gone: no such host https://***@h/x");
    assert_eq!(broken.reason.as_deref(), Some("source_unresolved"));
    // A version that still resolves cannot be retried.
    let early = super::rejection(owner.retry_build(broken.id).await);
    assert_eq!(early, (409, "rejected".to_owned()));
    run(&started, main, commit(FIRST)).await;
    let kept = build(&owner, "a", "queued").await;
    version(&owner, "unresolved").await;

    let retried = owner.retry_build(broken.id).await.unwrap();

    assert_eq!(retried.builds.len(), 1);
    let again = resolve_job(&started, app, 2, "gone").await;
    run(&started, again, commit(SECOND)).await;
    assert_eq!(build(&owner, "b", "queued").await.commit.as_deref(), Some(SECOND));
    assert_eq!(build(&owner, "a", "queued").await.id, kept.id);
    let version = version(&owner, "resolved").await;
    let commits: Vec<_> = version.components.iter().map(|one| one.commit.as_deref()).collect();
    assert_eq!(commits, [Some(FIRST), Some(SECOND)]);
}

#[tokio::test]
async fn an_unmoved_branch_reuses_the_artifact() {
    let (started, of) = (Started::new().await, [("a", "main")]);
    let owner = owner(&started);
    let app = owner.sync("shop", bundle(&of), false).await.unwrap().app.unwrap();
    run(&started, resolve_job(&started, app, 1, "main").await, commit(FIRST)).await;
    let first = build(&owner, "a", "queued").await;
    let digest = store_artifact(&started, "shop/a");
    let artifact = Artifact { repository: "shop/a".into(), digest, size_bytes: 9, upstream: None };
    run(&started, first.job.unwrap(), vec![Report::Artifact(artifact), succeeded()]).await;
    build(&owner, "a", "succeeded").await;

    assert!(owner.sync("shop", bundle(&of), false).await.unwrap().unchanged);
    let again = owner.sync_and_resolve("shop", bundle(&of)).await.unwrap();

    assert_eq!((again.version, again.unchanged), (2, false));
    run(&started, resolve_job(&started, app, 2, "main").await, commit(FIRST)).await;
    let second = build(&owner, "a", "succeeded").await;
    assert_eq!((second.reused_build, second.job), (Some(first.id), None));
    assert_eq!(second.artifact.unwrap().size_bytes, 9);
}
