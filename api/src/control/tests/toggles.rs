//! Components that an install enables and disables.
use bytes::Bytes;
use cli::client::ClientError;
use schemas::control::{
    apps::DiffQuery,
    audit::EventsQuery,
    installs::UpdateInstall,
    runs::{RequestRun, RequestedKind},
};

use super::{bundle_of_files, new_install, owner, rejection, with_install};
use crate::server::testing::Started;

const META: (&str, &str) = ("app/metadata.toml", "version = \"v2\"\n");

fn component(name: &str, more: &str) -> String {
    format!("{more}name = \"{name}\"\ntype = \"terraform_module\"\n[public_repo]\nrepo = \".\"\n")
}

/// `web` requires `db`. `cache` has no dependencies and is disabled by default. `web` and `db` are
/// toggleable.
pub(super) fn shop() -> Bytes {
    let inputs = "[[input]]\nname = \"size\"\n";
    let web =
        component("web", "toggleable = true\ndependencies = [\"db\"]\nmax_auto_retries = 2\n");
    let db = component("db", "toggleable = true\ndrift_schedule = \"0 3 * * *\"\n");
    let cache = component("cache", "default_enabled = false\nskip_noops = false\n");
    let base = component("base", "");
    bundle_of_files(&[
        META,
        ("app/inputs.toml", inputs),
        ("app/components/web.toml", &web),
        ("app/components/db.toml", &db),
        ("app/components/cache.toml", &cache),
        ("app/components/base.toml", &base),
        ("source/web/main.tf", ""),
        ("source/db/main.tf", ""),
        ("source/cache/main.tf", ""),
        ("source/base/main.tf", ""),
    ])
}

fn toggle(components: &[(&str, bool)]) -> UpdateInstall {
    let components = components.iter().map(|(name, on)| (name.to_string(), *on)).collect();
    UpdateInstall { components, reason: Some("CHG-7".into()), ..UpdateInstall::default() }
}

/// Messages of a request that was rejected as invalid.
fn rejection_messages<T: std::fmt::Debug>(response: Result<T, ClientError>) -> String {
    let error = response.unwrap_err();
    let ClientError::Problem(problem) = error else { panic!("{error}") };
    problem.errors.into_iter().map(|error| error.message).collect()
}

async fn disabled(owner: &cli::client::Client) -> Vec<String> {
    let install = owner.install("acme").await.unwrap();
    let off = install.components.iter().filter(|component| component.disabled);
    off.map(|component| component.name.clone()).collect()
}

#[tokio::test]
async fn components_are_enabled_and_disabled_once_with_actor_and_reason() {
    let started = Started::new().await;
    let owner = owner(&started);
    owner.sync("shop", shop(), false).await.unwrap();
    owner.create_install(&new_install("acme")).await.unwrap();
    assert_eq!(disabled(&owner).await, ["cache"]);
    let done = owner.update_install("acme", &toggle(&[("cache", true)])).await.unwrap();
    assert!(done.changed && done.run.is_none(), "nothing is deployed yet");
    assert_eq!(disabled(&owner).await, Vec::<String>::new());
    let again = owner.update_install("acme", &toggle(&[("cache", true)])).await.unwrap();
    assert!(!again.changed);
    owner.update_install("acme", &toggle(&[("web", false), ("db", false)])).await.unwrap();
    assert_eq!(disabled(&owner).await, ["db", "web"]);
    let which = EventsQuery {
        event_type: Some("install.component_disabled".into()),
        ..EventsQuery::default()
    };
    let events = owner.events(&which).await.unwrap().items;
    assert_eq!(events.len(), 2);
    let event = &events[0];
    assert!(event.actor.starts_with("prn_"), "{event:?}");
    assert!(event.readable_payload.as_ref().unwrap().get().contains("CHG-7"), "{event:?}");
}

#[tokio::test]
async fn component_that_an_enabled_one_requires_cannot_be_disabled() {
    let started = Started::new().await;
    let owner = owner(&started);
    owner.sync("shop", shop(), false).await.unwrap();
    owner.create_install(&new_install("acme")).await.unwrap();
    let text = rejection_messages(owner.update_install("acme", &toggle(&[("db", false)])).await);
    assert!(text.contains("web requires db"), "{text}");
    owner.update_install("acme", &toggle(&[("web", false), ("db", false)])).await.unwrap();
    let text = rejection_messages(owner.update_install("acme", &toggle(&[("web", true)])).await);
    assert!(text.contains("web requires db"), "{text}");
    // The config does not permit this choice, or the component does not exist.
    let text = rejection_messages(owner.update_install("acme", &toggle(&[("base", false)])).await);
    assert!(text.contains("set `toggleable = true` in components/base.toml"), "{text}");
    assert_eq!(rejection(owner.update_install("acme", &toggle(&[("nope", false)])).await).0, 422);
    // A rejected request records nothing.
    assert_eq!(disabled(&owner).await, ["cache", "db", "web"]);
}

#[tokio::test]
async fn disabled_component_is_not_planned_and_cannot_be_deployed_by_name() {
    let (_started, owner, _) = with_install().await;
    let shop = owner.sync_against("shop", shop(), None).await.unwrap();
    let plans: Vec<_> = shop.diff.impact[0].plans.iter().map(|plan| plan.name.clone()).collect();
    assert_eq!(plans, ["base", "db", "web"], "cache is off");
    owner.sync("shop", self::shop(), false).await.unwrap();
    owner
        .update_install("acme", &UpdateInstall { config_version: Some(2), ..toggle(&[]) })
        .await
        .unwrap();
    let request = RequestRun {
        kind: RequestedKind::Deploy,
        components: vec!["cache".into()],
        action: None,
        reason: None,
        plan_all: false,
    };
    let text = rejection_messages(owner.request_run("acme", &request).await);
    assert!(text.contains("disabled on this install: cache"), "{text}");
}

#[tokio::test]
async fn install_shows_the_settings_that_its_version_ignores() {
    let started = Started::new().await;
    let owner = owner(&started);
    owner.sync("shop", shop(), false).await.unwrap();
    owner.create_install(&new_install("acme")).await.unwrap();
    let install = owner.install("acme").await.unwrap();
    let drift =
        install.ignored_settings.iter().find(|found| found.message.contains("drift_schedule"));
    let drift = drift.unwrap_or_else(|| panic!("{:?}", install.ignored_settings));
    assert_eq!((drift.file.as_str(), drift.line), ("components/db.toml", Some(2)));
    let diff = owner.diff("shop", &DiffQuery::default()).await.unwrap();
    assert_eq!(diff.ignored_settings, install.ignored_settings);
    let silent = ["max_auto_retries", "skip_noops", "toggleable", "default_enabled"];
    for key in silent {
        assert!(install.ignored_settings.iter().all(|found| !found.message.contains(key)), "{key}");
    }
}
