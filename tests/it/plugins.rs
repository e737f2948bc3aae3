//! Tests published plugins: a runner pulls the plugin of a component type from the vendor's server
//! if the customer trusts its publisher.
use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::Value;
use tempfile::TempDir;
use tests::{
    Customer, Runner, Server, finish, notes_files, notes_files_v2, program, stdout_of, succeeded,
    until,
};

/// Publisher of plugins: the directory of its key, its key file and its public key.
pub(crate) struct Publisher {
    _dir: TempDir,
    pub(crate) file: String,
    pub(crate) key: String,
}

pub(crate) fn publisher() -> Publisher {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("publisher.key").display().to_string();
    let mut keygen = Command::new(program("stead"));
    let created = stdout_of(keygen.args(["--output", "json", "plugins", "keygen", &file]));
    let created: Value = serde_json::from_str(&created).unwrap();
    let key = created["publisher"].as_str().unwrap().to_owned();
    Publisher { _dir: dir, file, key }
}

/// Starts a server whose build runner executes the plugins of this publisher.
fn server(publisher: &Publisher) -> Server {
    Server::up_with("127.0.0.1:0", &["--plugin-publisher", &publisher.key])
}

pub(crate) fn push(server: &Server, key: &str, name: &str) -> Value {
    server.cli_json(&["plugins", "push", "--key", key, program(name).to_str().unwrap()])
}

/// Syncs an app and creates an install. Returns the enrolment of its runner.
fn install(server: &Server) -> Value {
    let app = notes_files(server.dir());
    let synced = server.cli_json(&["apps", "sync", app.to_str().unwrap(), "--wait"]);
    assert_eq!(synced["version"], 1, "{synced:#}");
    let create =
        ["installs", "create", "notes-files", "acme", "--auto-approve", "--input", "company=Acme"];
    server.cli_json(&create)["enrolment"].clone()
}

/// Returns a customer that has no plugin executable.
fn customer(server: &Server, more: &[&str]) -> Customer {
    let empty = server.dir().join("no-plugins");
    fs::create_dir_all(&empty).unwrap();
    Customer::new(server, "customer").with(&["--plugin-dir", empty.to_str().unwrap()]).with(more)
}

fn provisioned(server: &Server) -> Value {
    until("the provision run", Duration::from_secs(30), || {
        !server.cli_json(&["runs", "list", "--install", "acme"]).as_array().unwrap().is_empty()
    });
    finish(server, "acme")
}

fn reprovisioned(server: &Server, reason: &str) -> Value {
    server.cli_json(&["installs", "reprovision", "acme", "--reason", reason]);
    finish(server, "acme")
}

fn append_to_policy(runner: &Runner, line: &str) {
    let path = runner.data().join("policy.toml");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen("version = 1\n", &format!("version = 1\n{line}\n"), 1)).unwrap();
}

#[test]
fn a_runner_pulls_a_plugin_whose_publisher_its_customer_trusts() {
    // given a published plugin, an app that uses it, and a runner without the plugin
    let publisher = publisher();
    let (server, key) = (server(&publisher), &publisher.key);
    let pushed = push(&server, &publisher.file, "stead-plugin-files");
    assert_eq!((&pushed["name"], &pushed["unchanged"]), (&"files".into(), &false.into()));
    assert_eq!(pushed["publisher"], key.as_str());
    assert_eq!(push(&server, &publisher.file, "stead-plugin-files")["unchanged"], true);
    let shown = server.cli_json(&["plugins", "show", "files"]);
    assert_eq!(shown["versions"][0]["digest"], pushed["digest"], "{shown:#}");
    let enrolment = install(&server);
    let runner = customer(&server, &[]).start(&server, enrolment["token"].as_str().unwrap());

    // when the publisher is unknown, then the runner refuses and prints the line to add
    let run = provisioned(&server);
    let line = format!("plugin_publishers = [\"{key}\"]");
    assert_eq!(run["state"], "failed", "{run:#}");
    assert!(run.to_string().contains(&line.replace('"', "\\\"")), "{run:#}");
    assert!(runner.ledger().is_empty());
    assert_eq!(run["preflight"]["state"], "failed", "{run:#}");

    // when the policy lists other plugins, then the runner still refuses
    append_to_policy(&runner, &line);
    append_to_policy(&runner, "plugins = [\"terraform_module\"]");
    let run = reprovisioned(&server, "the publisher is trusted");
    assert_eq!(run["state"], "failed", "{run:#}");
    assert!(run.to_string().contains("is not among the allowed plugins"), "{run:#}");

    // when the policy allows the plugin, then the runner pulls it and runs it
    append_to_policy(&runner, "# without the list of plugins");
    let path = runner.data().join("policy.toml");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen("plugins = [\"terraform_module\"]\n", "", 1)).unwrap();
    let run = reprovisioned(&server, "the plugin is allowed");
    assert_eq!(run["state"], "succeeded", "{run:#}");
    // The inputs of most components depend on outputs of the run, so their plans check them.
    let preflight = &run["preflight"];
    assert_eq!(preflight["state"], "passed", "{run:#}");
    let status = |status: &str| {
        let checks = preflight["checks"].as_array().unwrap().iter();
        checks.filter(|check| check["status"] == status).count()
    };
    assert!(status("ok") >= 3 && status("deferred") >= 1 && status("failed") == 0, "{run:#}");
    let log = tests::stdout_of(server.stead_for_people().args([
        "jobs",
        "logs",
        preflight["job"].as_str().unwrap(),
    ]));
    assert!(log.contains("deferred: ") && log.contains("ok: disk: "), "{log}");
    let shown = tests::stdout_of(server.stead_for_people().args(["runs", "show", "acme"]));
    assert!(shown.contains("preflight  passed") && shown.contains("deferred check: "), "{shown}");
    assert!(runner.ledger().len() >= 6, "{:?}", runner.ledger());
}

