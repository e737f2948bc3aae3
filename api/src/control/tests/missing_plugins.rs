//! Components without a plugin: published and displayed, but their deploys are rejected.
use cli::client::{Client, ClientError};
use domain::{
    ids::RunId,
    install::Install,
    run::{Outcome, Run, StepFailure, StepState},
};
use schemas::{
    control::{
        installs::CreateInstall,
        jobs::JobsQuery,
        runs::{RequestRun, RequestedKind, RunsQuery},
    },
    runner::CheckStatus,
};

use super::{
    bundle_of_files, new_install, owner,
    reactions::{enroll, wait_for, wait_for_step},
};
use crate::server::testing::Started;

/// Chart from a remote repository.
const CHART: &str = "name = \"front\"\ntype = \"helm_chart\"\nchart_name = \"front\"\n\
                     [public_repo]\nrepo = \"acme/charts\"\ndirectory = \"front\"\n";
/// Action with a script at a URL, which the sync did not fetch.
const SHELL: &str = "name = \"nightly\"\n[[triggers]]\ntype = \"manual\"\n[[steps]]\nname = \"go\"\n\
                     inline_contents = \"https://example.com/go.sh\"\n";

fn failed(state: &StepState) -> Option<(StepFailure, String)> {
    let StepState::Failed { reason, detail, .. } = state else { return None };
    Some((*reason, detail.clone()))
}

/// Returns the run. It fails at once, so it may never appear among the active runs.
async fn run_of(owner: &Client) -> RunId {
    wait_for(async || Some(owner.runs(&RunsQuery::default()).await.unwrap().items.first()?.id))
        .await
}

async fn app_without_plugins() -> (Started, Client) {
    let started = Started::new().await;
    let owner = owner(&started);
    let bundle = bundle_of_files(&[
        ("app/metadata.toml", "version = \"v2\"\n"),
        ("app/components/front.toml", CHART),
        ("app/actions/nightly.toml", SHELL),
    ]);
    let synced = owner.sync("web", bundle, false).await.unwrap();
    let messages: Vec<_> =
        synced.diagnostics.iter().map(|diagnostic| diagnostic.message.as_str()).collect();
    assert!(
        messages.iter().any(|message| message.contains("its deploy is rejected")),
        "{messages:?}"
    );
    let new =
        CreateInstall { app: "web".into(), inputs: Default::default(), ..new_install("acme") };
    owner.create_install(&new).await.unwrap();
    (started, owner)
}

#[tokio::test]
async fn component_without_a_plugin_is_displayed_but_not_deployed() {
    let (started, owner) = app_without_plugins().await;
    let app = started.app();
    let acme = owner.install("acme").await.unwrap();
    let listed: Vec<_> = acme.components.iter().map(|c| (&*c.name, &*c.kind, &*c.state)).collect();
    assert_eq!(listed, [("front", "helm_chart", "absent")]);

    // The install starts its provision. Its preflight fails with a message, and the run has no job.
    enroll(app, acme.id).await;
    let run = run_of(&owner).await;
    let over = wait_for(async || app.engine.load::<Run>(run).await.unwrap().outcome).await;
    assert_eq!(over, Outcome::Failed);
    let ended = async || {
        let shown = owner.run(run).await.unwrap();
        shown.run.ended_at.map(|_| shown)
    };
    let shown = wait_for(ended).await;
    let preflight = shown.preflight.unwrap();
    assert_eq!(
        (preflight.state.as_str(), preflight.job, preflight.checks.len()),
        ("failed", None, 1)
    );
    let check = &preflight.checks[0];
    assert_eq!((check.component.as_deref(), check.status), (Some("front"), CheckStatus::Failed));
    let detail = &check.message;
    assert!(detail.contains("cannot deploy `front`: the plugin `helm_chart`"), "{detail}");
    assert!(detail.contains("stead plugins push stead-plugin-helm_chart"), "{detail}");
    let steps: Vec<_> =
        shown.dag.iter().map(|step| (&*step.state, step.reason.as_deref())).collect();
    assert_eq!(steps, [("skipped", Some("preflight_failed"))]);
    assert!(
        owner.jobs(&JobsQuery::default()).await.unwrap().items.iter().all(|job| job.run.is_none())
    );
    wait_for(async || {
        let state = app.engine.load::<Install>(acme.id).await.unwrap();
        state.runs.is_empty().then_some(())
    })
    .await;

    // A deploy that names the component is rejected immediately.
    let request = |components: &[&str]| RequestRun {
        kind: RequestedKind::Deploy,
        components: components.iter().map(|name| (*name).to_owned()).collect(),
        action: None,
        reason: None,
        plan_all: false,
    };
    let error = owner.request_run("acme", &request(&["front"])).await.unwrap_err();
    let ClientError::Problem(problem) = error else { panic!("{error}") };
    assert_eq!((problem.status, problem.errors.len()), (422, 1));
    assert!(problem.errors[0].message.contains("the plugin `helm_chart`"), "{problem:?}");
    started.server.stop().await;
}

#[tokio::test]
async fn remote_script_fails_its_run() {
    let (started, owner) = app_without_plugins().await;
    let app = started.app();
    let acme = owner.install("acme").await.unwrap();
    enroll(app, acme.id).await;
    let provision = run_of(&owner).await;
    wait_for(async || app.engine.load::<Run>(provision).await.unwrap().outcome).await;
    let request = RequestRun {
        kind: RequestedKind::Action,
        components: vec![],
        action: Some("nightly".into()),
        reason: None,
        plan_all: false,
    };
    let run = wait_for(async || owner.request_run("acme", &request).await.ok()?.run).await;
    let (_, detail) = wait_for_step(app, run, failed).await;
    assert!(
        detail.contains("the script of step `go` is a remote file that was not fetched"),
        "{detail}"
    );
    started.server.stop().await;
}
