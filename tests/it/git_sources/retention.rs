//! Tests the retention of artifacts on the server.
use std::process::Command;

use super::*;

/// Returns the path of an artifact's manifest in the server's layout.
fn manifest(server: &Server, digest: &Value) -> PathBuf {
    let blobs = server.data().join("registry/shop/web/blobs/sha256");
    blobs.join(digest.as_str().unwrap().trim_start_matches("sha256:"))
}

fn has(server: &Server, digest: &Value) -> bool {
    manifest(server, digest).exists()
}

#[test]
fn the_server_deletes_only_artifacts_that_no_install_needs() {
    let git = GitServer::start();
    let modules = git.repository("acme/modules");
    let configuration = git.configuration("");
    let mut server = Server::up_in(&[("GIT_CONFIG_GLOBAL", configuration.to_str().unwrap())]);
    let dir = app(&server, &[("web", "acme/modules", ".", None)]);
    let path = dir.to_str().unwrap().to_owned();
    let (mut commits, mut artifacts) = (vec![], vec![]);
    for version in 1..=5 {
        let module = MODULE.replace("one", &version.to_string());
        commits.push(modules.commit("main", &[("main.tf", &module)]));
        server.cli_json(&["apps", "sync", &path, "--resolve", "--wait"]);
        artifacts.push(builds(&server)["web"]["artifact"]["digest"].clone());
        if version == 1 {
            server.cli_json(&["installs", "create", "shop", "acme"]);
        }
    }
    let registry = server.data().join("registry");
    let touch = ["-type", "f", "-exec", "touch", "-d", "2 days ago", "{}", "+"];
    stdout_of(Command::new("find").arg(registry).args(touch));
    for (version, digest) in artifacts.iter().enumerate() {
        let age = format!("{} days ago", 9 - version);
        stdout_of(Command::new("touch").args(["-d", &age]).arg(manifest(&server, digest)));
    }

    server.restart_with(&["--artifact-quota", "1"]);
    until("the retention", Duration::from_secs(60), || !has(&server, &artifacts[2]));

    // The install follows version 1, and the two newest artifacts of a component always stay.
    let left: Vec<bool> = artifacts.iter().map(|digest| has(&server, digest)).collect();
    assert_eq!(left, [true, false, false, true, true]);
    let (code, message) = server.refused(&["installs", "upgrade", "acme", "--to", "2"]);
    let expected = "cannot use version 2: the server does not have the artifacts of web any more";
    assert!(code == 4 && message.contains(expected), "{code} {message}");
    assert_eq!(server.cli_json(&["installs", "show", "acme"])["config_version"], 1);
    // A version with the same commit is built again.
    let pinned = [("web", "acme/modules", ".", Some(commits[1].as_str()))];
    app(&server, &pinned);
    sync(&server, &dir);
    let rebuilt = &builds(&server)["web"];
    assert_eq!(rebuilt["commit"], commits[1].as_str(), "{rebuilt:#}");
    assert!(has(&server, &rebuilt["artifact"]["digest"]));
    server.cli_json(&["installs", "upgrade", "acme", "--to", "6"]);
}
