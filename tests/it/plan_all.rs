//! Tests runs that make their plans before their first change.
use std::{collections::HashMap, fs, path::PathBuf, time::Duration};

use serde_json::Value;
use tests::{
    Customer, Runner, Server, edge_api, ended, finish, step, succeeded, terraform_or_skip, until,
    until_some,
};

const TIMEOUT: Duration = Duration::from_secs(90);

/// Writes a version of `edge-api` in which `cache` and `database` have another resource. Both depend
/// on `network`, and `api` depends on both.
fn changed_app(server: &Server) -> PathBuf {
    let parent = server.dir().join("changed");
    fs::create_dir(&parent).unwrap();
    let app = edge_api(&parent);
    for module in ["cache", "database"] {
        let file = app.join("modules").join(module).join("main.tf");
        let more = "\nresource \"terraform_data\" \"more\" {}\n";
        fs::write(&file, fs::read_to_string(&file).unwrap() + more).unwrap();
    }
    app
}

fn provisioned() -> (Server, Runner) {
    let server = Server::up();
    let app = edge_api(server.dir());
    server.cli_json(&["apps", "sync", app.to_str().unwrap(), "--wait"]);
    let args = ["--auto-approve", "--input", "company=Acme"];
    let created =
        server.cli_json(&[&["installs", "create", "edge-api", "acme"], &args[..]].concat());
    let token = created["enrolment"]["token"].as_str().unwrap();
    let runner = Customer::new(&server, "customer").start(&server, token);
    until("the provision run", TIMEOUT, || {
        !server.cli_json(&["runs", "list", "--install", "acme"]).as_array().unwrap().is_empty()
    });
    succeeded(&server, "acme");
    (server, runner)
}

/// Returns the events of a run, in order.
fn events(server: &Server, run: &Value) -> Vec<Value> {
    let stream = format!("run/{}", run["id"].as_str().unwrap());
    let events = server.cli_json(&["audit", "events", "--stream", &stream, "--limit", "200"]);
    events.as_array().unwrap().clone()
}

fn positions(events: &[Value], name: &str) -> Vec<u64> {
    let found = events.iter().filter(|event| event["type"] == name);
    found.map(|event| event["position"].as_u64().unwrap()).collect()
}

/// Checks that each apply follows an approval of the digest of its step's last plan.
fn assert_each_apply_was_approved(events: &[Value]) {
    let mut approved = HashMap::new();
    let mut plans = HashMap::new();
    for event in events {
        let field = |name: &str| event["payload"][name].as_str().unwrap_or_default().to_owned();
        match event["type"].as_str().unwrap() {
            "run.plan_produced" => drop(plans.insert(field("step"), field("digest"))),
            "run.approved" => drop(approved.insert(field("step"), field("digest"))),
            "run.apply_started" => {
                let plan = plans.get(&field("step"));
                assert!(plan.is_some() && plan == approved.get(&field("step")), "{event:#}");
            }
            _ => {}
        }
    }
}

