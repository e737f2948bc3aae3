//! Tests key replacement during operation: an operator replaces the server's keys, and a runner
//! replaces its own key.
use std::{
    fs,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::Value;
use tests::{
    Customer, InterceptingProxy, Runner, Server, finish, notes_files, program, until, until_some,
};

const TIMEOUT: Duration = Duration::from_secs(60);

/// Starts a server with a published app of the plugin `files`, and creates an install of it.
fn installed(name: &str) -> (Server, String) {
    let server = Server::up();
    let plugin = format!("files={}", program("stead-plugin-files").display());
    let app = notes_files(server.dir());
    server.cli_json(&["apps", "sync", app.to_str().unwrap(), "--plugin", &plugin, "--wait"]);
    let created =
        server.cli_json(&["installs", "create", "notes-files", name, "--input", "company=A"]);
    let token = created["enrolment"]["token"].as_str().unwrap().to_string();
    (server, token)
}

/// Returns a directory with the vendor's plugin, as the customer installs it.
fn plugins(server: &Server) -> String {
    let plugins = server.dir().join("plugins");
    fs::create_dir_all(&plugins).unwrap();
    fs::copy(program("stead-plugin-files"), plugins.join("stead-plugin-files")).unwrap();
    plugins.to_str().unwrap().to_string()
}

fn runner(server: &Server, name: &str, token: &str) -> Runner {
    Runner::start_with(server, name, token, &["--plugin-dir", &plugins(server)])
}

/// Waits for a plan that requires approval.
fn wait_for_plan(server: &Server, install: &str) {
    until("a plan that waits", TIMEOUT, || {
        let run = server.stead().args(["runs", "show", install]).output().unwrap();
        String::from_utf8_lossy(&run.stdout).contains("waiting_for_approval")
    });
}

fn approve(server: &Server, install: &str) {
    server.cli_json(&["runs", "approve", install, "--all", "--reason", "the test says so"]);
}

/// Runs `stead keys …` on the server's data directory.
fn keys(server: &Server, args: &[&str]) -> Value {
    let data = server.data();
    server.cli_json(&[&["keys"], args, &["--data", data.to_str().unwrap()]].concat())
}

/// Waits until the server signs its key list with the key that has this fingerprint.
fn until_signed_by(server: &Server, fingerprint: &str) {
    until("the server to take the key", TIMEOUT, || {
        let url = format!("{}/.well-known/stead-keys", server.runner());
        let list: Value = serde_json::from_str(&tests::call("GET", &url, &[], b"").body).unwrap();
        let key_id = fingerprint.trim_start_matches("sha256:");
        list["signatures"][0]["keyid"] == key_id
    });
}

/// Returns the key that signs manifests.
fn manifest_key(server: &Server) -> Value {
    let all = keys(server, &["list"]);
    let signs = |key: &&Value| key["use"] == "manifests" && key.get("not_after").is_none();
    all.as_array().unwrap().iter().find(signs).unwrap().clone()
}

#[test]
fn server_keys_are_replaced_during_operation_and_an_expired_key_is_refused() {
    // given a runner that waits for approval of its first plan, and a stored checkpoint
    let (server, token) = installed("acme");
    let runner = runner(&server, "acme", &token);
    wait_for_plan(&server, "acme");
    let stored = server.dir().join("kept-checkpoint.txt");
    let checkpoint = server.cli_json(&["audit", "checkpoint"]);
    fs::write(&stored, checkpoint["note"].as_str().unwrap()).unwrap();
    let signing_key_file = server.data().join("keys/manifests.key");
    let (first, stolen) = (manifest_key(&server), fs::read(&signing_key_file).unwrap());

    // when each key is replaced, the manifest key without overlap
    keys(&server, &["rotate", "--use", "tokens"]);
    keys(&server, &["rotate", "--use", "checkpoints", "--overlap", "12h"]);
    let rotated = keys(&server, &["rotate", "--use", "manifests", "--no-overlap"]);
    assert_eq!(rotated.as_array().unwrap().len(), 2, "{rotated:#}");
    let second = manifest_key(&server);
    assert_ne!(first["key"], second["key"]);
    until_signed_by(&server, second["fingerprint"].as_str().unwrap());

    // then the runner continues with documents that the new keys signed
    approve(&server, "acme");
    until("the sandbox to be deployed", TIMEOUT, || {
        let install = server.cli_json(&["installs", "show", "acme"]);
        install["sandbox"]["state"] == "deployed"
    });
    let refused = server.cli_json(&["audit", "events", "--type", "runner.refused"]);
    assert_eq!(refused.as_array().unwrap().len(), 0, "{refused:#}");
    let trusted_keys = fs::read_to_string(runner.data().join("server-keys.json")).unwrap();
    assert!(trusted_keys.contains(second["key"].as_str().unwrap()), "{trusted_keys}");
    // and the log is still a continuation of the checkpoint that the former key signed
    let verified = server.cli_json(&["audit", "verify", "--against", stored.to_str().unwrap()]);
    assert_eq!(verified["unchanged_since"], checkpoint["size"], "{verified:#}");

    // when the holder of the expired key signs with it
    wait_for_plan(&server, "acme");
    fs::write(&signing_key_file, stolen).unwrap();
    until_signed_by(&server, first["fingerprint"].as_str().unwrap());
    approve(&server, "acme");
    // then the runner does nothing
    let refusal = until_some("the refusal", TIMEOUT, || {
        let events = server.cli_json(&["audit", "events", "--type", "runner.refused"]);
        events.as_array().unwrap().first().cloned()
    });
    assert_eq!(refusal["payload"]["rule"], "manifest_signature", "{refusal:#}");
}

/// Returns the number of key replacements of this server's runner.
fn rekeyed(server: &Server) -> usize {
    server.cli_json(&["audit", "events", "--type", "runner.rekeyed"]).as_array().unwrap().len()
}

#[test]
fn a_runner_replaces_its_key_on_request_and_by_age_despite_a_lost_response() {
    // given a runner that never receives the response to a rekey
    let (server, token) = installed("acme");
    let losing = Arc::new(AtomicBool::new(true));
    let is_losing = Arc::clone(&losing);
    let proxy = InterceptingProxy::before(server.runner(), move |call| {
        let loses_response = call.path.ends_with("/rekey") && is_losing.load(Ordering::Relaxed);
        loses_response.then(|| b"<html>Please log in</html>".to_vec())
    });
    let plugins = plugins(&server);
    let more = ["--plugin-dir", plugins.as_str()];
    let customer = Customer::new(&server, "acme").calls(proxy.url()).with(&more);
    let mut runner = customer.start(&server, &token);
    wait_for_plan(&server, "acme");
    let id = server.cli_json(&["installs", "show", "acme"])["runner"].as_str().unwrap().to_string();
    let identity = runner.data().join("keys/identity");
    let first = fs::read_to_string(&identity).unwrap();
    // when the runner gets a rekey directive and is killed before it learns that the server
    // accepted the key
    let response = server.cli_json(&["runners", "rekey", &id, "--reason", "audit"]);
    assert_eq!(response["changed"], true, "{response}");
    until("the new key", TIMEOUT, || rekeyed(&server) == 1);
    runner.kill();
    assert_eq!(fs::read_to_string(&identity).unwrap(), first);
    losing.store(false, Ordering::Relaxed);
    runner.restart();
    // then the runner uses the new key after its restart, and continues
    approve(&server, "acme");
    let run = finish(&server, "acme");
    assert_eq!(run["state"], "succeeded", "{run:#}");
    let second = fs::read_to_string(&identity).unwrap();
    assert_ne!(first, second);
    assert!(!runner.data().join("keys/identity.next").exists());
    assert_eq!(rekeyed(&server), 1);
    let journal = tests::stdout_of(&mut runner.local(&["journal"]));
    assert!(journal.contains("replaced its identity key"), "{journal}");
    // and when that key is old, the runner replaces it without a directive
    runner.kill();
    let (key, _) = second.trim().split_once(' ').unwrap();
    fs::write(&identity, format!("{key} 1700000000")).unwrap();
    runner.restart();
    until("another key", TIMEOUT, || rekeyed(&server) == 2);
    assert_journal_is_verifiable(&server, &runner, &id);
}

/// Checks that third parties can verify the runner's journal, signed with three keys, and cannot
/// forge it.
fn assert_journal_is_verifiable(server: &Server, runner: &Runner, id: &str) {
    let verified = |more: &[&str]| {
        let output = tests::stdout_of(&mut runner.local(&[&["journal", "verify"], more].concat()));
        assert!(output.contains("each chained to the previous one"), "{output}");
        output
    };
    assert!(verified(&[]).contains("signed on"));
    // The journal matches the head that the vendor stores.
    let head = server.dir().join("head.json");
    let stored = until_some("a head", TIMEOUT, || {
        let stored = server.cli_json(&["runners", "journal-head", id]);
        stored["payload"].is_string().then_some(stored)
    });
    fs::write(&head, stored.to_string()).unwrap();
    verified(&["--head", head.to_str().unwrap()]);
    // A holder of the exported file and the public key can verify the journal.
    let file = server.dir().join("journal.export");
    let exported = tests::stdout_of(&mut runner.local(&[
        "journal",
        "export",
        "--out",
        file.to_str().unwrap(),
    ]));
    let key = exported.lines().last().unwrap();
    let file = ["--file", file.to_str().unwrap(), "--key"];
    verified(&[&file[..], &[key]].concat());
    let other_key = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
    let refused =
        runner.local(&[&["journal", "verify"], &file[..], &[other_key]].concat()).output();
    assert!(!refused.unwrap().status.success());
    assert_cut_journal_is_not_signed(server, runner);
    // The runner signed each job result.
    let jobs = server.cli_json(&["jobs", "list", "--install", "acme"]);
    let ended: Vec<_> =
        jobs.as_array().unwrap().iter().filter(|job| job["state"] == "succeeded").collect();
    assert!(!ended.is_empty(), "{jobs:#}");
    let journal = tests::stdout_of(&mut runner.local(&["journal"]));
    for job in ended {
        let id = job["id"].as_str().unwrap();
        let shown = server.stead_for_people().args(["jobs", "show", id]).output().unwrap();
        let shown = String::from_utf8(shown.stdout).unwrap();
        assert!(shown.contains("signed by its runner, sha256:"), "{shown}");
        let digest = job["attempts"][0]["signed"]["digest"].as_str().unwrap();
        assert!(journal.contains(&format!("signed the result: {digest}")), "{journal}");
    }
}

/// Checks that a truncated journal is detected, and that an export does not sign it again.
fn assert_cut_journal_is_not_signed(server: &Server, runner: &Runner) {
    let cut = server.dir().join("cut");
    let copied = Command::new("cp").arg("-a").arg(runner.data()).arg(&cut).status();
    assert!(copied.unwrap().success());
    let text = fs::read_to_string(cut.join("journal.ndjson")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let stored = lines[..lines.len() / 2].join("\n") + "\n";
    fs::write(cut.join("journal.ndjson"), stored).unwrap();
    let local = |args: &[&str]| {
        Command::new(program("stead-runner")).args(args).arg("--data").arg(&cut).output().unwrap()
    };
    let out = server.dir().join("cut.export");
    let exported = local(&["journal", "export", "--out", out.to_str().unwrap()]);
    let message = String::from_utf8(exported.stderr).unwrap();
    assert!(
        !exported.status.success() && message.contains("cannot export the journal"),
        "{message}"
    );
    assert!(!out.exists());
    let status = String::from_utf8(local(&["status"]).stdout).unwrap();
    assert!(status.contains("WRONG"), "{status}");
}
