//! An app that others wrote for the same format, unchanged, on stand-ins of the modules that it names.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
use std::path::PathBuf;

use serde_json::Value;
use tests::{Customer, Server, in_ci, step, succeeded, terraform_or_skip, until_some};

/// Where the corpus is. Without it a test says so and passes; under CI it fails.
fn corpus_or_skip() -> Option<PathBuf> {
    let found = std::env::var_os("CORPUS_DIR").map(PathBuf::from).filter(|dir| dir.is_dir());
    if found.is_none() {
        assert!(!in_ci(), "CI must name the corpus by CORPUS_DIR");
        eprintln!("SKIPPED: no corpus; name its directory by CORPUS_DIR");
    }
    found
}

#[test]
fn httpbin_is_published_installed_and_provisioned_as_it_is() {
    let Some(corpus) = corpus_or_skip().filter(|_| terraform_or_skip()) else { return };
    let server = Server::up();
    let app = corpus.join("apps/httpbin");
    let repo = |name: &str| format!("{name}={}", corpus.join("repos").join(name).display());
    let repos = ["nuonco/aws-min-sandbox", "nuonco/example-app-configs"].map(repo);
    let sync =
        ["apps", "sync", app.to_str().unwrap(), "--source", &repos[0], "--source", &repos[1]];

    // Without the place of a repository nothing is published, and the option that is missing is named.
    let (code, said) = server.refused(&["apps", "sync", app.to_str().unwrap()]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("--source nuonco/"), "{said}");

    let synced = server.ask(&[&sync[..], &["--wait"]].concat());
    assert_eq!(synced["version"], 1, "{synced:#}");
    let mut built: Vec<_> = synced["builds"].as_array().unwrap().iter().collect();
    built.sort_by_key(|build| build["component"].as_str());
    assert_eq!(built.len(), 2, "{synced:#}");
    assert_eq!(server.ask(&sync)["unchanged"], true);

    let created = server.ask(&["installs", "create", "httpbin", "acme", "--auto-approve"]);
    let token = created["enrolment"]["token"].as_str().unwrap();
    let _runner = Customer::new(&server, "customer").start(&server, token);
    until_some("the provision run", std::time::Duration::from_secs(60), || {
        server.ask(&["runs", "list", "--install", "acme"]).as_array()?.first().cloned()
    });
    let run = succeeded(&server, "acme");
    for name in ["sandbox", "ec2"] {
        assert_eq!(step(&run, name)["state"], "succeeded", "{run:#}");
    }

    // What the sandbox gave out reached the component, and what the component gave out reaches an action.
    let install = server.ask(&["installs", "show", "acme"]);
    let region = &install["sandbox"]["outputs"]["account"]["region"];
    assert!(region.as_str().is_some_and(|region| region.starts_with("region-")), "{install:#}");
    let state = server.ask(&["installs", "state", "acme"]);
    let ip = |state: &Value| state["nuon"]["components"]["ec2"]["outputs"]["public_ip"].clone();
    let ip = ip(&state);
    assert!(ip.as_str().is_some_and(|ip| ip.starts_with("public-ip-")), "{state:#}");

    // Its health check asks an address that only looks like one: the script runs, and says what it asked.
    server.ask(&["installs", "action", "acme", "healthcheck"]);
    let run = tests::ended(&server, "acme");
    let job = step(&run, "healthcheck")["job"].as_str().unwrap_or_else(|| panic!("{run:#}"));
    let log = tests::stdout_of(server.stead_for_people().args(["jobs", "logs", job]));
    assert!(log.contains(ip.as_str().unwrap()), "{log}");
}
