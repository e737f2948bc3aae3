//! Forms of the dashboard that change installs, runs and runners.
mod logs;
mod settings;

use domain::run::{Run, StepState};
use reqwest::StatusCode;
use schemas::control::{PageQuery, builds::BuildsQuery, runs::RunsQuery, tokens::Role};

use super::{
    bundle,
    operations::runner,
    reactions::{complete_build, complete_plan, digest, enroll, run_of, wait_for_step},
    version_changes::deploy_version_1,
    with_install,
};
use crate::{server::testing::Started, ui::tests::Browser};

/// Sends a form of a page, with the token of this browser's session.
async fn send(
    browser: &Browser,
    path: &str,
    key: &str,
    fields: &[(&str, &str)],
) -> (u16, String, String) {
    let token = browser.form_token().await;
    let own = [("form_token", token.as_str()), ("idempotency_key", key)];
    let response = browser.post(path, &[&own[..], fields].concat()).await;
    let location = response.headers().get("location");
    let location = location.map(|at| at.to_str().unwrap().to_owned()).unwrap_or_default();
    (response.status().as_u16(), location, response.text().await.unwrap())
}

async fn viewer(started: &Started) -> Browser {
    let created = schemas::control::tokens::CreateToken {
        role: Role::Viewer,
        name: None,
        expires_in_s: None,
    };
    let token = super::owner(started).create_token(&created).await.unwrap().token.unwrap();
    Browser::with_secret(started, &token).await
}

#[tokio::test]
async fn an_upgrade_shows_its_changes_and_takes_effect_once() {
    let (started, owner, acme) = with_install().await;
    deploy_version_1(&started, acme.id).await;
    owner.sync("shop", bundle("2"), false).await.unwrap();
    let (browser, viewer) = (Browser::logged_in(&started).await, viewer(&started).await);
    let path = format!("/ui/installs/{}/upgrade", acme.id);
    let page = browser.get(&format!("{path}?to=2")).await.text().await.unwrap();
    assert!(
        page.contains("Upgrade acme to version 2") && page.contains("<code>base</code>"),
        "{page}"
    );
    let compared = browser.get("/ui/apps/shop/diff?from=1&to=2").await;
    assert_eq!(compared.status(), StatusCode::OK);
    assert!(compared.text().await.unwrap().contains("Impact of version 2"));

    let fields = [("from", "1"), ("to", "2"), ("reason", "CHG-1")];
    assert_eq!(send(&viewer, &path, "k1", &fields).await.0, 403);
    let stale = [("from", "2"), ("to", "2"), ("reason", "CHG-1")];
    let (status, _, text) = send(&browser, &path, "k2", &stale).await;
    assert!(status == 409 && text.contains("compare them again"), "{status} {text}");
    assert_eq!(owner.install("acme").await.unwrap().config_version, 1);

    let (status, first, text) = send(&browser, &path, "k3", &fields).await;
    assert!(status == 303 && first.starts_with("/ui/runs/run_"), "{status} {first} {text}");
    let (status, second, _) = send(&browser, &path, "k3", &fields).await;
    let position = |at: &str| at.split_once("?min_position=").unwrap().1.to_owned();
    assert_eq!((status, position(&second)), (303, position(&first)));
    assert_eq!(browser.get(&first).await.status(), StatusCode::OK);
    let install = owner.install("acme").await.unwrap();
    assert_eq!((install.config_version, install.runs.len()), (2, 1));
    let home = browser.get("/ui/").await.text().await.unwrap();
    assert!(home.contains("v2 (newest): 1 install<"), "{home}");
    assert!(home.contains("Runs of the last 14 days") && !home.contains("0 runs,"), "{home}");
    started.server.stop().await;
}

#[tokio::test]
async fn inputs_that_another_user_changed_in_the_meantime_stay() {
    let (started, owner, acme) = with_install().await;
    let browser = Browser::logged_in(&started).await;
    let page = browser.get("/ui/installs/acme/change").await.text().await.unwrap();
    assert!(page.contains("name=\"input.size\" value=\"2\""), "{page}");
    let path = format!("/ui/installs/{}/inputs", acme.id);
    let same = [("input.size", "2"), ("was.size", "2"), ("reason", "")];
    let (status, _, text) = send(&browser, &path, "k1", &same).await;
    assert!(status == 422 && text.contains("no input changed"), "{status} {text}");
    let fields = [("input.size", "3"), ("was.size", "2"), ("reason", "")];
    assert_eq!(send(&viewer(&started).await, &path, "k2", &fields).await.0, 403);
    let (status, location, text) = send(&browser, &path, "k3", &fields).await;
    assert!(
        status == 303 && location.starts_with("/ui/installs/ins_"),
        "{status} {location} {text}"
    );
    assert_eq!(send(&browser, &path, "k4", &same).await.0, 422);
    assert_eq!(owner.install("acme").await.unwrap().inputs["size"], "3");
    started.server.stop().await;
}