#[test]
fn damaged_bytes_of_a_plugin_never_run() {
    // given a plugin of protocol version 1, and a runner that trusts its publisher
    let publisher = publisher();
    let (server, key) = (server(&publisher), &publisher.key);
    push(&server, &publisher.file, "frozen-plugin-v1");
    let enrolment = install(&server);
    let registry = server.data().join("registry/stead.plugins/files/blobs/sha256");
    let executable = largest(&registry);
    let bytes = fs::read(&executable).unwrap();
    let mut damaged = bytes.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    fs::write(&executable, &damaged).unwrap();
    let runner = customer(&server, &["--plugin-publisher", key])
        .start(&server, enrolment["token"].as_str().unwrap());

    // when the server sends other bytes, then the runner refuses them
    let run = provisioned(&server);
    assert_eq!(run["state"], "failed", "{run:#}");
    assert!(run.to_string().contains("its digest is"), "{run:#}");
    assert!(runner.ledger().is_empty());

    // when a repeated push repairs the blob, then the plugin runs
    assert_eq!(push(&server, &publisher.file, "frozen-plugin-v1")["unchanged"], true);
    assert_eq!(fs::read(&executable).unwrap(), bytes);
    let run = reprovisioned(&server, "restored");
    assert_eq!(run["state"], "succeeded", "{run:#}");
    assert!(runner.ledger().len() >= 6, "{:?}", runner.ledger());

    // when another executable has the same version, then the server rejects it
    let path = program("stead-plugin-files").display().to_string();
    let args = ["plugins", "push", "--key", &publisher.file, &path];
    let rejected = server.stead_for_people().args(args).output().unwrap();
    assert_eq!(rejected.status.code(), Some(4), "{rejected:?}");
    assert!(String::from_utf8_lossy(&rejected.stderr).contains("increase the version"));

    // when a later version of the app is published, then it uses the newest plugin
    let app = notes_files_v2(server.dir());
    let synced = server.cli_json(&["apps", "sync", app.to_str().unwrap(), "--wait"]);
    assert_eq!(synced["version"], 2, "{synced:#}");
    server.cli_json(&["installs", "upgrade", "acme", "--to", "2", "--reason", "version 2"]);
    succeeded(&server, "acme");
}

#[test]
fn the_server_publishes_the_plugins_that_are_installed_with_it() {
    // given a plugin in `libexec` beside the program
    let bin = tempfile::tempdir().unwrap();
    fs::create_dir(bin.path().join("libexec")).unwrap();
    fs::copy(program("stead"), bin.path().join("stead")).unwrap();
    let plugin = bin.path().join("libexec/stead-plugin-files");
    fs::copy(program("stead-plugin-files"), plugin).unwrap();
    // when the server starts
    let mut server = Server::up_from(&bin.path().join("stead"));
    // then the plugin is published, and the enrol command pins its publisher
    let shown = server.cli_json(&["plugins", "show", "files"]);
    let versions = shown["versions"].as_array().unwrap();
    assert_eq!(versions.len(), 1, "{shown:#}");
    assert!(versions[0]["version"].as_str().unwrap().starts_with("0.1.0+"), "{shown:#}");
    let app = notes_files(server.dir());
    server.cli_json(&["apps", "sync", app.to_str().unwrap()]);
    let create = ["installs", "create", "notes-files", "acme", "--input", "company=Acme"];
    let created = server.cli_json(&create);
    let pin = format!(" --plugin-publisher {}", versions[0]["publisher"].as_str().unwrap());
    assert!(created["enrolment"]["command"].as_str().unwrap().contains(&pin), "{created:#}");
    // A restart publishes nothing.
    server.stop();
    server.restart();
    assert_eq!(server.cli_json(&["plugins", "show", "files"]), shown);

    // With a new key, a start publishes the plugin again, and a sync of the app warns.
    server.stop();
    fs::remove_file(server.data().join("keys/plugins.key")).unwrap();
    server.restart();
    let after = server.cli_json(&["plugins", "show", "files"]);
    let versions = after["versions"].as_array().unwrap();
    let publishers: Vec<&str> =
        versions.iter().map(|version| version["publisher"].as_str().unwrap()).collect();
    assert_eq!(publishers.len(), 2, "{after:#}");
    assert_ne!(publishers[0], publishers[1]);
    let synced = server.cli_json(&["apps", "sync", app.to_str().unwrap()]);
    assert_eq!(synced["version"], 2, "{synced:#}");
    let findings = synced["diagnostics"].as_array().unwrap();
    let mut messages = findings.iter().filter_map(|one| one["message"].as_str());
    let message = messages.find(|message| message.contains("has another publisher"));
    let message = message.unwrap_or_else(|| panic!("{synced:#}"));
    assert!(publishers.iter().all(|publisher| message.contains(publisher)), "{message}");
}

