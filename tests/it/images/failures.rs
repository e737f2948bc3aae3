//! Images that cannot be built: each fails with its cause and the remedy, without effect on other
//! components.
use serde_json::Value;
use tests::{Registry, agreed_message};

use super::{ImageApp, server};

/// Syncs an app whose builds may fail, and returns the builds.
fn builds(app: &ImageApp, server: &tests::Server) -> Vec<Value> {
    let synced =
        server.stead().args(["apps", "sync", app.dir.to_str().unwrap(), "--wait"]).output();
    assert!(!synced.unwrap().status.success(), "a build must fail");
    server.cli_json(&["builds", "list", "--app", app.name()]).as_array().unwrap().clone()
}

#[test]
fn builds_of_images_that_cannot_be_read_name_the_remedy() {
    let Some(upstream) = Registry::start_or_skip() else { return };
    upstream.push_image("acme/good", "1", "linux/amd64", &[b"layer"]);
    upstream.push_image("acme/arm", "1", "linux/arm64", &[b"layer"]);
    let gone = upstream.push_image("acme/gone", "1", "linux/amd64", &[b"gone"]);
    upstream.delete("acme/gone", &gone.digest);
    let server = server(&upstream);
    let app = ImageApp::new(&server, "images");
    app.image("good", "acme/good", "1", "")
        .image("foreign", "acme/arm", "1", "")
        .image("missing", "acme/missing", "1", "")
        .image("gone", "acme/gone", &gone.digest, "")
        // Nothing listens on this port.
        .image("unreachable", "127.0.0.1:1/acme/x", "1", "");
    let builds = builds(&app, &server);
    let build = |name: &str| builds.iter().find(|one| one["component_name"] == name).unwrap();
    assert_eq!(build("good")["state"], "succeeded", "{builds:#?}");
    for (name, expected) in [
        ("foreign", "it has no image for linux/amd64; it has linux/arm64; correct `platforms`"),
        ("missing", "acme/missing 1"),
        ("gone", "does not exist"),
        ("unreachable", "cannot reach the registry 127.0.0.1:1"),
    ] {
        let detail = build(name)["detail"].as_str().unwrap_or_default();
        assert_eq!(build(name)["state"], "failed", "{name}");
        assert!(detail.contains(expected), "{name}: {detail}");
    }
    for (name, golden, input) in [
        ("foreign", "other-platform", "an image of another platform"),
        ("gone", "image-gone", "a digest that is gone"),
        ("unreachable", "registry-unreachable", "an unreachable registry"),
    ] {
        let detail = build(name)["detail"].as_str().unwrap();
        let host = upstream.host();
        let variable = [(host.as_str(), "REGISTRY"), (gone.digest.as_str(), "sha256:…")];
        agreed_message(golden, (input, "build"), detail, &variable);
    }
    let unreachable = build("unreachable")["detail"].as_str().unwrap();
    assert!(unreachable.contains("--registry-mirror 127.0.0.1:1=URL"), "{unreachable}");
}

#[test]
fn an_invalid_reference_is_rejected_before_the_build() {
    let Some(upstream) = Registry::start_or_skip() else { return };
    let server = server(&upstream);
    let app = ImageApp::new(&server, "images");
    app.image("bad", "https://ghcr.io/acme/web", "1", "platforms = [\"linux\"]");
    let (_, message) = server.refused(&["apps", "sync", app.dir.to_str().unwrap()]);
    assert!(message.contains("components/bad.toml:5"), "{message}");
    assert!(message.contains("has a scheme") && message.contains("not a platform"), "{message}");
}
