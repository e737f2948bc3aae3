//! Forms of the dashboard that create tokens, installs and builds, and that change settings.
use domain::{
    actor::Actor,
    build::{Build, BuildCommand, BuildFailure},
};
use event_log::Meta;

use super::{
    super::{owner, toggles},
    *,
};
use crate::execute::Call;

/// Returns the text of the first secret that a page shows.
fn secret(html: &str) -> Option<String> {
    let (_, rest) = html.split_once("command secret\">")?;
    rest.split('<').next().map(str::to_owned)
}

#[tokio::test]
async fn a_new_token_is_shown_once_and_ends_with_its_revocation() {
    let started = Started::new().await;
    let (browser, viewer) = (Browser::logged_in(&started).await, viewer(&started).await);
    let form = [("name", "Ann"), ("role", "approver"), ("days", "30")];
    assert_eq!(send(&viewer, "/ui/settings/tokens", "k0", &form).await.0, 403);
    assert!(!viewer.get("/ui/settings").await.text().await.unwrap().contains("Users and tokens"));
    let (status, location, text) = send(&browser, "/ui/settings/tokens", "k1", &form).await;
    assert_eq!((status, &*location), (200, ""), "a URL never has the token: {text}");
    let token = secret(&text).unwrap();
    let ann = Browser::with_secret(&started, &token).await;
    let (status, _, again) = send(&browser, "/ui/settings/tokens", "k1", &form).await;
    assert!(status == 200 && again.contains("submitted before") && !again.contains(&token));
    let page = browser.get("/ui/settings").await.text().await.unwrap();
    assert!(!page.contains(&token) && page.matches(" Ann, token").count() == 1, "{page}");

    let (_, rest) = page.split_once(" Ann, token ").unwrap();
    let id = rest.split('<').next().unwrap();
    let revoke = [("token", id)];
    assert_eq!(send(&viewer, "/ui/settings/revoke", "k2", &revoke).await.0, 403);
    assert_eq!(ann.get("/ui/").await.status(), StatusCode::OK);
    assert_eq!(send(&browser, "/ui/settings/revoke", "k3", &revoke).await.0, 303);
    assert_eq!(ann.get("/ui/").await.status(), StatusCode::SEE_OTHER);
    for days in ["0", "-1", "x", "99999999999999"] {
        let form = [("name", ""), ("role", "owner"), ("days", days)];
        let (status, _, text) = send(&browser, "/ui/settings/tokens", days, &form).await;
        assert_eq!(status, 422, "{days}: {text}");
    }
    started.server.stop().await;
}

