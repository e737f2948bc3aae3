//! Tests sensitive inputs and outputs with real programs: the vendor's command encrypts, the server
//! stores what it cannot read, and the runner inserts. A search for every value finds none at the
//! server, and a hostile server is refused by name.
use std::{
    fs,
    io::Write as _,
    process::{Command, Output, Stdio},
    time::Duration,
};

use serde_json::Value;
use tests::{Runner, Server, dump, execute_sql, finish, stdout_of, step, terraform_or_skip, until};

use crate::secrets::{Search, files};

mod app;

use app::app;

const TIMEOUT: Duration = Duration::from_secs(60);

/// Required input, given by the vendor.
const TOKEN: &str = "token/4f1d+8a90=c2b7\"e653";
/// Secret, which only the customer sets.
const SIGNING_KEY: &str = "signing-90ac17e2+bb41/08";
/// Its next value.
const NEXT_TOKEN: &str = "token/next+77a1=d4c8\"f201";
/// Optional input, given by the customer.
const LICENSE: &str = "license-6b2e90f4-7ac3d1e8";
/// The same input, given by the vendor.
const VENDOR_LICENSE: &str = "license-41c7d90e-vendor";
/// Value of a sensitive input that a user typed in clear text.
const TYPED: &str = "typed-93b0e61d+4ca8/57";
/// Output that the module computes.
const PASSWORD: &str = "password-5e1f77aa+03bc/91";

/// Runs a `stead` command with its own configuration directory.
fn cli(server: &Server, args: &[&str]) -> Output {
    let config = server.dir().join("config");
    server.stead().env("XDG_CONFIG_HOME", config).args(args).output().unwrap()
}

