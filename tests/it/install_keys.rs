//! Tests the keys of an install: the runner creates them, and the vendor pins their fingerprint.
use std::{
    fs,
    process::{Command, Output},
    time::Duration,
};

use serde_json::Value;
use tests::{Runner, Server, notes_files, program, stdout_of, until};

const TIMEOUT: Duration = Duration::from_secs(30);

/// Runs a `stead` command with its own configuration directory.
fn cli(server: &Server, args: &[&str]) -> Output {
    let config = server.dir().join("config");
    server.stead().env("XDG_CONFIG_HOME", config).args(args).output().unwrap()
}

/// Shows the install `acme` as JSON.
fn show(server: &Server) -> Value {
    let output = cli(server, &["installs", "show", "acme"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Pins a fingerprint. Returns an error with its message.
fn pin(server: &Server, fingerprint: &str, more: &[&str]) -> Result<(), String> {
    let output = cli(server, &[&["installs", "pin", "acme", fingerprint], more].concat());
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(message) }
}

fn fingerprint(runner: &Runner) -> String {
    stdout_of(&mut runner.local(&["fingerprint"])).trim().to_string()
}

#[test]
fn the_vendor_pins_the_keys_of_an_install() {
    let server = Server::up();
    let app = notes_files(server.dir());
    let plugin = format!("files={}", program("stead-plugin-files").display());
    server.cli_json(&["apps", "sync", app.to_str().unwrap(), "--plugin", &plugin, "--wait"]);
    let create = ["installs", "create", "notes-files", "acme", "--input", "company=A"];
    let created = server.cli_json(&create);
    assert_eq!(show(&server)["key_pin"], "not_pinned");
    let none = format!("sha256:{}", "0".repeat(64));
    let message = pin(&server, &none, &[]).unwrap_err();
    assert!(message.contains("its runner has not reported valid keys"), "{message}");

    let token = created["enrolment"]["token"].as_str().unwrap();
    let mut runner = Runner::start(&server, "customer", token);
    until("the keys", TIMEOUT, || show(&server)["keys"].is_object());
    let own = fingerprint(&runner);
    let shown = show(&server);
    assert_eq!(
        (&shown["key_fingerprint"], &shown["key_pin"]),
        (&own.as_str().into(), &"not_pinned".into())
    );

    // The server returned other keys than the customer has.
    let message = pin(&server, &none, &[]).unwrap_err();
    assert!(message.contains("the server returned keys with the fingerprint"), "{message}");
    let message = pin(&server, "sha256:1", &[]).unwrap_err();
    assert!(message.contains("invalid fingerprint"), "{message}");
    assert_eq!(show(&server)["key_pin"], "not_pinned");
    pin(&server, &own, &[]).unwrap();
    assert_eq!(show(&server)["key_pin"], "pinned");

    // The keys stay the same after a restart. A runner without them does not start.
    let path = runner.data().join("keys/install");
    let seed = fs::read(&path).unwrap();
    runner.kill();
    fs::remove_file(&path).unwrap();
    let output = runner.local(&[]).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{message}");
    assert!(message.contains("does not exist; restore it from a backup"), "{message}");
    fs::write(&path, seed).unwrap();
    runner.restart();
    assert_eq!(fingerprint(&runner), own);

    // The keys of another runner differ from the pinned ones.
    let id = show(&server)["runner"].as_str().unwrap().to_string();
    server.cli_json(&["runners", "revoke", &id, "--reason", "the host is lost"]);
    let issued = server.cli_json(&["installs", "create-enrolment-token", "acme"]);
    let token = issued["enrolment"]["token"].as_str().unwrap();
    let second = Runner::start(&server, "second", token);
    until("the other keys", TIMEOUT, || show(&server)["key_pin"] == "differs");
    let other = fingerprint(&second);
    assert_ne!(other, own);
    let message = pin(&server, &other, &[]).unwrap_err();
    assert!(message.contains("--replace"), "{message}");
    pin(&server, &other, &["--replace"]).unwrap();
    assert_eq!(show(&server)["key_pin"], "pinned");
}

/// The file of the seed and the secret in it appear in no output, event or other file.
#[test]
fn the_seed_stays_on_the_host() {
    let server = Server::up();
    let app = notes_files(server.dir());
    let plugin = format!("files={}", program("stead-plugin-files").display());
    server.cli_json(&["apps", "sync", app.to_str().unwrap(), "--plugin", &plugin, "--wait"]);
    let create = ["installs", "create", "notes-files", "acme", "--input", "company=A"];
    let created = server.cli_json(&create);
    let token = created["enrolment"]["token"].as_str().unwrap();
    let runner = Runner::start(&server, "customer", token);
    until("the keys", TIMEOUT, || show(&server)["keys"].is_object());
    let file = fs::read_to_string(runner.data().join("keys/install")).unwrap();
    let seed = file.split_whitespace().next().unwrap();
    assert_eq!(seed.len(), 64);
    let found = |secret: &str| {
        let mut grep = Command::new("grep");
        grep.args(["-rlaF", "--exclude-dir=bin", "--", secret]).arg(server.dir());
        String::from_utf8(grep.output().unwrap().stdout).unwrap()
    };
    let kept = runner.data().join("keys/install");
    for line in found(seed).lines() {
        assert_eq!(line, kept.to_str().unwrap());
    }
    // The search finds what the server stores: the public key.
    let public = show(&server)["keys"]["encryption_key"].as_str().unwrap().to_string();
    let events = server.cli_json(&["audit", "events", "--type", "runner.enrolled"]).to_string();
    assert!(events.contains(&public) && !events.contains(seed), "{events}");
}