#[tokio::test]
async fn roles_and_names_change_and_a_subject_needs_its_typed_id() {
    let started = Started::new().await;
    let (browser, viewer) = (Browser::logged_in(&started).await, viewer(&started).await);
    let tokens = owner(&started).tokens(&PageQuery::default()).await.unwrap().items;
    let of = |role: &str| tokens.iter().find(|token| token.roles == [role]).unwrap();
    let (vic, root) = (of("viewer"), of("owner"));
    let principal = vic.principal.to_string();
    let grant = [("principal", &*principal), ("role", "auditor"), ("change", "grant")];
    assert_eq!(send(&viewer, "/ui/settings/roles", "k0", &grant).await.0, 403);
    let (status, location, text) = send(&browser, "/ui/settings/roles", "k1", &grant).await;
    assert_eq!(status, 303, "{text}");
    let rename = [("principal", &*principal), ("name", "Vic")];
    assert_eq!(send(&viewer, "/ui/settings/names", "k2", &rename).await.0, 403);
    assert_eq!(send(&browser, "/ui/settings/names", "k2", &rename).await.0, 303);
    let page = browser.get(&location).await.text().await.unwrap();
    assert!(page.contains("Vic<div") && page.contains("auditor, viewer"), "{page}");
    // The new auditor sees the projections, and still no tokens.
    let seen = viewer.get("/ui/settings").await.text().await.unwrap();
    assert!(seen.contains("<h2>Projections") && !seen.contains("Users and tokens"), "{seen}");
    let own = root.principal.to_string();
    let last = [("principal", &*own), ("role", "owner"), ("change", "revoke")];
    let (status, _, text) = send(&browser, "/ui/settings/roles", "k3", &last).await;
    assert!(status == 409 && text.contains("only owner"), "{status} {text}");

    let token = vic.id.to_string();
    send(&browser, "/ui/settings/revoke", "k4", &[("token", &token)]).await;
    let page = browser.get(&format!("/ui/settings?subject={principal}")).await;
    let page = page.text().await.unwrap();
    assert!(page.contains("readable</span>") && page.contains("/ui/settings/shred"), "{page}");
    let shred = |typed| [("subject", &*principal), ("confirm", typed), ("reason", "has left")];
    for typed in ["", "Vic", &own] {
        let (status, _, text) = send(&browser, "/ui/settings/shred", "k5", &shred(typed)).await;
        assert!(status == 422 && text.contains("nothing was erased"), "{status} {text}");
    }
    let (status, _, text) = send(&browser, "/ui/settings/shred", "k6", &shred(&principal)).await;
    assert_eq!(status, 303, "{text}");
    let page = browser.get(&format!("/ui/settings?subject={principal}")).await;
    assert!(!page.text().await.unwrap().contains("/ui/settings/shred"));
    assert_eq!(browser.get("/ui/settings?subject=acme").await.status(), StatusCode::BAD_REQUEST);
    started.server.stop().await;
}

#[tokio::test]
async fn an_install_is_created_once_with_the_command_for_its_customer() {
    let (started, owner, _) = with_install().await;
    let (browser, viewer) = (Browser::logged_in(&started).await, viewer(&started).await);
    let path = "/ui/apps/shop/new-install";
    let page = browser.get(path).await.text().await.unwrap();
    assert!(page.contains("name=\"input.size\" required"), "{page}");
    let form = |name, size| {
        [("name", name), ("version", "1"), ("approval", "first"), ("input.size", size)]
    };
    assert_eq!(send(&viewer, path, "k0", &form("globex", "3")).await.0, 403);
    for (name, size) in [("globex", ""), ("Globex!", "3")] {
        let (status, _, text) = send(&browser, path, "k1", &form(name, size)).await;
        assert_eq!(status, 422, "{name} {size}: {text}");
    }
    assert_eq!(send(&browser, path, "k2", &form("acme", "3")).await.0, 409);
    let (status, location, text) = send(&browser, path, "k3", &form("globex", "3")).await;
    assert_eq!((status, &*location), (200, ""), "{text}");
    let token = secret(&text).unwrap();
    assert!(token.starts_with("stead_enrol_") && text.contains("--token-file -"), "{text}");
    let (status, _, again) = send(&browser, path, "k3", &form("globex", "3")).await;
    assert!(status == 200 && secret(&again).is_none() && again.contains("submitted before"));
    let install = owner.install("globex").await.unwrap();
    assert_eq!((install.inputs["size"].clone(), install.auto_approve), ("3".into(), false));

    let page = browser.get("/ui/installs/globex/change").await.text().await.unwrap();
    assert!(page.contains("/enrol\""), "{page}");
    let enrol = format!("/ui/installs/{}/enrol", install.id);
    assert_eq!(send(&viewer, &enrol, "k4", &[]).await.0, 403);
    let (status, _, text) = send(&browser, &enrol, "k5", &[]).await;
    assert_eq!(status, 200, "{text}");
    assert_ne!(secret(&text).unwrap(), token);
    started.server.stop().await;
}

