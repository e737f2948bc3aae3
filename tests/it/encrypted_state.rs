//! Tests of the encrypted Terraform state with whole programs and real Terraform: the server stores
//! ciphertext, a lost or restored host continues from it, and a changed one is refused.
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::Value;
use tests::{
    Customer, InterceptingProxy, Runner, Server, dump, each_effect_once, edge_api, ended,
    execute_sql, run_with_logs, stdout_of, succeeded, terraform_or_skip, until, until_some,
};

const TIMEOUT: Duration = Duration::from_secs(90);
const COMPONENTS: [&str; 6] = ["sandbox", "network", "database", "cache", "api", "edge"];

/// Creates an install of `edge-api` that approves automatically. Returns its enrolment token.
fn install(server: &Server, pace: u32) -> String {
    let app = edge_api(server.dir());
    server.cli_json(&["apps", "sync", app.to_str().unwrap(), "--wait"]);
    let pace = format!("pace_seconds={pace}");
    let create = ["installs", "create", "edge-api", "acme", "--auto-approve"];
    let inputs = ["--input", "company=Acme", "--input", &pace];
    let created = server.cli_json(&[&create[..], &inputs].concat());
    created["enrolment"]["token"].as_str().unwrap().to_owned()
}

fn provisioned(server: &Server, runner: &Runner) {
    until_some("the provision run", TIMEOUT, || {
        server.cli_json(&["runs", "list", "--install", "acme"]).as_array()?.first().cloned()
    });
    succeeded(server, "acme");
    each_effect_once(runner);
}

/// Rows of the table of states: component, lineage, serial and digest.
fn versions(server: &Server) -> Vec<(String, String, u64, String)> {
    let dump = String::from_utf8_lossy(&dump(server)).into_owned();
    let table = dump.split("COPY stead.state_version ").nth(1).unwrap();
    let (columns, rows) = table.split_once(" FROM stdin;\n").unwrap();
    let columns: Vec<&str> = columns.trim_matches(['(', ')']).split(", ").collect();
    let column = |name: &str| columns.iter().position(|column| *column == name).unwrap();
    let names = ["component", "lineage", "serial", "digest"].map(column);
    let row = |row: &str| {
        let fields: Vec<&str> = row.split('\t').collect();
        let [component, lineage, serial, digest] = names.map(|name| fields[name].to_owned());
        (component, lineage, serial.parse().unwrap(), digest)
    };
    rows.lines().take_while(|line| *line != "\\.").map(row).collect()
}

/// Returns the newest serial of each component in the database.
fn stored(server: &Server) -> BTreeMap<String, u64> {
    let mut newest = BTreeMap::new();
    for (component, _, serial, _) in versions(server) {
        let of = newest.entry(component).or_default();
        *of = serial.max(*of);
    }
    newest
}

fn directory(runner: &Runner, component: &str) -> PathBuf {
    runner.data().join("state").join(component)
}

/// Decrypts the state of a component on the host of its runner.
fn pull(runner: &Runner, component: &str) -> Value {
    let state = stdout_of(&mut runner.local(&["state", "pull", component, "--local"]));
    serde_json::from_str(&state).unwrap()
}

fn serial(runner: &Runner, component: &str) -> u64 {
    pull(runner, component)["serial"].as_u64().unwrap()
}

/// Waits until the server has every newest state.
fn all_uploaded(server: &Server, runner: &Runner) {
    let uploaded = |component: &str| {
        let read = |name: &str| fs::read(directory(runner, component).join(name)).ok();
        let (stored, uploaded) = (read("state.encrypted")?, read("state.uploaded")?);
        let line = stored.split(|byte| *byte == b'\n').next()?;
        let head = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).ok();
        Some(head(line)?["digest"] == head(&uploaded)?["digest"])
    };
    until("the states to be uploaded", TIMEOUT, || {
        COMPONENTS.iter().all(|component| uploaded(component) == Some(true))
    });
    let stored = stored(server);
    for component in COMPONENTS {
        assert_eq!(stored[component], serial(runner, component), "{component}");
    }
}

/// Deploys again, with other inputs of the component `api`.
fn deploy(server: &Server, replicas: u32) {
    let input = format!("replicas={replicas}");
    server.cli_json(&["installs", "set-inputs", "acme", "--input", &input]);
}

/// Deploys again and returns why the run failed.
fn failure(server: &Server, replicas: u32) -> String {
    deploy(server, replicas);
    let run = ended(server, "acme");
    assert_eq!(run["state"], "failed", "{run:#}");
    run_with_logs(server, &run)
}

