//! Where the customer has OpenTofu and no Terraform: the same story by the other name.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
use std::{
    env, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::Duration,
};

use tests::{
    Customer, Server, each_effect_once, edge_api, stdout_of, succeeded, terraform_or_skip, until,
};

const SOON: Duration = Duration::from_secs(30);

/// Everything that is on PATH but for the tool, which is there by another name only.
fn path_by_another_name(dir: &Path) -> String {
    let tools = dir.join("tools");
    fs::create_dir(&tools).unwrap();
    let path = env::var("PATH").unwrap();
    let engine = |dir: &Path| ["tofu", "terraform"].map(|name| dir.join(name)).into_iter();
    let mut dirs: Vec<PathBuf> = env::split_paths(&path).filter(|dir| dir.is_absolute()).collect();
    let found = dirs.iter().flat_map(|dir| engine(dir)).find(|tool| tool.is_file()).unwrap();
    symlink(found, tools.join("tofu")).unwrap();
    for dir in &mut dirs {
        if !dir.join("terraform").exists() {
            continue;
        }
        let without =
            tools.join(format!("without-{}", dir.display().to_string().replace('/', "-")));
        fs::create_dir_all(&without).unwrap();
        let others = fs::read_dir(&*dir).unwrap().filter_map(Result::ok);
        for other in others.filter(|other| other.file_name() != "terraform") {
            // The same directory may be on PATH twice.
            let _there = symlink(other.path(), without.join(other.file_name()));
        }
        *dir = without;
    }
    dirs.insert(0, tools);
    env::join_paths(dirs).unwrap().into_string().unwrap()
}

#[test]
fn an_install_lives_and_ends_with_opentofu_alone() {
    if !terraform_or_skip() {
        return;
    }
    let server = Server::up();
    let app = edge_api(server.dir());
    server.ask(&["apps", "sync", app.to_str().unwrap(), "--wait"]);
    let words = ["--auto-approve", "--input", "company=Acme"];
    let created = server.ask(&[&["installs", "create", "edge-api", "acme"], &words[..]].concat());
    let token = created["enrolment"]["token"].as_str().unwrap();
    let path = path_by_another_name(server.dir());
    let runner = Customer::new(&server, "customer").env("PATH", &path).start(&server, token);
    until("the provision run", SOON, || {
        !server.ask(&["runs", "list", "--install", "acme"]).as_array().unwrap().is_empty()
    });
    succeeded(&server, "acme");
    each_effect_once(&runner);
    let jobs = server.ask(&["jobs", "list", "--install", "acme"]);
    let jobs = jobs.as_array().unwrap();
    let ids = jobs.iter().filter(|job| job["kind"] == "plan" || job["kind"] == "apply");
    let mut looked_at = 0;
    for id in ids.map(|job| job["id"].as_str().unwrap()) {
        let log = stdout_of(server.stead_for_people().args(["jobs", "logs", id]));
        assert!(log.contains("tofu 1.") && log.contains("/tools/tofu"), "{log}");
        looked_at += 1;
    }
    assert!(looked_at >= 12, "{jobs:#?}");

    server.ask(&["installs", "deprovision", "acme", "--reason", "the end"]);
    succeeded(&server, "acme");
    assert_eq!(runner.ledger().len(), 12, "{:?}", runner.ledger());
}

#[test]
fn without_either_the_step_fails_and_says_what_to_install() {
    let server = Server::up();
    let app = edge_api(server.dir());
    server.ask(&["apps", "sync", app.to_str().unwrap(), "--wait"]);
    let words = ["--auto-approve", "--input", "company=Acme"];
    let created = server.ask(&[&["installs", "create", "edge-api", "acme"], &words[..]].concat());
    let token = created["enrolment"]["token"].as_str().unwrap();
    let empty = server.dir().join("no-tools");
    fs::create_dir(&empty).unwrap();
    let customer = Customer::new(&server, "customer").env("PATH", empty.to_str().unwrap());
    let runner = customer.start(&server, token);
    until("the provision run", SOON, || {
        !server.ask(&["runs", "list", "--install", "acme"]).as_array().unwrap().is_empty()
    });
    let run = tests::ended(&server, "acme");
    assert_eq!(run["state"], "failed", "{run:#}");
    let said = tests::told(&server, &run);
    assert!(said.contains("neither terraform nor tofu") && said.contains("PATH"), "{said}");
    assert!(runner.ledger().is_empty());
}