#[tokio::test]
async fn components_outputs_and_approval_of_an_install_change() {
    let started = Started::new().await;
    let owner = owner(&started);
    owner.sync("shop", toggles::shop(), false).await.unwrap();
    let acme = owner.create_install(&super::super::new_install("acme")).await.unwrap();
    let (browser, viewer) = (Browser::logged_in(&started).await, viewer(&started).await);
    let page = browser.get("/ui/installs/acme/change").await.text().await.unwrap();
    assert!(page.contains("Disable web") && page.contains("Enable cache"), "{page}");
    assert!(!page.contains("Disable base"), "{page}");
    let path = |verb: &str| format!("/ui/installs/{}/{verb}", acme.id);
    // The page of the change includes it; a read of another client may not.
    let change = async |path: &str, key: &str, fields: &[(&str, &str)]| {
        let (status, location, text) = send(&browser, path, key, fields).await;
        assert_eq!(status, 303, "{text}");
        assert_eq!(browser.get(&location).await.status(), StatusCode::OK);
    };
    let set = |name, on| [("component", name), ("enabled", on), ("reason", "CHG-1")];
    let components = path("components");
    assert_eq!(send(&viewer, &components, "k0", &set("web", "false")).await.0, 403);
    // `web` requires `db`, so `db` cannot be disabled alone.
    assert_eq!(send(&browser, &components, "k1", &set("db", "false")).await.0, 422);
    change(&components, "k2", &set("web", "false")).await;
    let install = owner.install("acme").await.unwrap();
    let is_off = |name| install.components.iter().any(|part| part.name == name && part.disabled);
    assert!(is_off("web") && is_off("cache") && !is_off("db"));

    let output = |change| [("name", "vpc"), ("value", "vpc-1"), ("change", change), ("reason", "")];
    let outputs = path("stack-outputs");
    assert_eq!(send(&viewer, &outputs, "k3", &output("set")).await.0, 403);
    change(&outputs, "k4", &output("set")).await;
    assert_eq!(owner.install("acme").await.unwrap().stack_outputs["vpc"], "vpc-1");
    change(&outputs, "k5", &output("remove")).await;
    assert!(owner.install("acme").await.unwrap().stack_outputs.is_empty());

    let automatic = [("automatic", "true"), ("reason", "trusted")];
    assert_eq!(send(&viewer, &path("approval"), "k6", &automatic).await.0, 403);
    change(&path("approval"), "k7", &automatic).await;
    assert!(owner.install("acme").await.unwrap().auto_approve);
    started.server.stop().await;
}

#[tokio::test]
async fn builds_have_pages_and_only_failed_ones_are_retried() {
    let (started, owner, _) = with_install().await;
    let (browser, viewer) = (Browser::logged_in(&started).await, viewer(&started).await);
    let build = &owner.builds(&BuildsQuery::default()).await.unwrap().items[0];
    let app = browser.get("/ui/apps/shop").await.text().await.unwrap();
    assert!(app.contains("Newest builds") && app.contains(&format!("/ui/builds/{}", build.id)));
    let page = viewer.get(&format!("/ui/builds/{}", build.id)).await;
    assert_eq!(page.status(), StatusCode::OK);
    let text = page.text().await.unwrap();
    assert!(text.contains(&format!("Build of {}", build.component_name)), "{text}");
    for (filter, has) in [("", true), ("?state=", true), ("?state=failed", false)] {
        let list = browser.get(&format!("/ui/apps/shop/builds{filter}")).await;
        assert_eq!(list.status(), StatusCode::OK);
        let list = list.text().await.unwrap();
        assert_eq!(list.contains(&build.id.to_string()), has, "{filter}: {list}");
    }
    let retry = format!("/ui/builds/{}/retry", build.id);
    assert_eq!(send(&viewer, &retry, "k0", &[]).await.0, 403);
    let (status, _, text) = send(&browser, &retry, "k1", &[]).await;
    assert!(status == 409 && text.contains("only a failed build"), "{status} {text}");
    let (app, failed) = (started.app(), build.id);
    let call = Call::of(Meta::new(Actor::System, crate::ids::new_ulid().to_string()));
    let done = app.engine.transact(&call, move |unit| {
        let (reason, detail) = (BuildFailure::JobFailed, "exit code 1".to_owned());
        Box::pin(unit.handle::<Build>(failed, BuildCommand::Fail { reason, detail }))
    });
    let position = done.await.unwrap().position;
    let page = browser.get(&format!("/ui/builds/{failed}?min_position={position}")).await;
    let page = page.text().await.unwrap();
    assert!(page.contains("exit code 1") && page.contains(&format!("{retry}\"")), "{page}");
    let (status, location, text) = send(&browser, &retry, "k2", &[]).await;
    assert!(status == 303 && location.starts_with("/ui/apps/app_"), "{status} {text}");
    let page = browser.get(&location).await.text().await.unwrap();
    assert!(page.contains("<h2>Version 2"), "{page}");
    assert_eq!(send(&browser, &retry, "k2", &[]).await.0, 303);
    assert_eq!(owner.app("shop").await.unwrap().version, 2, "the form took effect once");
    started.server.stop().await;
}

