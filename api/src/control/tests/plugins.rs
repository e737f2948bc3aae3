//! Publication of plugins, and the plugins of config versions.
use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use cli::{
    client::Client,
    plugins::pack::{Executable, PackedPlugin, pack},
};
use domain::app::App as AppState;
use ed25519_dalek::SigningKey;
use schemas::control::{
    PageQuery,
    plugins::{PluginPublished, PublishPlugin},
    tokens::Role,
};

use super::{bundle_of_files, client, client_with_role, owner, rejection};
use crate::server::testing::Started;

fn key(seed: u8) -> SigningKey {
    SigningKey::from_bytes(&[seed; 32])
}

/// Packs a script that describes itself as the plugin `vault` of this version.
async fn packed(dir: &Path, version: &str, key: &SigningKey) -> PackedPlugin {
    let value = format!(
        r#"{{"protocol":1,"name":"vault","version":"{version}","kinds":["plan","apply"]}}"#
    );
    let path = dir.join(format!("vault-{version}"));
    let script = format!("#!/bin/sh\necho '{{\"type\":\"result\",\"id\":1,\"value\":{value}}}'\n");
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    pack(&[Executable { platform: None, path }], key).await.unwrap()
}

async fn store(client: &Client, plugin: &PackedPlugin) {
    for (digest, bytes) in &plugin.blobs {
        client.store_plugin_blob(&plugin.name, digest, bytes.clone()).await.unwrap();
    }
}

fn request(plugin: &PackedPlugin) -> PublishPlugin {
    PublishPlugin { digest: plugin.digest.clone(), publisher: plugin.publisher.clone() }
}

async fn push(client: &Client, plugin: &PackedPlugin) -> PluginPublished {
    store(client, plugin).await;
    client.publish_plugin(&plugin.name, &request(plugin)).await.unwrap()
}

fn app(mark: &str) -> bytes::Bytes {
    bundle_of_files(&[
        ("app/metadata.toml", "version = \"v2\"\n"),
        (
            "app/components/store.toml",
            "name = \"store\"\ntype = \"vault\"\n[public_repo]\nrepo = \".\"\ndirectory = \"store\"\n",
        ),
        ("app/store/data.txt", mark),
        ("source/store/data.txt", mark),
    ])
}

#[tokio::test]
async fn a_plugin_is_published_once_and_listed() {
    let started = Started::new().await;
    let (owner, dir) = (owner(&started), tempfile::tempdir().unwrap());
    let first = packed(dir.path(), "1.0", &key(1)).await;
    // accepted
    let published = push(&owner, &first).await;
    assert_eq!((&*published.version, published.unchanged), ("1.0", false));
    assert_eq!((&published.digest, &published.publisher), (&first.digest, &first.publisher));
    // repeated
    assert!(push(&owner, &first).await.unchanged);
    // rejected: other content under the same version
    let other = packed(dir.path(), "1.0", &key(2)).await;
    store(&owner, &other).await;
    let answer = owner.publish_plugin("vault", &request(&other)).await;
    assert_eq!(rejection(answer), (409, "rejected".into()));
    push(&owner, &packed(dir.path(), "1.1", &key(2)).await).await;
    let listed = owner.plugins(&PageQuery::default()).await.unwrap().items;
    let versions: Vec<_> = listed[0].versions.iter().map(|v| v.version.as_str()).collect();
    assert_eq!((listed.len(), &*listed[0].name, versions), (1, "vault", vec!["1.1", "1.0"]));
    assert_eq!(owner.plugin("vault").await.unwrap(), listed[0]);
    assert_eq!(rejection(owner.plugin("other").await).0, 404);
    started.server.stop().await;
}

#[tokio::test]
async fn an_artifact_that_is_not_complete_and_signed_is_rejected() {
    let started = Started::new().await;
    let (owner, dir) = (owner(&started), tempfile::tempdir().unwrap());
    let plugin = packed(dir.path(), "1.0", &key(1)).await;
    let publish = async |name: &str, body: &PublishPlugin| {
        rejection(owner.publish_plugin(name, body).await.map(drop))
    };
    // Nothing is stored, and then only the index.
    assert_eq!(publish("vault", &request(&plugin)).await, (422, "invalid".into()));
    let (digest, index) = plugin.blobs.last().unwrap();
    owner.store_plugin_blob("vault", digest, index.clone()).await.unwrap();
    assert_eq!(publish("vault", &request(&plugin)).await.0, 422);
    // A blob must match the digest in its path.
    let wrong = owner.store_plugin_blob("vault", digest, "x".into()).await;
    assert_eq!(rejection(wrong), (400, "digest_mismatch".into()));
    store(&owner, &plugin).await;
    // Another publisher did not sign it.
    let publisher = hex::encode(key(2).verifying_key().as_bytes());
    let of_another = PublishPlugin { publisher, ..request(&plugin) };
    assert_eq!(publish("vault", &of_another).await.0, 422);
    let no_key = PublishPlugin { publisher: "key".into(), ..request(&plugin) };
    assert_eq!(publish("vault", &no_key).await.0, 422);
    // The statement is about another name.
    for (digest, bytes) in &plugin.blobs {
        owner.store_plugin_blob("other", digest, bytes.clone()).await.unwrap();
    }
    assert_eq!(publish("other", &request(&plugin)).await.0, 422);
    for name in ["terraform_module", "action", "container_image", "git", "Vault", "a.b"] {
        assert_eq!(publish(name, &request(&plugin)).await.0, 422, "{name}");
    }
    // A manifest is not an index.
    let (manifest, _) = &plugin.blobs[plugin.blobs.len() - 2];
    let body = PublishPlugin { digest: manifest.clone(), ..request(&plugin) };
    assert_eq!(publish("vault", &body).await.0, 422);
    // Only an owner publishes.
    let approver = client_with_role(&started, Role::Approver).await;
    let answer = approver.publish_plugin("vault", &request(&plugin)).await;
    assert_eq!(rejection(answer).0, 403);
    assert_eq!(rejection(approver.store_plugin_blob("vault", digest, "x".into()).await).0, 403);
    assert!(owner.publish_plugin("vault", &request(&plugin)).await.is_ok());
    started.server.stop().await;
}

