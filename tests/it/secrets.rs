//! Tests that no secret of the customer's environment reaches the vendor or the runner's files,
//! except encrypted in the Terraform state. This holds for secrets that no job receives, and for secrets that a
//! job receives and writes everywhere.
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use aho_corasick::AhoCorasick;
use serde_json::Value;
use tests::{
    Customer, Server, dump, edge_api, stdout_of, step, succeeded, terraform_or_skip, until,
    until_some,
};

const TIMEOUT: Duration = Duration::from_secs(60);
/// Secret in the runner's environment only.
const NOT_PASSED: &str = "kept-4f1d8a90c2b7e653";
/// Secret that every job receives.
const PASSED: &str = "passed/9b0e+77a1=d4c8f2";

/// Secret that every job receives and stores in a resource attribute. Terraform writes it into the
/// text of its plan, the plan file and the state.
const IN_ATTRIBUTE: &str = "shown\"6b2e\\90<f4>&d1${7ac3}";

/// Secret that every job receives, with the length of a session token. Tools wrap it at line ends.
const TOKEN: &str = concat!(
    "token-0b9d4a1e7c52f86303c1d8f5a29e64b77e10b3c94d5f28a6c0e7913fb28d645a1f7c30e9b6d2485a",
    "9c1e04f7b3a86d25e8f10c7b94a3d6521b0e8f97c4d3a6057f29e1b8c40d96a3e57b1f08d2c694ae730b85f1",
    "6d20c9e7a4b183f5d06c7e29b1f4a8530d9e6c7f21b4a803e5d79c6f12a0b48e3d75c9f601b2a4e8d37c5096f",
);

/// Script that writes the received secret in every way that this test covers.
const WRITES_SECRET: &str = r#"
echo "plain: $STEAD_CANARY_PASSED"
echo "in base64: $(printf %s "$STEAD_CANARY_PASSED" | base64)"
echo "in base64, moved: $(printf 'x%s' "$STEAD_CANARY_PASSED" | base64)"
echo "in hexadecimal: $(printf %s "$STEAD_CANARY_PASSED" | od -An -tx1 | tr -d ' \n')"
echo "to the other stream: $STEAD_CANARY_PASSED" >&2
printf %s "$STEAD_CANARY_TOKEN" | base64
printf %s "$STEAD_CANARY_TOKEN" | od -An -tx1
env
printf %s "$STEAD_CANARY_PASSED" > "$TMPDIR/left-behind"
printf %s "$STEAD_CANARY_PASSED" > "$HOME/left-behind"
echo "not given: ${STEAD_CANARY_KEPT:-nothing}"
"#;

/// Resource with the received secret as an attribute.
const RESOURCE: &str = r#"
variable "shown" {
  type    = string
  default = ""
}

resource "terraform_data" "shown" {
  input = { "of ${var.shown}" = [var.shown, "before ${var.shown} after"] }
}
"#;

/// Returns the forms of the secrets that must appear nowhere.
fn patterns(secrets: &[&str]) -> Vec<(String, Vec<u8>)> {
    let hex = |text: &str| text.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
    let mut all = Vec::new();
    for secret in secrets {
        let base64 =
            stdout_of(Command::new("sh").args(["-c", "printf %s \"$0\" | base64", secret]));
        for (form, text) in [
            ("as it is", secret.to_string()),
            ("in quotes", serde_json::Value::from(*secret).to_string().trim_matches('"').into()),
            ("in base64", base64.trim().trim_end_matches('=').to_string()),
            ("in hexadecimal", hex(secret)),
            ("in capital hexadecimal", hex(secret).to_uppercase()),
        ] {
            // A dump contains bytes as hexadecimal.
            all.push((format!("{secret} {form}, dumped"), hex(&text).into_bytes()));
            all.push((format!("{secret} {form}"), text.into_bytes()));
        }
    }
    let wrapped = stdout_of(Command::new("sh").args(["-c", "printf %s \"$0\" | base64", TOKEN]));
    let spaced =
        stdout_of(Command::new("sh").args(["-c", "printf %s \"$0\" | od -An -tx1", TOKEN]));
    assert!(wrapped.lines().count() > 3, "it is long enough to be wrapped");
    all.push(("the token".into(), TOKEN.into()));
    for line in wrapped.lines().chain(spaced.lines()).filter(|line| line.len() > 40) {
        all.push((format!("the token's line {line}"), line.trim().into()));
    }
    all
}