#[tokio::test]
async fn a_webhook_is_configured_shown_and_deleted() {
    let started = Started::new().await;
    let (browser, viewer) = (Browser::logged_in(&started).await, viewer(&started).await);
    let path = "/ui/settings/webhooks";
    let create = [
        ("name", "ops"),
        ("url", "http://127.0.0.1:9/secret-path"),
        ("format", "standard"),
        ("topic:run.failed", "on"),
        ("topic:job.outcome_unknown", "on"),
    ];
    assert_eq!(send(&viewer, path, "k0", &create).await.0, 403);
    assert_eq!(viewer.get(path).await.status(), StatusCode::FORBIDDEN);
    let (status, _, text) = send(&browser, path, "k1", &create).await;
    assert_eq!(status, 200, "{text}");
    let shown = secret(&text).unwrap();
    assert!(shown.starts_with("whsec_"), "{shown}");
    let (status, _, again) = send(&browser, path, "k1", &create).await;
    assert!(status == 200 && again.contains("submitted before") && !again.contains(&shown));

    // Other topics keep URL and secret, so no page with a secret follows.
    let change = [("name", "ops"), ("url", ""), ("format", "slack"), ("topic:run.failed", "on")];
    let (status, location, _) = send(&browser, path, "k2", &change).await;
    assert_eq!(status, 303);
    let page = browser.get(&location).await.text().await.unwrap();
    assert!(page.contains("http://127.0.0.1:9") && page.contains("slack"), "{page}");
    assert!(!page.contains("secret-path") && !page.contains(&shown), "{page}");
    let (status, _, tested) = send(&browser, &format!("{path}/ops/test"), "k3", &[]).await;
    assert!(status == 200 && tested.contains("did not accept the test message"), "{tested}");
    let replay = [("state", "failed"), ("from", ""), ("to", "x")];
    assert_eq!(send(&browser, &format!("{path}/ops/replay"), "k4", &replay).await.0, 422);
    let replay = [("state", "failed"), ("from", "1"), ("to", "")];
    assert_eq!(send(&browser, &format!("{path}/ops/replay"), "k5", &replay).await.0, 303);
    let none = [("name", "other"), ("url", "http://127.0.0.1:9"), ("format", "standard")];
    assert_eq!(send(&browser, path, "k6", &none).await.0, 422);

    let delete = format!("{path}/ops/delete");
    assert_eq!(send(&browser, &delete, "k7", &[("confirm", "op")]).await.0, 422);
    assert_eq!(send(&browser, &delete, "k8", &[("confirm", "ops")]).await.0, 303);
    assert_eq!(browser.get(&format!("{path}/ops")).await.status(), StatusCode::NOT_FOUND);
    started.server.stop().await;
}
