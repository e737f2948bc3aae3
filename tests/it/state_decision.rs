//! Test of the decision of a user about the state of a component, with whole programs and real
//! Terraform: the server has the decision at once, and the next job continues from it.
use std::{fs, time::Duration};

use serde_json::Value;
use tests::{
    Runner, Server, dump, edge_api, ended, execute_sql, run_with_logs, stdout_of, succeeded,
    terraform_or_skip, until_some,
};

const TIMEOUT: Duration = Duration::from_secs(90);

/// Returns the newest serial of the component `api` in the database.
fn stored(server: &Server) -> u64 {
    let dump = String::from_utf8_lossy(&dump(server)).into_owned();
    let table = dump.split("COPY stead.state_version ").nth(1).unwrap();
    let (columns, rows) = table.split_once(" FROM stdin;\n").unwrap();
    let columns: Vec<&str> = columns.trim_matches(['(', ')']).split(", ").collect();
    let column = |name: &str| columns.iter().position(|column| *column == name).unwrap();
    let rows = rows.lines().take_while(|line| *line != "\\.");
    let rows = rows.map(|row| row.split('\t').collect::<Vec<_>>());
    let of_api = rows.filter(|fields| fields[column("component")] == "api");
    of_api.map(|fields| fields[column("serial")].parse().unwrap()).max().unwrap()
}

/// Decrypts the state of the component `api` on the host of its runner.
fn pull(runner: &Runner) -> Value {
    let state = stdout_of(&mut runner.local(&["state", "pull", "api"]));
    serde_json::from_str(&state).unwrap()
}

fn serial(runner: &Runner) -> u64 {
    pull(runner)["serial"].as_u64().unwrap()
}

#[test]
fn a_user_ends_a_difference_between_host_and_server() {
    if !terraform_or_skip() {
        return;
    }
    let server = Server::up();
    let app = edge_api(server.dir());
    server.cli_json(&["apps", "sync", app.to_str().unwrap(), "--wait"]);
    let create = ["installs", "create", "edge-api", "acme", "--auto-approve"];
    let created = server.cli_json(&[&create[..], &["--input", "company=Acme"]].concat());
    let token = created["enrolment"]["token"].as_str().unwrap();
    let runner = Runner::start(&server, "customer", token);
    until_some("the provision run", TIMEOUT, || {
        server.cli_json(&["runs", "list", "--install", "acme"]).as_array()?.first().cloned()
    });
    succeeded(&server, "acme");
    let resolve = |choice: &[&str]| {
        let args = [&["state", "resolve", "api", "--reason", "test"], choice].concat();
        stdout_of(&mut runner.local(&args))
    };
    // Without a difference, the decision changes nothing.
    assert!(resolve(&["--keep-current"]).starts_with("No change"));
    let newest = serial(&runner);
    assert_eq!(stored(&server), newest);
    // A chosen state is on the server at once, and the next job continues from it.
    let file = server.dir().join("chosen.tfstate");
    fs::write(&file, pull(&runner).to_string()).unwrap();
    let resolved = resolve(&["--restore", file.to_str().unwrap()]);
    assert!(resolved.contains(&format!("serial {}", newest + 1)), "{resolved}");
    assert_eq!(stored(&server), newest + 1);
    let effects = runner.ledger().len();
    server.cli_json(&["installs", "deploy", "acme", "--component", "api"]);
    succeeded(&server, "acme");
    assert_eq!(runner.ledger().len(), effects, "something was created again");
    // The same file is older now, and needs the consent of the user.
    let refused = |args: &[&str], why: &str| {
        let output = runner.local(args).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(why), "{error}");
    };
    let restore = ["--restore", file.to_str().unwrap()];
    let again = [&["state", "resolve", "api", "--reason", "test"], &restore[..]].concat();
    refused(&again, "add --older");
    // Without a copy on this host, the newest state comes from the server.
    let (copy, moved) =
        (runner.data().join("state/api/state.encrypted"), server.dir().join("copy"));
    let before = serial(&runner);
    fs::rename(&copy, &moved).unwrap();
    assert_eq!(serial(&runner), before);
    refused(&["state", "pull", "api", "--local"], "this host has none");
    fs::rename(&moved, &copy).unwrap();

    // Given a server with another state of the same serial.
    let digest = format!("hmac-sha256:1:{}", "0".repeat(64));
    let differ =
        format!("update stead.state_version set digest = '{digest}' where component = 'api'");
    execute_sql(&server, &differ);
    server.cli_json(&["installs", "set-inputs", "acme", "--input", "replicas=4"]);
    let run = ended(&server, "acme");
    assert_eq!(run["state"], "failed", "{run:#}");
    let why = run_with_logs(&server, &run);
    assert!(why.contains("neither continues the other"), "{why}");
    let resolved = resolve(&["--keep-current"]);
    assert!(resolved.contains(&format!("serial {}", newest + 2)), "{resolved}");
    server.cli_json(&["runs", "retry", "acme", "--reason", "the state was resolved"]);
    succeeded(&server, "acme");
    assert!(serial(&runner) >= newest + 2);
}