#[test]
fn a_host_that_lost_its_states_continues_from_the_server() {
    if !terraform_or_skip() {
        return;
    }
    let server = Server::up();
    let token = install(&server, 0);
    let mut runner = Runner::start(&server, "customer", &token);
    provisioned(&server, &runner);
    all_uploaded(&server, &runner);
    // The event names the version and its keyed digest.
    let recorded = server.cli_json(&["audit", "events", "--type", "install.state_recorded"]);
    let of_api =
        recorded.as_array().unwrap().iter().rfind(|event| event["payload"]["name"] == "api");
    let state = &of_api.unwrap()["payload"]["state"];
    assert_eq!(state["serial"], serial(&runner, "api"), "{state:#}");
    assert!(state["digest"].as_str().unwrap().starts_with("hmac-sha256:1:"), "{state:#}");

    // when the host loses all states but not its keys
    runner.kill();
    fs::remove_dir_all(runner.data().join("state")).unwrap();
    runner.restart();
    let effects = runner.ledger().len();
    deploy(&server, 3);
    succeeded(&server, "acme");
    // then the next apply changes only what the inputs change: `api`, and `edge`, which reads it
    let changed: Vec<String> = runner.ledger().drain(effects..).map(|(what, _)| what).collect();
    let is_meant = |what: &String| what.starts_with("api") || what.starts_with("edge");
    assert!(!changed.is_empty() && changed.iter().all(is_meant), "{changed:?}");
    assert_eq!(stored(&server)["api"], serial(&runner, "api"));
}

#[test]
fn an_older_or_foreign_state_of_the_server_is_refused() {
    if !terraform_or_skip() {
        return;
    }
    let server = Server::up();
    let token = install(&server, 0);
    let runner = Runner::start(&server, "customer", &token);
    provisioned(&server, &runner);
    deploy(&server, 3);
    succeeded(&server, "acme");
    all_uploaded(&server, &runner);
    let (effects, local) =
        (runner.ledger().len(), directory(&runner, "api").join("state.encrypted"));
    let (newest, backup) = (serial(&runner, "api"), fs::read(&local).unwrap());

    // A rolled-back server, without a copy on the host, is refused.
    execute_sql(
        &server,
        "create table kept as select * from stead.state_version; \
         delete from stead.state_version v where component = 'api' and number > \
           (select min(number) from stead.state_version where component = 'api')",
    );
    fs::remove_file(&local).unwrap();
    let why = failure(&server, 4);
    assert!(why.contains(&format!("the newest known state is serial {newest} of")), "{why}");

    // The state of another component is refused, too.
    execute_sql(
        &server,
        "delete from stead.state_version; insert into stead.state_version select * from kept; \
         update stead.state_version set ciphertext = \
           (select ciphertext from kept where component = 'cache' limit 1) where component = 'api'",
    );
    let _absent = fs::remove_file(&local);
    let why = failure(&server, 5);
    assert!(why.contains("from the server is refused"), "{why}");
    assert!(why.contains("it belongs to another install or component"), "{why}");

    // So is a state whose bytes were changed.
    execute_sql(
        &server,
        "delete from stead.state_version; insert into stead.state_version select * from kept; \
         update stead.state_version set ciphertext = \
           set_byte(ciphertext, octet_length(ciphertext) - 1, \
             255 - get_byte(ciphertext, octet_length(ciphertext) - 1)) where component = 'api'",
    );
    let why = failure(&server, 6);
    assert!(why.contains("the data was changed"), "{why}");
    assert_eq!(runner.ledger().len(), effects, "something was created again");

    // With its own copy, the host continues.
    execute_sql(
        &server,
        "delete from stead.state_version; insert into stead.state_version select * from kept; drop table kept",
    );
    fs::write(&local, backup).unwrap();
    deploy(&server, 7);
    succeeded(&server, "acme");
    assert!(serial(&runner, "api") > newest);
}

#[test]
fn an_apply_without_a_server_is_stored_and_uploaded_later() {
    if !terraform_or_skip() {
        return;
    }
    let mut server = Server::up();
    let token = install(&server, 4);
    let mut runner = Runner::start(&server, "customer", &token);
    let begun = || {
        let jobs = fs::read_dir(runner.data().join("jobs")).ok()?;
        let mut logs = jobs.flatten().map(|job| job.path().join("log.ndjson"));
        logs.any(|log| fs::read_to_string(log).is_ok_and(|log| log.contains("working for")))
            .then_some(())
    };
    until_some("an effect to begin", TIMEOUT, begun);
    // when the server is away for the rest of the apply, and the agent dies as well
    server.kill();
    runner.kill();
    let pending = || {
        let states = fs::read_dir(runner.data().join("state")).ok()?;
        let mut states = states.flatten().map(|state| state.path());
        states.find(|state| {
            state.join("state.encrypted").exists() && !state.join("state.uploaded").exists()
        })
    };
    let component = until_some("a state that only this host has", TIMEOUT, pending);
    assert_eq!(runner.ledger().len(), 1, "{component:?}");
    server.restart();
    runner.restart();
    // then nothing is lost, and the server has every state in the end
    provisioned(&server, &runner);
    all_uploaded(&server, &runner);
    // And the journal names the version that the server has.
    let newest = serial(&runner, "sandbox");
    let journal = stdout_of(&mut runner.local(&["journal"]));
    let names =
        |line: &str| line.contains("sandbox") && line.contains(&format!("serial {newest} of"));
    assert!(journal.lines().any(names), "{journal}");
}