#[tokio::test]
async fn a_teardown_needs_the_typed_name_of_the_install() {
    let (started, owner, acme) = with_install().await;
    deploy_version_1(&started, acme.id).await;
    let browser = Browser::logged_in(&started).await;
    let path = format!("/ui/installs/{}/run", acme.id);
    let form = |confirm| [("kind", "teardown"), ("confirm", confirm), ("reason", "moved")];
    for wrong in ["", "Acme", "globex"] {
        let (status, _, text) = send(&browser, &path, "k1", &form(wrong)).await;
        assert!(status == 422 && text.contains("nothing was destroyed"), "{status} {text}");
    }
    let (status, _, _) = send(&browser, &path, "k2", &[("kind", "teardown"), ("reason", "")]).await;
    assert_eq!(status, 422);
    assert_eq!(send(&viewer(&started).await, &path, "k3", &form("acme")).await.0, 403);
    assert_eq!(owner.install("acme").await.unwrap().runs.len(), 0);
    let (status, location, text) = send(&browser, &path, "k4", &form("acme")).await;
    assert!(status == 303 && location.starts_with("/ui/runs/run_"), "{status} {text}");
    assert_eq!(browser.get(&location).await.status(), StatusCode::OK);
    let runs = owner.runs(&RunsQuery::default()).await.unwrap().items;
    assert_eq!(
        (runs.len(), &*runs[0].kind, runs[0].reason.as_deref()),
        (1, "teardown", Some("moved"))
    );
    started.server.stop().await;
}

#[tokio::test]
async fn several_plans_are_decided_together_or_not_at_all() {
    let (started, _, acme) = with_install().await;
    let app = started.app();
    enroll(app, acme.id).await;
    let run = run_of(app, acme.id).await;
    complete_build(&started).await;
    complete_plan(app, run).await;
    let waits =
        |state: &StepState| matches!(state, StepState::AwaitingApproval { .. }).then_some(());
    wait_for_step(app, run, waits).await;
    let steps = app.engine.load::<Run>(run).await.unwrap().steps.clone();
    let plan = |n: usize| format!("plan.{}", steps[n].spec.step);
    let (first, other, sha) = (plan(0), plan(1), digest(2).to_string());
    let browser = Browser::logged_in(&started).await;
    let path = format!("/ui/runs/{run}/decide-all");
    let rest = [("reason", "reviewed"), ("decision", "approve")];
    assert_eq!(send(&browser, &path, "k1", &rest).await.0, 400);
    // The second step has no plan, so the first one keeps waiting.
    let both = [&[(&*first, &*sha), (&*other, &*sha)][..], &rest].concat();
    let (status, _, text) = send(&browser, &path, "k2", &both).await;
    assert!((400..500).contains(&status), "{status} {text}");
    wait_for_step(app, run, waits).await;
    let one = [&[(&*first, &*sha)][..], &rest].concat();
    assert_eq!(send(&viewer(&started).await, &path, "k3", &one).await.0, 403);
    let (status, location, text) = send(&browser, &path, "k4", &one).await;
    assert_eq!(status, 303, "{text}");
    let page = browser.get(&location).await.text().await.unwrap();
    assert!(page.contains("approved by") && page.contains(": reviewed"), "{page}");
    started.server.stop().await;
}

#[tokio::test]
async fn a_runner_is_drained_resumed_and_revoked_by_owners() {
    let started = Started::new().await;
    let (browser, viewer) = (Browser::logged_in(&started).await, viewer(&started).await);
    let id = runner(started.app(), vec![]).await;
    let (page, path) = (format!("/ui/runners/{id}"), format!("/ui/runners/{id}/control"));
    let form = |verb| [("verb", verb), ("reason", "maintenance")];
    assert_eq!(send(&viewer, &path, "k0", &form("revoke")).await.0, 403);
    for (verb, shown) in
        [("drain", "drained"), ("resume", "active"), ("disable", "disabled"), ("enable", "active")]
    {
        let (status, location, text) = send(&browser, &path, verb, &form(verb)).await;
        assert!(status == 303 && location.starts_with(&page), "{verb}: {status} {text}");
        let html = browser.get(&location).await.text().await.unwrap();
        assert!(html.contains(&format!("{shown}</span>")), "{verb}: {html}");
    }
    assert_eq!(send(&browser, &path, "k5", &form("destroy")).await.0, 400);
    let (status, location, text) = send(&browser, &path, "k6", &form("revoke")).await;
    assert_eq!(status, 303, "{text}");
    let html = browser.get(&location).await.text().await.unwrap();
    assert!(html.contains("revoked</span>") && !html.contains("/control\""), "{html}");
    started.server.stop().await;
}

#[tokio::test]
async fn an_install_that_does_not_exist_has_no_pages() {
    let started = Started::new().await;
    let browser = Browser::logged_in(&started).await;
    for path in ["/ui/installs/none/change", "/ui/installs/none/upgrade?to=2", "/ui/apps/none/diff"]
    {
        assert_eq!(browser.get(path).await.status(), StatusCode::NOT_FOUND, "{path}");
    }
    let invalid = browser.get("/ui/installs/none/upgrade?to=x").await;
    assert_eq!(invalid.status(), StatusCode::BAD_REQUEST);
    started.server.stop().await;
}