/// Search for all patterns in one pass.
pub(crate) struct Search {
    names: Vec<String>,
    automaton: AhoCorasick,
}

impl Search {
    pub(crate) fn new(secrets: &[&str]) -> Search {
        let (names, texts): (Vec<_>, Vec<_>) = patterns(secrets).into_iter().unzip();
        Search { names, automaton: AhoCorasick::new(texts).unwrap() }
    }

    /// Returns whether the bytes contain one of the secrets.
    pub(crate) fn finds(&self, bytes: &[u8]) -> bool {
        self.automaton.is_match(bytes)
    }

    #[track_caller]
    pub(crate) fn is_clean(&self, what: &str, bytes: &[u8]) {
        if let Some(found) = self.automaton.find(bytes) {
            let (name, at) = (&self.names[found.pattern().as_usize()], found.start());
            let around = &bytes[at.saturating_sub(120)..(found.end() + 40).min(bytes.len())];
            panic!("{what} contains {name}: …{}…", String::from_utf8_lossy(around));
        }
    }
}

/// Collects every regular file below a directory.
pub(crate) fn files(dir: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap().filter_map(Result::ok) {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            files(&entry.path(), into);
        } else if kind.is_file() {
            into.push(entry.path());
        }
    }
}

/// Returns `edge-api` with modules and an action that write the received secrets.
fn app_that_writes_secrets(server: &Server) -> PathBuf {
    let app = edge_api(server.dir());
    let append = |file: &Path| {
        let text = fs::read_to_string(file).unwrap();
        fs::write(file, text + WRITES_SECRET).unwrap();
    };
    for module in ["api", "cache", "database", "edge", "network"] {
        append(&app.join("modules").join(module).join("effect.sh"));
    }
    let module = app.join("modules/api/main.tf");
    fs::write(&module, fs::read_to_string(&module).unwrap() + RESOURCE).unwrap();
    let action = app.join("actions/smoke_test.sh");
    append(&action);
    let outputs = r#"printf '{"told": "%s"}\n' "$STEAD_CANARY_PASSED" >> "$STEAD_OUTPUT_FILE""#;
    let text = fs::read_to_string(&action).unwrap();
    fs::write(&action, format!("{text}{outputs}\n")).unwrap();
    app
}

