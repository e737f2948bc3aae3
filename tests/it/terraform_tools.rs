//! Tests the tool on the customer's side: Terraform under the name `tofu`, OpenTofu if installed,
//! or neither. Also tests that the build runner validates modules.
use std::{
    env, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use tests::{
    Customer, Server, each_effect_once, edge_api, path_without, stdout_of, succeeded,
    terraform_or_skip, until,
};

const TIMEOUT: Duration = Duration::from_secs(30);

/// Returns a tool of this name on PATH.
fn on_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap();
    env::split_paths(&path).map(|dir| dir.join(name)).find(|tool| tool.is_file())
}

/// Returns OpenTofu, not Terraform under its name. Without it, the test prints a note and passes.
fn opentofu_or_skip() -> Option<PathBuf> {
    let is_opentofu = |tool: &PathBuf| {
        let version = Command::new(tool).arg("version").output().unwrap().stdout;
        String::from_utf8_lossy(&version).starts_with("OpenTofu")
    };
    let found = on_path("tofu").filter(is_opentofu);
    if found.is_none() {
        eprintln!("SKIPPED: OpenTofu is not on PATH");
    }
    found
}

/// Returns a PATH without `terraform`, with this program as `tofu`.
fn path_with_tofu(dir: &Path, program: &Path) -> String {
    let tools = dir.join("tools");
    fs::create_dir(&tools).unwrap();
    symlink(program, tools.join("tofu")).unwrap();
    let mut dirs = path_without("terraform", &tools);
    dirs.insert(0, tools);
    env::join_paths(dirs).unwrap().into_string().unwrap()
}

#[test]
fn an_install_is_managed_by_terraform_under_the_name_tofu() {
    if terraform_or_skip() {
        let tool = on_path("terraform").or_else(|| on_path("tofu")).unwrap();
        assert_provisions_and_deprovisions(&tool);
    }
}

#[test]
fn an_install_is_managed_by_opentofu() {
    if let Some(tool) = opentofu_or_skip() {
        assert_provisions_and_deprovisions(&tool);
    }
}

fn assert_provisions_and_deprovisions(tool: &Path) {
    let server = Server::up();
    let app = edge_api(server.dir());
    server.cli_json(&["apps", "sync", app.to_str().unwrap(), "--wait"]);
    let args = ["--auto-approve", "--input", "company=Acme"];
    let created =
        server.cli_json(&[&["installs", "create", "edge-api", "acme"], &args[..]].concat());
    let token = created["enrolment"]["token"].as_str().unwrap();
    let path = path_with_tofu(server.dir(), tool);
    let runner = Customer::new(&server, "customer").env("PATH", &path).start(&server, token);
    until("the provision run", TIMEOUT, || {
        !server.cli_json(&["runs", "list", "--install", "acme"]).as_array().unwrap().is_empty()
    });
    succeeded(&server, "acme");
    each_effect_once(&runner);
    let jobs = server.cli_json(&["jobs", "list", "--install", "acme"]);
    let jobs = jobs.as_array().unwrap();
    let ids = jobs.iter().filter(|job| job["kind"] == "plan" || job["kind"] == "apply");
    let mut log_count = 0;
    for id in ids.map(|job| job["id"].as_str().unwrap()) {
        let log = stdout_of(server.stead_for_people().args(["jobs", "logs", id]));
        assert!(log.contains("tofu 1.") && log.contains("/tools/tofu"), "{log}");
        log_count += 1;
    }
    assert!(log_count >= 12, "{jobs:#?}");

    server.cli_json(&["installs", "deprovision", "acme", "--reason", "the end"]);
    succeeded(&server, "acme");
    assert_eq!(runner.ledger().len(), 12, "{:?}", runner.ledger());
}

#[test]
fn a_step_without_a_tool_fails_with_a_hint() {
    let server = Server::up();
    let app = edge_api(server.dir());
    server.cli_json(&["apps", "sync", app.to_str().unwrap(), "--wait"]);
    let args = ["--auto-approve", "--input", "company=Acme"];
    let created =
        server.cli_json(&[&["installs", "create", "edge-api", "acme"], &args[..]].concat());
    let token = created["enrolment"]["token"].as_str().unwrap();
    let empty = server.dir().join("no-tools");
    fs::create_dir(&empty).unwrap();
    let customer = Customer::new(&server, "customer").env("PATH", empty.to_str().unwrap());
    let runner = customer.start(&server, token);
    until("the provision run", TIMEOUT, || {
        !server.cli_json(&["runs", "list", "--install", "acme"]).as_array().unwrap().is_empty()
    });
    let run = tests::ended(&server, "acme");
    assert_eq!(run["state"], "failed", "{run:#}");
    let details = tests::run_with_logs(&server, &run);
    assert!(
        details.contains("neither terraform nor tofu") && details.contains("PATH"),
        "{details}"
    );
    assert!(runner.ledger().is_empty());
}

#[test]
fn an_invalid_module_fails_its_build_with_file_and_line() {
    if !terraform_or_skip() {
        return;
    }
    let server = Server::up();
    let app = edge_api(server.dir());
    // HCL that parses, so that only the build finds its error.
    let module = fs::read_dir(app.join("modules")).unwrap().next().unwrap().unwrap().path();
    fs::write(module.join("wrong.tf"), "locals {\n  wrong = var.not_declared\n}\n").unwrap();
    let (code, output) = server.refused(&["apps", "sync", app.to_str().unwrap(), "--wait"]);
    assert_eq!(code, 1, "{output}");
    let builds = server.cli_json(&["builds", "list", "--app", "edge-api"]);
    let failed = builds.as_array().unwrap().iter().find(|build| build["state"] == "failed");
    let failed = failed.unwrap_or_else(|| panic!("{builds:#}"));
    let build = server.cli_json(&["builds", "show", failed["id"].as_str().unwrap()]);
    let detail = build["detail"].as_str().unwrap();
    assert!(detail.contains("wrong.tf:2: Reference to undeclared input variable"), "{detail}");
    // The other modules are built, because each is valid by itself.
    assert!(builds.as_array().unwrap().iter().any(|build| build["state"] == "succeeded"));
}

#[test]
fn invalid_hcl_is_an_error_of_validate_with_file_and_line() {
    let server = Server::up();
    let app = edge_api(server.dir());
    let module = fs::read_dir(app.join("modules")).unwrap().next().unwrap().unwrap().path();
    fs::write(module.join("wrong.tf"), "locals {\n  wrong = \n}\n").unwrap();
    let mut validate = server.stead_for_people();
    let validated = validate.args(["apps", "validate", app.to_str().unwrap()]).output().unwrap();
    let output = String::from_utf8_lossy(&validated.stdout).into_owned();
    assert_eq!(validated.status.code(), Some(2), "{output}");
    assert!(output.contains("bad_module") && output.contains("wrong.tf:2"), "{output}");
}