#[track_caller]
fn ok(server: &Server, args: &[&str]) -> Value {
    let output = cli(server, args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

#[track_caller]
fn refused(server: &Server, args: &[&str]) -> String {
    let output = cli(server, args);
    assert!(!output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the outputs of a component.
fn outputs(server: &Server, name: &str) -> Value {
    let shown = ok(server, &["installs", "show", "acme"]);
    let components = shown["components"].as_array().unwrap();
    components.iter().find(|one| one["name"] == name).unwrap()["outputs"].clone()
}

fn sha256(text: &str) -> String {
    let mut sha = Command::new("sha256sum");
    let mut child = sha.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    String::from_utf8(output.stdout).unwrap().split_whitespace().next().unwrap().to_owned()
}

/// Starts a server with the app and an install, and its runner.
fn start(server: &Server) -> Runner {
    ok(server, &["apps", "sync", app(server).to_str().unwrap(), "--wait"]);
    let create = ["installs", "create", "edge-api", "acme", "--input", "company=A"];
    // No key exists yet.
    let message = refused(server, &[&create[..], &["--input", "api_token=x"]].concat());
    assert!(message.contains("has no runner yet, so there is no key"), "{message}");
    let created = ok(server, &create);
    let runner = Runner::start(server, "customer", created["enrolment"]["token"].as_str().unwrap());
    until("the keys", TIMEOUT, || ok(server, &["installs", "show", "acme"])["keys"].is_object());
    runner
}

fn pin(server: &Server, runner: &Runner) {
    let fingerprint = stdout_of(&mut runner.local(&["fingerprint"]));
    ok(server, &["installs", "pin", "acme", fingerprint.trim()]);
}

/// Writes a value to a file, and returns the option that names it.
fn secret(server: &Server, name: &str, value: &str) -> String {
    let file = server.dir().join("value");
    fs::write(&file, format!("{value}\n")).unwrap();
    format!("{name}={}", file.display())
}

fn set(server: &Server, name: &str, value: &str) -> Value {
    ok(server, &["installs", "set-inputs", "acme", "--secret", &secret(server, name, value)])
}

/// Sets a value on the host of the customer.
fn set_by_customer(runner: &Runner, name: &str, value: &str) {
    let mut command = runner.local(&["secret", "set", name]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(value.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && !String::from_utf8_lossy(&output.stdout).contains(value));
}

/// Returns the error of the failed step of a run.
fn failure(run: &Value) -> String {
    assert_eq!(run["state"], "failed", "{run:#}");
    run.to_string()
}

/// Searches everything that the server has or prints.
fn search(server: &Server, runner: &Runner, search: &Search) -> usize {
    let mut searched = 0;
    let mut check = |what: &str, bytes: &[u8]| {
        search.is_clean(what, bytes);
        searched += bytes.len();
    };
    check("the dump", &dump(server));
    check("the server's log", server.log().as_bytes());
    check("the runner's log", runner.log().as_bytes());
    let export = stdout_of(server.stead_for_people().args(["audit", "export"]));
    check("the events", export.as_bytes());
    let state = ok(server, &["installs", "state", "acme"]).to_string();
    check("the state of templates", state.as_bytes());
    let mut all = vec![];
    files(&server.data(), &mut all);
    for file in all {
        check(&file.display().to_string(), &fs::read(&file).unwrap_or_default());
    }
    searched
}

#[test]
fn sensitive_inputs_and_outputs_reach_only_their_jobs() {
    if !terraform_or_skip() {
        return;
    }
    let server = Server::up();
    let runner = start(&server);

    // The install waits for the required input, and the CLI encrypts only to a pinned key.
    let message = refused(&server, &["installs", "deploy", "acme"]);
    assert!(message.contains("waits for the sensitive input `api_token`"), "{message}");
    assert!(message.contains("waits for the secret `signing_key` of the customer"), "{message}");
    assert!(message.contains("`stead-runner secret set signing_key`"), "{message}");
    assert_eq!(ok(&server, &["runs", "list", "--install", "acme"]), serde_json::json!([]));
    let waits_for = &ok(&server, &["installs", "show", "acme"])["waits_for"];
    assert_eq!(*waits_for, serde_json::json!(["api_token", "signing_key"]));
    // Only the customer sets a secret.
    set_by_customer(&runner, "signing_key", SIGNING_KEY);
    until("the secret of the customer", TIMEOUT, || {
        ok(&server, &["installs", "show", "acme"])["waits_for"] == serde_json::json!(["api_token"])
    });
    assert_eq!(ok(&server, &["runs", "list", "--install", "acme"]), serde_json::json!([]));
    let option = secret(&server, "api_token", TOKEN);
    let set_token = ["installs", "set-inputs", "acme", "--secret", option.as_str()];
    let message = refused(&server, &set_token);
    assert!(message.contains("are not pinned"), "{message}");
    // Only `--secret` sets a sensitive input, and the CLI does not send the value to the server.
    let typed = format!("api_token={TYPED}");
    let set_typed = ["installs", "set-inputs", "acme", "--input", &typed];
    let message = refused(&server, &set_typed);
    assert!(message.contains("--secret api_token=FILE"), "{message}");
    assert!(!message.contains(TYPED), "{message}");
    let message = refused(&server, &[&set_typed[..], &["--secret", &option]].concat());
    assert!(message.contains("the command changes it twice"), "{message}");
    pin(&server, &runner);
    assert!(refused(&server, &set_typed).contains("--secret api_token=FILE"));
    for (option, expected) in [
        ("none=/dev/null", "has no sensitive input none"),
        ("company=/dev/null", "has no sensitive input company"),
        ("signing_key=/dev/null", "`stead-runner secret set signing_key`"),
        ("api_token=/dev/null", "the value is empty"),
        ("api_token=/nowhere", "cannot read the value of api_token"),
    ] {
        let message = refused(&server, &["installs", "set-inputs", "acme", "--secret", option]);
        assert!(message.contains(expected), "{message}");
    }

    // With the value, the first provision starts.
    let changed = ok(&server, &set_token);
    assert!(changed["run"].is_string(), "{changed:#}");
    let run = finish(&server, "acme");
    assert_eq!(run["state"], "succeeded", "{run:#}");
    let store = outputs(&server, "store");
    assert_eq!(store["token_sha256"], sha256(TOKEN), "{store:#}");
    assert_eq!(store["signing_key_sha256"], sha256(SIGNING_KEY), "{store:#}");
    assert_eq!(store["license_sha256"], sha256("none"));
    assert_eq!(store["pepper_sha256"], sha256("pepper-per-default"));
    let base64 = Command::new("sh")
        .args(["-c", "printf 'user:%s' \"$0\" | base64 -w0", TOKEN])
        .output()
        .unwrap();
    let header = String::from_utf8(base64.stdout).unwrap();
    assert_eq!(store["header_sha256"], sha256(&header));
    assert_eq!(store["leaked"], "the token is [redacted]");
    let id = |value: &Value| value.as_str().unwrap().strip_prefix("encrypted:val_").unwrap().len();
    for output in ["password", "keys", "port"] {
        assert_eq!(id(&store[output]), 26, "{store:#}");
    }
    let reader = outputs(&server, "reader");
    assert_eq!(reader["password_sha256"], sha256(PASSWORD), "{reader:#}");
    let url = format!("postgres://app:{}@db:5432", "password-5e1f77aa%2B03bc%2F91");
    assert_eq!(reader["url_sha256"], sha256(&url));
    assert_eq!(reader["second"], "second");

    // An action gets its values, and the log has none.
    ok(&server, &["installs", "action", "acme", "show"]);
    let run = finish(&server, "acme");
    assert_eq!(run["state"], "succeeded", "{run:#}");
    let job = step(&run, "show")["job"].as_str().unwrap();
    let log = stdout_of(server.stead_for_people().args(["jobs", "logs", job]));
    assert!(log.contains("plain: [redacted] [redacted]"), "{log}");
    assert!(log.contains(&format!("length: {} {}", TOKEN.len(), PASSWORD.len())), "{log}");

    // A deploy without a change plans nothing new: the outputs keep their ids.
    let _maybe_nothing = cli(&server, &["installs", "deploy", "acme"]);
    finish(&server, "acme");
    assert_eq!(outputs(&server, "store")["password"], store["password"]);

    // The customer sets the optional input. A run in progress continues without it. The vendor
    // cannot replace it.
    set(&server, "api_token", NEXT_TOKEN);
    set_by_customer(&runner, "license", LICENSE);
    until("the rejection", TIMEOUT, || server.log().contains("Cannot record a value"));
    let run = finish(&server, "acme");
    assert_eq!(run["state"], "succeeded", "{run:#}");
    assert_eq!(outputs(&server, "store")["license_sha256"], sha256("none"));
    until("the input of the customer", TIMEOUT, || {
        let inputs = &ok(&server, &["installs", "show", "acme"])["inputs"];
        inputs["license"].as_str().is_some_and(|text| text.starts_with("encrypted:val_"))
    });
    let run = finish(&server, "acme");
    assert_eq!(run["state"], "succeeded", "{run:#}");
    assert_eq!(outputs(&server, "store")["license_sha256"], sha256(LICENSE));
    let option = secret(&server, "license", "other-license");
    let message = refused(&server, &["installs", "set-inputs", "acme", "--secret", &option]);
    assert!(message.contains("the customer has set it"), "{message}");
    let listed = stdout_of(&mut runner.local(&["secret", "list"]));
    assert!(listed.contains("license") && !listed.contains(LICENSE), "{listed}");

    // After the customer has removed the value, the vendor can set it.
    stdout_of(&mut runner.local(&["secret", "remove", "license"]));
    let option = secret(&server, "license", VENDOR_LICENSE);
    until("the removal", TIMEOUT, || {
        let set = ["installs", "set-inputs", "acme", "--secret", &option];
        cli(&server, &set).status.success()
    });
    assert_eq!(finish(&server, "acme")["state"], "succeeded");
    assert_eq!(outputs(&server, "store")["license_sha256"], sha256(VENDOR_LICENSE));

    // A new value deploys its readers. The server deletes the former ciphertext an hour later.
    set(&server, "api_token", NEXT_TOKEN);
    let run = finish(&server, "acme");
    assert_eq!(run["state"], "succeeded", "{run:#}");
    assert_eq!(outputs(&server, "store")["token_sha256"], sha256(NEXT_TOKEN));

    // The curious server finds none of the values. The same search finds a value that leaked.
    let values =
        Search::new(&[SIGNING_KEY, TOKEN, NEXT_TOKEN, LICENSE, VENDOR_LICENSE, TYPED, PASSWORD]);
    let searched = search(&server, &runner, &values);
    assert!(searched > 100_000, "{searched} bytes");
    execute_sql(
        &server,
        &format!(
            "insert into sensitive_value values ('ins_x', 'val_x', '{PASSWORD}', '[]', false, false, null, now())"
        ),
    );
    assert!(values.finds(&dump(&server)), "the search finds an injected leak");
}

#[test]
fn a_hostile_server_is_refused_and_changes_nothing() {
    if !terraform_or_skip() {
        return;
    }
    let server = Server::up();
    let runner = start(&server);
    set_by_customer(&runner, "signing_key", SIGNING_KEY);
    pin(&server, &runner);
    set(&server, "api_token", TOKEN);
    until("the first run", TIMEOUT, || {
        ok(&server, &["runs", "list", "--install", "acme"]) != serde_json::json!([])
    });
    assert_eq!(finish(&server, "acme")["state"], "succeeded");
    set(&server, "license", LICENSE);
    assert_eq!(finish(&server, "acme")["state"], "succeeded");
    let good = outputs(&server, "store");

    // swapped: each input has the ciphertext of the other
    let token = "name = 'inputs.api_token'";
    let keep = "create table kept as select * from sensitive_value";
    execute_sql(&server, keep);
    let restore = "delete from sensitive_value; insert into sensitive_value select * from kept";
    let attacks = [
        (
            "update sensitive_value set ciphertext = \
             (select ciphertext from kept where name = 'inputs.license') where name = 'inputs.api_token'"
                .to_owned(),
            "it was moved, replaced",
        ),
        (
            format!("update sensitive_value set ciphertext = set_byte(ciphertext, 60, get_byte(ciphertext, 60) # 1) where {token}"),
            "cannot use the sensitive value inputs.api_token",
        ),
        (
            format!("update sensitive_value set ciphertext = substr(ciphertext, 1, 100) where {token}"),
            "cannot use the sensitive value inputs.api_token",
        ),
        (
            format!("update sensitive_value set consumers = '[{{\"component\":\"*\",\"job_kind\":\"*\"}}]' where {token}"),
            "it was moved, replaced",
        ),
        (
            format!("update sensitive_value set consumers = '[{{\"component\":\"web\",\"job_kind\":\"plan\"}}]' where {token}"),
            "is encrypted for other jobs than plan of store",
        ),
        (format!("delete from sensitive_value where {token}"), "was erased or replaced"),
    ];
    for (attack, expected) in &attacks {
        execute_sql(&server, restore);
        execute_sql(&server, attack);
        let _starts = ok(&server, &["installs", "deploy", "acme", "--component", "store"]);
        let run = finish(&server, "acme");
        let failed = failure(&run);
        assert!(failed.contains(expected), "{attack}: {failed}");
        assert_eq!(outputs(&server, "store"), good, "{attack}");
    }
    // The stored value still works.
    execute_sql(&server, restore);
    let _starts = ok(&server, &["installs", "deploy", "acme", "--component", "store"]);
    assert_eq!(finish(&server, "acme")["state"], "succeeded");

    // A substituted key: the CLI refuses to encrypt.
    let pins = server.dir().join("config/stead/pins.toml");
    let text = fs::read_to_string(&pins).unwrap();
    let at = text.find("sha256:").unwrap() + "sha256:".len();
    let digit = if text.as_bytes()[at] == b'0' { "1" } else { "0" };
    fs::write(&pins, format!("{}{digit}{}", &text[..at], &text[at + 1..])).unwrap();
    let option = secret(&server, "api_token", NEXT_TOKEN);
    let message = refused(&server, &["installs", "set-inputs", "acme", "--secret", &option]);
    assert!(message.contains("the server returned other keys of acme"), "{message}");
}