#[test]
fn one_approval_covers_all_plans_that_depend_on_no_change() {
    if !terraform_or_skip() {
        return;
    }
    let (server, _runner) = provisioned();
    server.cli_json(&["installs", "auto-approve", "acme", "off", "--reason", "a freeze"]);
    let app = changed_app(&server);
    server.cli_json(&["apps", "sync", app.to_str().unwrap(), "--wait"]);
    // The upgrade pins version 2. Its own run is not what is tested.
    server.cli_json(&["installs", "upgrade", "acme", "--to", "2", "--reason", "version 2"]);
    server.cli_json(&["runs", "cancel", "acme", "--reason", "all at once instead"]);
    assert_eq!(ended(&server, "acme")["state"], "cancelled");

    // when all components are deployed, and only cache and database change
    server.cli_json(&["installs", "deploy", "acme", "--plan-all", "--reason", "CHG-1204"]);
    let run = until_some("the plans", TIMEOUT, || {
        let run = server.cli_json(&["runs", "show", "acme"]);
        (run["state"] == "waiting_for_approval").then_some(run)
    });

    // then network has no changes, so the steps that depend on it are planned
    assert_eq!(run["plan_all"], true, "{run:#}");
    for name in ["sandbox", "network"] {
        assert_eq!(step(&run, name)["state"], "succeeded", "{run:#}");
    }
    for name in ["cache", "database"] {
        assert_eq!(step(&run, name)["state"], "waiting_for_approval", "{run:#}");
    }
    // and the steps that depend on cache and database are planned later
    for name in ["api", "edge"] {
        let later = step(&run, name);
        assert_eq!((&later["state"], &later["approval_later"]), (&"pending".into(), &true.into()));
    }
    assert_eq!(positions(&events(&server, &run), "run.apply_started"), [] as [u64; 0]);
    let mut people = server.stead_for_people();
    let shown = people.args(["runs", "show", "acme"]).output().unwrap();
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("approval later: cache, database must succeed first"), "{shown}");

    // when a user approves all plans that exist
    let mut people = server.stead_for_people();
    let approve = ["runs", "approve", "acme", "--all", "--reason", "read both"];
    let approved = people.args(approve).output().unwrap();
    let (out, err) =
        (String::from_utf8_lossy(&approved.stdout), String::from_utf8_lossy(&approved.stderr));
    assert!(approved.status.success(), "{out}{err}");
    let lines: Vec<_> = out.lines().filter(|line| line.contains(" approved: ")).collect();
    assert_eq!(lines.len(), 2, "{out}");
    assert!(err.contains("Approval later, after changes of this run: api, edge"), "{err}");

    // then the other plans need approvals of their own
    let later = until_some("the plan of api", TIMEOUT, || {
        let run = server.cli_json(&["runs", "show", "acme"]);
        (step(&run, "api")["plan"].is_object()).then_some(run)
    });
    for name in ["cache", "database"] {
        assert_eq!(step(&later, name)["state"], "succeeded", "{later:#}");
    }
    let run = finish(&server, "acme");
    assert_eq!(run["state"], "succeeded", "{run:#}");
    assert_each_apply_was_approved(&events(&server, &run));
}

#[test]
fn the_first_apply_follows_all_plans_also_with_automatic_approval() {
    if !terraform_or_skip() {
        return;
    }
    let (server, _runner) = provisioned();
    let app = changed_app(&server);
    server.cli_json(&["apps", "sync", app.to_str().unwrap(), "--wait"]);
    let upgrade = ["installs", "upgrade", "acme", "--to", "2", "--plan-all", "--reason", "v2"];
    server.cli_json(&upgrade);
    let run = succeeded(&server, "acme");
    let events = events(&server, &run);
    let of = |name: &str, component: &str| -> u64 {
        let id = &step(&run, component)["id"];
        let found = events.iter().find(|e| e["type"] == name && e["payload"]["step"] == *id);
        found.unwrap_or_else(|| panic!("no {name}: {events:#?}"))["position"].as_u64().unwrap()
    };
    let first = positions(&events, "run.apply_started").into_iter().min().unwrap();
    for component in ["cache", "database"] {
        assert!(of("run.plan_produced", component) < first, "{events:#?}");
    }
    assert!(of("run.plan_produced", "api") > first, "api is planned after its dependencies");
    assert_each_apply_was_approved(&events);

    // too late: an action and a drift check have no plans to approve
    let (_, message) = server.refused(&["installs", "action", "acme", "smoke", "--plan-all"]);
    assert!(message.contains("--plan-all"), "{message}");
    let url = format!("{}/v1/installs/acme/runs", server.control());
    let token = format!("Bearer {}", server.owner_token());
    let headers = [("Authorization", token.as_str()), ("Content-Type", "application/json")];
    let body = br#"{"kind": "drift", "plan_all": true}"#;
    let rejected = tests::call("POST", &url, &headers, body);
    assert!(rejected.status == 422 && rejected.body.contains("plan_all"), "{}", rejected.body);
}
