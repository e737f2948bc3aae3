//! The same story where every component belongs to a vendor's own plugin: no Terraform at all.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
use std::{fs, time::Duration};

use tests::{Runner, Server, finish, notes_files, notes_files_v2, program, until};

#[test]
fn a_vendors_plugin_plans_applies_changes_and_destroys() {
    let server = Server::up();
    let plugin = format!("files={}", program("stead-plugin-files").display());
    let app = notes_files(server.dir());
    let sync = |app: &str| server.ask(&["apps", "sync", app, "--plugin", &plugin, "--wait"]);
    let first = sync(app.to_str().unwrap());
    assert_eq!(first["builds"].as_array().unwrap().len(), 6, "{first:#}");

    let create = ["installs", "create", "notes-files", "acme", "--input", "company=Acme"];
    let created = server.ask(&create);
    // The customer installs the executable: their security team decides what may run.
    let plugins = server.dir().join("plugins");
    fs::create_dir(&plugins).unwrap();
    fs::copy(program("stead-plugin-files"), plugins.join("stead-plugin-files")).unwrap();
    let token = created["enrolment"]["token"].as_str().unwrap();
    let plugin_dir = ["--plugin-dir", plugins.to_str().unwrap()];
    let runner = Runner::start_with(&server, "customer", token, &plugin_dir);
    until("the provision run", Duration::from_secs(30), || {
        !server.ask(&["runs", "list", "--install", "acme"]).as_array().unwrap().is_empty()
    });
    let run = finish(&server, "acme");
    assert_eq!(run["state"], "succeeded", "{run:#}");
    let effects = runner.ledger().len();
    assert!(effects >= 6, "{:?}", runner.ledger());

    let v2 = notes_files_v2(server.dir());
    let second = sync(v2.to_str().unwrap());
    assert_eq!(second["builds"].as_array().unwrap().len(), 1, "{second:#}");
    server.ask(&["installs", "upgrade", "acme", "--to", "2", "--reason", "version 2"]);
    let run = finish(&server, "acme");
    assert_eq!(run["state"], "succeeded", "{run:#}");
    assert!(runner.ledger().len() > effects);

    // A plan without changes is not applied.
    server.ask(&["installs", "deploy", "acme", "--reason", "again"]);
    let run = finish(&server, "acme");
    assert_eq!(run["state"], "succeeded", "{run:#}");
    let noop = |step: &&serde_json::Value| step["plan"]["noop"] == true;
    assert!(run["dag"].as_array().unwrap().iter().any(|step| noop(&step)), "{run:#}");

    // An executable that is not the pinned one never runs.
    let before = runner.ledger().len();
    let (plugin, pinned) = (plugins.join("stead-plugin-files"), plugins.join("pinned"));
    fs::rename(&plugin, &pinned).unwrap();
    fs::write(&plugin, "#!/bin/sh\nexit 0\n").unwrap();
    server.ask(&["installs", "reprovision", "acme", "--reason", "once more"]);
    let run = finish(&server, "acme");
    assert_eq!(run["state"], "failed", "{run:#}");
    assert!(run.to_string().contains("the manifest wants"), "{run:#}");
    assert_eq!(runner.ledger().len(), before);

    fs::rename(&pinned, &plugin).unwrap();
    server.ask(&["installs", "deprovision", "acme", "--reason", "the end"]);
    let run = finish(&server, "acme");
    assert_eq!(run["state"], "succeeded", "{run:#}");
}