#[test]
fn no_secret_is_stored_or_sent() {
    if !terraform_or_skip() {
        return;
    }
    let log_options = ["--log", "debug,hyper=info,h2=info,rustls=info,sqlx=warn"];
    let server = Server::up_with("127.0.0.1:0", &log_options);
    let app = app_that_writes_secrets(&server);
    server.cli_json(&["apps", "sync", app.to_str().unwrap(), "--wait"]);
    let args = ["--auto-approve", "--input", "company=Acme"];
    let created =
        server.cli_json(&[&["installs", "create", "edge-api", "acme"], &args[..]].concat());
    let enrolment = created["enrolment"]["token"].as_str().unwrap();
    let runner = Customer::new(&server, "customer")
        .env("RUST_LOG", "debug,hyper=info,h2=info,rustls=info")
        .env("STEAD_CANARY_KEPT", NOT_PASSED)
        .pass("STEAD_CANARY_PASSED", PASSED)
        .pass("STEAD_CANARY_TOKEN", TOKEN)
        .pass("TF_VAR_shown", IN_ATTRIBUTE)
        .start(&server, enrolment);
    until_some("the provision run", TIMEOUT, || {
        server.cli_json(&["runs", "list", "--install", "acme"]).as_array()?.first().cloned()
    });
    let provision = succeeded(&server, "acme");
    server.cli_json(&["installs", "action", "acme", "smoke_test"]);
    let action = succeeded(&server, "acme");

    // The jobs did write the secret, and the stored text is redacted.
    let job = action["dag"][0]["job"].as_str().unwrap();
    let log = stdout_of(server.stead_for_people().args(["jobs", "logs", job]));
    assert!(log.contains("plain: [redacted]"), "{log}");
    assert!(log.contains("to the other stream: [redacted]"), "{log}");
    assert!(log.contains("not given: nothing"), "{log}");

    // Terraform wrote the secret, too, in the text of its plan.
    let jobs = server.cli_json(&["jobs", "list"]);
    let plans = |job: &&Value| job["kind"] == "plan" && job["name"] == "api";
    let plan = jobs.as_array().unwrap().iter().find(plans).unwrap_or_else(|| panic!("{jobs:#}"));
    let log =
        stdout_of(server.stead_for_people().args(["jobs", "logs", plan["id"].as_str().unwrap()]));
    assert!(log.contains("+ \"of [redacted]\" = ["), "{log}");
    assert!(
        log.contains("+ \"[redacted]\",") && log.contains("\"before [redacted] after\""),
        "{log}"
    );
    assert_eq!(step(&provision, "api")["plan"]["add"], 2, "{provision:#}");

    // Searches the output for users and programs.
    let search = Search::new(&[NOT_PASSED, PASSED, IN_ATTRIBUTE]);
    for job in server.cli_json(&["jobs", "list"]).as_array().unwrap() {
        let id = job["id"].as_str().unwrap();
        let log = server.stead_for_people().args(["jobs", "logs", id]).output().unwrap();
        search.is_clean(&format!("the log of {id}"), &log.stdout);
    }
    for run in server.cli_json(&["runs", "list"]).as_array().unwrap() {
        let id = run["id"].as_str().unwrap();
        let plans = ["runs", "show", id, "--plans", "--details=full"];
        for mut command in [server.stead(), server.stead_for_people()] {
            let shown = stdout_of(command.args(plans));
            search.is_clean(&format!("the plans of {id}"), shown.as_bytes());
        }
    }
    for args in [&["audit", "export"][..], &["installs", "state", "acme"]] {
        let output = stdout_of(server.stead().args(args));
        search.is_clean(&format!("{args:?}"), output.as_bytes());
    }
    let export = stdout_of(server.stead_for_people().args(["audit", "export"]));
    let digests = export.split('"').filter(|word| word.starts_with("sha256:") && word.len() == 71);
    let authorization = format!("Bearer {}", server.owner_token());
    for digest in digests.collect::<std::collections::BTreeSet<_>>() {
        let url = format!("{}/v1/blobs/{digest}", server.control());
        let blob = tests::call("GET", &url, &[("Authorization", &authorization)], b"");
        search.is_clean(&format!("the blob {digest}"), blob.body.as_bytes());
    }

    // A job's directories are deleted shortly after its result is known.
    until("the jobs' directories to be deleted", TIMEOUT, || {
        let jobs = fs::read_dir(runner.data().join("jobs")).unwrap().filter_map(Result::ok);
        let mut directories =
            jobs.flat_map(|job| ["work", "tmp"].map(|name| job.path().join(name)));
        !directories.any(|directory| directory.exists())
    });

    // Searches the data on disk: tables, spool, journal, plans, state, artifacts, and the programs'
    // logs, which contain every called URL.
    let dumped = dump(&server);
    search.is_clean("the dump", &dumped);
    let mut all = Vec::new();
    files(server.dir(), &mut all);
    let spool = runner.data().join("jobs");
    assert!(all.iter().any(|file| file.starts_with(&spool)), "no spool in {}", spool.display());
    assert!(all.contains(&runner.data().join("journal.ndjson")), "no journal");
    // A state contains its resources' attributes, encrypted.
    let state = runner.data().join("state");
    let pulled = stdout_of(&mut runner.local(&["state", "pull", "api"]));
    let pulled = serde_json::from_str::<Value>(&pulled).unwrap().to_string();
    let written = Value::from(IN_ATTRIBUTE).to_string();
    assert!(pulled.contains(written.trim_matches('"')), "{pulled}");
    assert!(String::from_utf8_lossy(&dumped).contains("COPY stead.state_version"));
    let mut has_state = false;
    for file in &all {
        // Postgres renames its files while it runs.
        let Ok(bytes) = fs::read(file) else { continue };
        has_state |= file.starts_with(&state);
        search.is_clean(&file.display().to_string(), &bytes);
    }
    assert!(has_state, "no state in {}", state.display());

    // Searches for Stead's own secrets: a call must leave no trace of the caller's token.
    let calls = server.log() + &runner.log();
    for token in [enrolment.to_string(), server.owner_token()] {
        assert!(!calls.contains(&token), "a token is in a program's log");
        assert!(!String::from_utf8_lossy(&dumped).contains(&token), "a token is in the database");
    }
}