#[tokio::test]
async fn a_config_version_keeps_the_plugins_that_it_was_published_with() {
    let started = Started::new().await;
    let (owner, dir) = (owner(&started), tempfile::tempdir().unwrap());
    // Without the plugin, the type is unknown.
    assert_eq!(rejection(owner.sync("shop", app("1"), false).await).0, 422);
    let first = packed(dir.path(), "1.0", &key(1)).await;
    push(&owner, &first).await;
    let synced = owner.sync("shop", app("1"), false).await.unwrap();
    let pins = async |version: u32| {
        let state = started.app().engine.load::<AppState>(synced.app.unwrap()).await.unwrap();
        state.versions[&version].plugins.clone()
    };
    assert_eq!((synced.version, pins(1).await[0].version.as_str()), (1, "1.0"));
    assert_eq!(pins(1).await[0].digest, first.digest);

    // A newer plugin changes neither the version nor a sync of the same directory.
    push(&owner, &packed(dir.path(), "1.1", &key(1)).await).await;
    let again = owner.sync("shop", app("1"), false).await.unwrap();
    assert!(again.unchanged && again.version == 1, "{again:?}");
    assert_eq!(pins(1).await[0].version, "1.0");

    // Another directory uses the newest plugin, and the diff names it.
    let preview = owner.sync("shop", app("2"), true).await.unwrap();
    assert!(format!("{:?}", preview.diff).contains("plugin vault"), "{:?}", preview.diff);
    let next = owner.sync("shop", app("2"), false).await.unwrap();
    assert_eq!((next.version, pins(2).await[0].version.as_str()), (2, "1.1"));
    assert_eq!(pins(1).await[0].version, "1.0");
    started.server.stop().await;
}

/// A sync publishes a component type of the app format even without its plugin. The next sync of
/// the same directory uses a plugin that was published in between.
#[tokio::test]
async fn a_missing_plugin_is_added_by_the_next_sync() {
    let started = Started::new().await;
    let (owner, dir) = (owner(&started), tempfile::tempdir().unwrap());
    let chart = bundle_of_files(&[
        ("app/metadata.toml", "version = \"v2\"\n"),
        (
            "app/components/front.toml",
            "name = \"front\"\ntype = \"helm_chart\"\nchart_name = \"front\"\n\
             [public_repo]\nrepo = \".\"\ndirectory = \"front\"\n",
        ),
        ("app/front/Chart.yaml", "name: front\n"),
        ("source/front/Chart.yaml", "name: front\n"),
    ]);
    let first = owner.sync("web", chart.clone(), false).await.unwrap();
    assert!(owner.sync("web", chart.clone(), false).await.unwrap().unchanged);
    let script = r#"echo '{"type":"result","id":1,"value":{"protocol":1,"name":"helm_chart","version":"3","kinds":[]}}'"#;
    let path = dir.path().join("helm");
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let helm = pack(&[Executable { platform: None, path }], &key(1)).await.unwrap();
    push(&owner, &helm).await;
    let second = owner.sync("web", chart.clone(), false).await.unwrap();
    assert_eq!((first.version, second.version, second.unchanged), (1, 2, false));
    assert!(owner.sync("web", chart, false).await.unwrap().unchanged);
    started.server.stop().await;
}

/// A server that has read a plugin keeps its state in memory, without the versions that another server
/// publishes later.
#[tokio::test]
async fn a_sync_uses_the_version_that_another_server_published() {
    let first = Started::new().await;
    let second = Started::beside(&first).await;
    let (owner, dir) = (owner(&first), tempfile::tempdir().unwrap());
    let of_second = client(&second, &first.owner_token());
    push(&owner, &packed(dir.path(), "1.0", &key(1)).await).await;
    let synced = of_second.sync("shop", app("1"), false).await.unwrap();
    let newest = packed(dir.path(), "1.1", &key(2)).await;
    push(&owner, &newest).await;

    let next = of_second.sync("shop", app("2"), false).await.unwrap();

    let id = synced.app.unwrap().to_string();
    let state = first.app().log().reload::<AppState>(&id).await.unwrap().state;
    let pin = &state.versions[&next.version].plugins[0];
    assert_eq!((&pin.version, &pin.publisher), (&"1.1".to_owned(), &newest.publisher));
    second.server.stop().await;
    first.server.stop().await;
}
