//! Tests the lifecycle with every component in a vendor's own plugin, without Terraform.
use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use sha2::{Digest as _, Sha256};
use tests::{
    Runner, Server, finish, job_events, notes_files, notes_files_v2, program, succeeded, until,
};

#[test]
fn a_vendors_plugin_plans_applies_changes_and_destroys() {
    let server = Server::up();
    let app = notes_files(server.dir());
    let plugin = format!("files={}", program("stead-plugin-files").display());
    let sync = |app: &str| server.cli_json(&["apps", "sync", app, "--plugin", &plugin, "--wait"]);
    let first = sync(app.to_str().unwrap());
    assert_eq!(first["builds"].as_array().unwrap().len(), 6, "{first:#}");

    let create = ["installs", "create", "notes-files", "acme", "--input", "company=Acme"];
    let created = server.cli_json(&create);
    // The customer installs the executable, because their security team decides what may run.
    let plugins = server.dir().join("plugins");
    fs::create_dir(&plugins).unwrap();
    fs::copy(program("stead-plugin-files"), plugins.join("stead-plugin-files")).unwrap();
    let token = created["enrolment"]["token"].as_str().unwrap();
    let plugin_dir = ["--plugin-dir", plugins.to_str().unwrap()];
    let runner = Runner::start_with(&server, "customer", token, &plugin_dir);
    until("the provision run", Duration::from_secs(30), || {
        !server.cli_json(&["runs", "list", "--install", "acme"]).as_array().unwrap().is_empty()
    });
    let run = finish(&server, "acme");
    assert_eq!(run["state"], "succeeded", "{run:#}");
    let effects = runner.ledger().len();
    assert!(effects >= 6, "{:?}", runner.ledger());

    let v2 = notes_files_v2(server.dir());
    let second = sync(v2.to_str().unwrap());
    assert_eq!(second["builds"].as_array().unwrap().len(), 1, "{second:#}");
    server.cli_json(&["installs", "upgrade", "acme", "--to", "2", "--reason", "version 2"]);
    let run = finish(&server, "acme");
    assert_eq!(run["state"], "succeeded", "{run:#}");
    assert!(runner.ledger().len() > effects);

    // A plan without changes is not applied.
    server.cli_json(&["installs", "deploy", "acme", "--reason", "again"]);
    let run = finish(&server, "acme");
    assert_eq!(run["state"], "succeeded", "{run:#}");
    let noop = |step: &&serde_json::Value| step["plan"]["noop"] == true;
    assert!(run["dag"].as_array().unwrap().iter().any(|step| noop(&step)), "{run:#}");

    // An executable whose digest differs from the pinned one never runs.
    let before = runner.ledger().len();
    let (plugin, pinned) = (plugins.join("stead-plugin-files"), plugins.join("pinned"));
    fs::rename(&plugin, &pinned).unwrap();
    fs::write(&plugin, "#!/bin/sh\nexit 0\n").unwrap();
    server.cli_json(&["installs", "reprovision", "acme", "--reason", "once more"]);
    let run = finish(&server, "acme");
    assert_eq!(run["state"], "failed", "{run:#}");
    assert!(run.to_string().contains("the manifest requires"), "{run:#}");
    assert_eq!(runner.ledger().len(), before);

    fs::rename(&pinned, &plugin).unwrap();
    server.cli_json(&["installs", "deprovision", "acme", "--reason", "the end"]);
    let run = finish(&server, "acme");
    assert_eq!(run["state"], "succeeded", "{run:#}");
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten();
    entries.map(|entry| entry.unwrap().path()).collect()
}

fn digest(file: &Path) -> String {
    format!("{:x}", Sha256::digest(fs::read(file).unwrap()))
}

fn is_sound(blob: &Path) -> bool {
    blob.ends_with(digest(blob))
}

#[test]
fn corrupt_layers_are_quarantined_and_pulled_again() {
    // given an install whose runner has its artifacts
    let server = Server::up();
    let app = notes_files(server.dir());
    let plugin = format!("files={}", program("stead-plugin-files").display());
    server.cli_json(&["apps", "sync", app.to_str().unwrap(), "--plugin", &plugin, "--wait"]);
    let create =
        ["installs", "create", "notes-files", "acme", "--auto-approve", "--input", "company=Acme"];
    let created = server.cli_json(&create);
    let plugins = server.dir().join("plugins");
    fs::create_dir(&plugins).unwrap();
    fs::copy(program("stead-plugin-files"), plugins.join("stead-plugin-files")).unwrap();
    let token = created["enrolment"]["token"].as_str().unwrap();
    let plugin_dir = ["--plugin-dir", plugins.to_str().unwrap()];
    let runner = Runner::start_with(&server, "customer", token, &plugin_dir);
    until("the provision run", Duration::from_secs(30), || {
        !server.cli_json(&["runs", "list", "--install", "acme"]).as_array().unwrap().is_empty()
    });
    succeeded(&server, "acme");
    // when every layer is corrupt on its disk
    let artifacts = runner.data().join("artifacts");
    let blobs = files(&artifacts.join("blobs/sha256"));
    assert!(!blobs.is_empty() && blobs.iter().all(|blob| is_sound(blob)));
    let is_layer = |blob: &&PathBuf| !fs::read(blob).unwrap().starts_with(b"{");
    let layers: Vec<_> = blobs.iter().filter(is_layer).collect();
    for layer in &layers {
        let mut bytes = fs::read(layer).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(layer, bytes).unwrap();
        assert!(!is_sound(layer));
    }
    server.cli_json(&["installs", "deploy", "acme", "--reason", "again"]);
    // then the next run works with intact artifacts, and keeps the corrupt ones for examination
    let run = succeeded(&server, "acme");
    let corrupt = files(&artifacts.join("quarantine"));
    assert!(!corrupt.is_empty());
    for moved in &corrupt {
        let (name, _) = moved.file_name().unwrap().to_str().unwrap().split_once('.').unwrap();
        assert_ne!(digest(moved), name);
        assert!(is_sound(&artifacts.join("blobs/sha256").join(name)));
    }
    let sound = layers.iter().filter(|layer| is_sound(layer)).count();
    // The cleanup keeps the newest four corrupt files. Older files stay until the next cleanup.
    assert!((sound.min(4)..=sound).contains(&corrupt.len()), "{sound} {corrupt:?}");
    let jobs = run["dag"].as_array().unwrap().iter().filter_map(|step| step["job"].as_str());
    let logs: String = jobs
        .map(|job| {
            assert!(job_events(&server, job).iter().all(|event| event["type"] != "job.failed"));
            tests::stdout_of(server.stead_for_people().args(["jobs", "logs", job]))
        })
        .collect();
    assert!(logs.contains("the runner pulls the blob again"), "{logs}");
}
