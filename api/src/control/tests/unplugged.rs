//! Components whose type nothing deploys yet: published, shown, and refused when they are to be deployed.
use domain::{
    ids::RunId,
    install::Install,
    run::{Outcome, Run, StepFailure, StepState},
};
use schemas::control::{
    installs::CreateInstall,
    runs::{RequestRun, RunAsked, RunsQuery},
};

use super::{
    files, new_install, owner,
    reactions::{enrolled, first, until},
};
use crate::{
    client::{Client, ClientError},
    server::testing::Started,
};

/// A chart from nowhere, and what reads it.
const CHART: &str = "name = \"front\"\ntype = \"helm_chart\"\nchart_name = \"front\"\n\
                     [public_repo]\nrepo = \"acme/charts\"\ndirectory = \"front\"\n";
const SHELL: &str = "name = \"nightly\"\n[[triggers]]\ntype = \"manual\"\n[[steps]]\nname = \"go\"\n\
                     command = \"./go.sh\"\n[steps.public_repo]\nrepo = \"acme/scripts\"\n";

fn failed(state: &StepState) -> Option<(StepFailure, String)> {
    let StepState::Failed { reason, detail, .. } = state else { return None };
    Some((*reason, detail.clone()))
}

/// It is over as soon as it begins: nobody may ever see it going on.
async fn run_of(owner: &Client) -> RunId {
    until(async || Some(owner.runs(&RunsQuery::default()).await.unwrap().items.first()?.id)).await
}

async fn with_a_chart() -> (Started, Client) {
    let started = Started::new().await;
    let owner = owner(&started);
    let bundle = files(&[
        ("app/metadata.toml", "version = \"v2\"\n"),
        ("app/components/front.toml", CHART),
        ("app/actions/nightly.toml", SHELL),
    ]);
    let synced = owner.sync("web", bundle, false).await.unwrap();
    let told: Vec<_> = synced.diagnostics.iter().map(|said| said.message.as_str()).collect();
    assert!(told.iter().any(|said| said.contains("its deploy is refused")), "{told:?}");
    let new =
        CreateInstall { app: "web".into(), inputs: Default::default(), ..new_install("acme") };
    owner.create_install(&new).await.unwrap();
    (started, owner)
}

#[tokio::test]
async fn a_component_without_a_plugin_is_shown_and_its_deploy_is_refused_by_name() {
    let (started, owner) = with_a_chart().await;
    let app = started.app();
    let acme = owner.install("acme").await.unwrap();
    let shown: Vec<_> = acme.components.iter().map(|c| (&*c.name, &*c.kind, &*c.state)).collect();
    assert_eq!(shown, [("front", "helm_chart", "absent")]);

    // Of itself the install provisions: the step fails with the sentence, and no job was ever made for it.
    enrolled(app, acme.id).await;
    let run = run_of(&owner).await;
    let (reason, detail) = first(app, run, failed).await;
    assert_eq!(reason, StepFailure::RenderFailed);
    assert!(
        detail.contains("`front` is of type `helm_chart`, and the plugin `helm_chart`"),
        "{detail}"
    );
    assert!(detail.contains("--plugin helm_chart=PATH"), "{detail}");
    let over = until(async || app.engine.load::<Run>(run).await.unwrap().outcome).await;
    assert_eq!(over, Outcome::Failed);
    until(async || {
        let state = app.engine.load::<Install>(acme.id).await.unwrap();
        state.runs.is_empty().then_some(())
    })
    .await;

    // Whoever names it is told at once.
    let ask = |components: &[&str]| RequestRun {
        kind: RunAsked::Deploy,
        components: components.iter().map(|name| (*name).to_owned()).collect(),
        action: None,
        reason: None,
    };
    let said = owner.request_run("acme", &ask(&["front"])).await.unwrap_err();
    let ClientError::Problem(problem) = said else { panic!("{said}") };
    assert_eq!((problem.status, problem.errors.len()), (422, 1));
    assert!(problem.errors[0].message.contains("the plugin `helm_chart`"), "{problem:?}");
    started.server.stop().await;
}

#[tokio::test]
async fn a_script_that_is_elsewhere_is_refused_when_it_is_to_run() {
    let (started, owner) = with_a_chart().await;
    let app = started.app();
    let acme = owner.install("acme").await.unwrap();
    enrolled(app, acme.id).await;
    let provision = run_of(&owner).await;
    until(async || app.engine.load::<Run>(provision).await.unwrap().outcome).await;
    let ask = RequestRun {
        kind: RunAsked::Action,
        components: vec![],
        action: Some("nightly".into()),
        reason: None,
    };
    let run = until(async || owner.request_run("acme", &ask).await.ok()?.run).await;
    let (_, detail) = first(app, run, failed).await;
    assert!(detail.contains("the script of the step `go` is in a repository"), "{detail}");
    started.server.stop().await;
}