#[test]
fn a_lost_response_stores_each_state_once() {
    if !terraform_or_skip() {
        return;
    }
    let server = Server::up();
    let token = install(&server, 0);
    let lost = AtomicUsize::new(0);
    let proxy = InterceptingProxy::before(server.runner(), move |call| {
        let is_upload = call.method == "PUT" && call.path.starts_with("/runner/v1/state/");
        // The server has stored the state, and the runner cannot read the response.
        (is_upload && lost.fetch_add(1, Ordering::Relaxed) < 3).then(|| b"<html>".to_vec())
    });
    let runner = Customer::new(&server, "customer").calls(proxy.url()).start(&server, &token);
    provisioned(&server, &runner);
    all_uploaded(&server, &runner);
    let uploads = proxy.calls_to("/runner/v1/state/sandbox");
    let uploads = uploads.iter().filter(|call| call.method == "PUT").count();
    assert!(uploads >= 2, "{uploads}");
    // Then each of them is stored, once.
    let versions = versions(&server);
    let distinct: BTreeSet<_> = versions.iter().collect();
    assert_eq!(distinct.len(), versions.len(), "{versions:?}");
    let of_sandbox = versions.iter().filter(|(component, ..)| component == "sandbox").count();
    assert!((1..uploads).contains(&of_sandbox), "{of_sandbox} of {uploads}");
}

#[test]
fn a_component_waits_for_a_state_that_only_its_host_has() {
    if !terraform_or_skip() {
        return;
    }
    let server = Server::up();
    let token = install(&server, 0);
    // Given a runner that cannot upload the state of `api`.
    let is_cut = Arc::new(AtomicBool::new(true));
    let cuts = Arc::clone(&is_cut);
    let proxy = InterceptingProxy::cutting(server.runner(), move |call| {
        let is_upload = call.method == "PUT" && call.path == "/runner/v1/state/api";
        is_upload && cuts.load(Ordering::Relaxed)
    });
    let runner = Customer::new(&server, "customer").calls(proxy.url()).start(&server, &token);
    provisioned(&server, &runner);
    let awaited = server.cli_json(&["audit", "events", "--type", "install.state_awaited"]);
    let newest = serial(&runner, "api");
    assert_eq!(awaited[0]["payload"]["state"]["serial"], newest, "{awaited:#}");
    // when the component is deployed again
    let effects = runner.ledger().len();
    deploy(&server, 3);
    let waits = until_some("the step to wait for the state", TIMEOUT, || {
        let run = server.cli_json(&["runs", "show", "acme"]);
        let waiting = tests::step(&run, "api")["waiting"].clone();
        (waiting["for"] == "state").then_some(waiting)
    });
    let detail = waits["detail"].as_str().unwrap();
    assert!(detail.contains(&format!("state of api, serial {newest} of lineage")), "{detail}");
    assert!(detail.contains("stead installs accept-state acme api"), "{detail}");
    assert_eq!(runner.ledger().len(), effects);
    // then it continues when the state arrives
    is_cut.store(false, Ordering::Relaxed);
    succeeded(&server, "acme");
    assert!(serial(&runner, "api") > newest);
    all_uploaded(&server, &runner);
    let arrived = server.cli_json(&["audit", "events", "--type", "install.state_arrived"]);
    assert_eq!(arrived[0]["payload"]["state"]["serial"], newest, "{arrived:#}");
}

#[test]
fn states_of_an_earlier_version_move_without_a_change() {
    if !terraform_or_skip() {
        return;
    }
    let server = Server::up();
    let token = install(&server, 0);
    let mut runner = Runner::start(&server, "customer", &token);
    provisioned(&server, &runner);
    all_uploaded(&server, &runner);
    // Given a host on which an earlier version kept the states in clear.
    runner.kill();
    for component in COMPONENTS {
        let dir = directory(&runner, component);
        let state = stdout_of(&mut runner.local(&["state", "pull", component, "--local"]));
        for file in ["state.encrypted", "state.uploaded"] {
            fs::remove_file(dir.join(file)).unwrap();
        }
        fs::remove_dir(dir.join("terraform.tfstate")).unwrap();
        fs::write(dir.join("terraform.tfstate"), state).unwrap();
    }
    execute_sql(&server, "delete from stead.state_version");
    let effects = runner.ledger().len();
    runner.restart();
    // when all components are deployed again, interrupted once
    server.cli_json(&["installs", "deploy", "acme", "--reason", "update of the runner"]);
    until("the first state to be moved", TIMEOUT, || {
        let moved = |component: &str| {
            directory(&runner, component).join("terraform.tfstate.moved").exists()
        };
        COMPONENTS.iter().any(|component| moved(component))
    });
    runner.kill();
    runner.restart();
    succeeded(&server, "acme");
    server.cli_json(&["installs", "reprovision", "acme", "--reason", "the sandbox as well"]);
    succeeded(&server, "acme");
    // then nothing changed, the server has the states, and an earlier runner finds no file
    assert_eq!(runner.ledger().len(), effects, "{:?}", runner.ledger());
    all_uploaded(&server, &runner);
    for component in COMPONENTS {
        let dir = directory(&runner, component);
        assert!(dir.join("terraform.tfstate").is_dir(), "{component}");
        assert!(dir.join("terraform.tfstate.moved").is_file(), "{component}");
    }
}