#[test]
fn concurrent_pushes_publish_one_version_once() {
    let (publisher, other) = (publisher(), publisher());
    let server = server(&publisher);
    let path = program("stead-plugin-files").display().to_string();
    let push = |key: &str| {
        let args = ["plugins", "push", "--key", key, &path];
        server.stead().args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let pushes = [&publisher.file, &publisher.file, &other.file].map(|key| push(key));
    let outputs = pushes.map(|push| push.wait_with_output().unwrap());
    let shown = server.cli_json(&["plugins", "show", "files"]);
    let versions = shown["versions"].as_array().unwrap();
    assert_eq!(versions.len(), 1, "{shown:#}");
    // The pushes of one publisher succeed, or that of the other one.
    let codes = outputs.each_ref().map(|output| output.status.code());
    let expected = match versions[0]["publisher"] == publisher.key.as_str() {
        true => [Some(0), Some(0), Some(4)],
        false => [Some(4), Some(4), Some(0)],
    };
    assert_eq!(codes, expected, "{outputs:?}");
    let unchanged = outputs.iter().filter(|output| {
        let pushed: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        pushed["unchanged"] == false
    });
    assert_eq!(unchanged.count(), 1, "{outputs:?}");
}

#[test]
fn a_customer_lists_and_removes_publishers() {
    let publisher = publisher();
    let (server, key) = (server(&publisher), &publisher.key);
    push(&server, &publisher.file, "stead-plugin-files");
    let enrolment = install(&server);
    let runner = customer(&server, &["--plugin-publisher", key])
        .start(&server, enrolment["token"].as_str().unwrap());
    assert_eq!(provisioned(&server)["state"], "succeeded");
    let publishers = |args: &[&str]| {
        let mut command = Command::new(program("stead-runner"));
        command.arg("publishers").args(args).arg("--data").arg(runner.data());
        command.output().unwrap()
    };
    let list = || String::from_utf8(publishers(&["list"]).stdout).unwrap();
    assert_eq!(list(), format!("{key}  recorded\n"));

    // A removed key counts for the next job, while the agent runs.
    let removed = publishers(&["remove", key]);
    assert_eq!(String::from_utf8_lossy(&removed.stdout), format!("Removed publisher {key}\n"));
    assert!(list().contains("No publisher is trusted"), "{}", list());
    let again = publishers(&["remove", key]);
    assert!(String::from_utf8_lossy(&again.stderr).contains("it is not recorded"), "{again:?}");
    let run = reprovisioned(&server, "after the removal");
    assert_eq!(run["state"], "failed", "{run:#}");
    assert!(run.to_string().contains("is not trusted"), "{run:#}");
    append_to_policy(&runner, &format!("plugin_publishers = [\"{key}\"]"));
    assert_eq!(list(), format!("{key}  policy\n"));
    let in_policy = publishers(&["remove", key]);
    let message = String::from_utf8_lossy(&in_policy.stderr);
    assert!(message.contains("remove it from plugin_publishers of the policy"), "{message}");
}

fn largest(dir: &Path) -> std::path::PathBuf {
    let files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    files.max_by_key(|file| fs::metadata(file).unwrap().len()).unwrap()
}

#[test]
fn a_build_runs_the_published_plugin_if_its_publisher_is_trusted() {
    // given a plugin whose publisher the build runner does not trust
    let (publisher, other) = (publisher(), publisher());
    let server = server(&other);
    push(&server, &publisher.file, "stead-plugin-files");
    let app = notes_files(server.dir());
    server.cli_json(&["apps", "sync", app.to_str().unwrap()]);
    let build = || {
        let builds = server.cli_json(&["builds", "list", "--app", "notes-files"]);
        let failed = |build: &&Value| build["state"] == "failed";
        builds.as_array().unwrap().iter().find(failed).cloned()
    };
    // when its build job runs, then the build runner refuses the plugin and names the remedy
    until("the failed build", Duration::from_secs(30), || build().is_some());
    let build = build().unwrap();
    let shown = server.cli_json(&["builds", "show", build["id"].as_str().unwrap()]).to_string();
    assert!(shown.contains("--plugin-publisher"), "{shown}");
}
