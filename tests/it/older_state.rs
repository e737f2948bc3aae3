//! Tests that a restored older state is not used for a plan until a user of the vendor accepts it.
use std::fs;

use serde_json::Value;
use tests::{
    Runner, Server, edge_api, ended, execute_sql, run_with_logs, succeeded, terraform_or_skip,
};

#[test]
fn a_restored_older_state_is_refused_until_a_user_accepts_it() {
    if !terraform_or_skip() {
        return;
    }
    let server = Server::up();
    let app = edge_api(server.dir());
    server.cli_json(&["apps", "sync", app.to_str().unwrap(), "--wait"]);
    let args = ["--auto-approve", "--input", "company=Acme"];
    let created =
        server.cli_json(&[&["installs", "create", "edge-api", "acme"], &args[..]].concat());
    let token = created["enrolment"]["token"].as_str().unwrap();
    let runner = Runner::start(&server, "customer", token);
    tests::until_some("the provision run", std::time::Duration::from_secs(30), || {
        let runs = server.cli_json(&["runs", "list", "--install", "acme"]);
        (!runs.as_array().unwrap().is_empty()).then_some(())
    });
    succeeded(&server, "acme");
    let file = runner.data().join("state/api/state.encrypted");
    let backup = fs::read(&file).unwrap();
    let version = |bytes: &[u8]| {
        let line = bytes.split(|byte| *byte == b'\n').next().unwrap();
        let state: Value = serde_json::from_slice(line).unwrap();
        (state["lineage"].as_str().unwrap().to_owned(), state["serial"].as_u64().unwrap())
    };
    server.cli_json(&["installs", "set-inputs", "acme", "--input", "replicas=3"]);
    succeeded(&server, "acme");
    let ((lineage, older), (_, newest)) = (version(&backup), version(&fs::read(&file).unwrap()));
    assert!(older < newest, "{older} {newest}");
    // The log has every state version, from plans and applies.
    let recorded = server.cli_json(&["audit", "events", "--type", "install.state_recorded"]);
    let newest_recorded = recorded.as_array().unwrap().iter().filter_map(|event| {
        let payload = &event["payload"];
        (payload["name"] == "api").then(|| payload["state"]["serial"].as_u64().unwrap())
    });
    assert_eq!(newest_recorded.max(), Some(newest), "{recorded:#}");

    // when the customer restores an earlier state, the newest one of the server replaces it
    fs::write(&file, &backup).unwrap();
    let effects = runner.ledger().len();
    server.cli_json(&["installs", "deploy", "acme", "--component", "api"]);
    succeeded(&server, "acme");
    assert_eq!(version(&fs::read(&file).unwrap()).1, newest);
    assert_eq!(runner.ledger().len(), effects, "something was created again");

    // when the server has lost the newest state as well
    fs::write(&file, &backup).unwrap();
    let later = "delete from stead.state_version where component = 'api' and serial > ";
    execute_sql(&server, &format!("{later}{older}"));
    let effects = runner.ledger().len();
    server.cli_json(&["installs", "deploy", "acme", "--component", "api"]);
    let run = ended(&server, "acme");
    assert_eq!(run["state"], "failed", "{run:#}");
    let details = run_with_logs(&server, &run);
    let both = [format!("serial {older} of lineage"), format!("serial {newest} of lineage")];
    assert!(both.iter().all(|name| details.contains(name)), "{details}");
    assert_eq!(runner.ledger().len(), effects, "something was created again");

    // then only a recorded decision permits its use
    let serial = older.to_string();
    let accept =
        ["installs", "accept-state", "acme", "api", "--lineage", &lineage, "--serial", &serial];
    let accepted = server.cli_json(&[&accept[..], &["--reason", "backup of Monday"]].concat());
    assert_eq!(accepted["changed"], true, "{accepted:#}");
    let decided = server.cli_json(&["audit", "events", "--type", "install.state_accepted"]);
    assert_eq!(decided[0]["payload"]["state"]["serial"], older, "{decided:#}");
    server.cli_json(&["runs", "retry", "acme", "--reason", "the state was accepted"]);
    succeeded(&server, "acme");
    assert!(version(&fs::read(&file).unwrap()).1 > older);
}
