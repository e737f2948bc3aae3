//! Tests jobs in a sandbox through the public interfaces: a whole lifecycle, what both sides see of
//! it, and hosts without support.
use std::{
    fs,
    io::Write as _,
    os::unix::fs::MetadataExt as _,
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::Value;
use tests::{
    Customer, Runner, Server, edge_api, finish, in_ci, program, stdout_of, terraform_or_skip, until,
};

const TIMEOUT: Duration = Duration::from_secs(30);

/// Returns whether the host has the programs of a sandbox. In CI it must.
fn sandbox_or_skip() -> bool {
    let has = |name: &str| Command::new(name).arg("--version").output().is_ok();
    let found = has("bwrap") && has("pasta");
    assert!(found || !in_ci(), "CI must have bubblewrap and passt");
    if !found {
        eprintln!("SKIPPED: needs bubblewrap and passt");
    }
    found
}

fn create(server: &Server) -> Value {
    let app = edge_api(server.dir());
    server.cli_json(&["apps", "sync", app.to_str().unwrap(), "--wait"]);
    let create =
        ["installs", "create", "edge-api", "acme", "--input", "company=Acme", "--auto-approve"];
    server.cli_json(&create)
}

fn install(server: &Server) -> String {
    create(server)["enrolment"]["token"].as_str().unwrap().to_string()
}

/// Returns what a sandbox does not enforce: root reads files that only root can read.
fn not_enforced() -> Option<Value> {
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    is_root.then(|| serde_json::json!(["files"]))
}

fn first_run(server: &Server) -> Value {
    until("the provision run", TIMEOUT, || {
        !server.cli_json(&["runs", "list", "--install", "acme"]).as_array().unwrap().is_empty()
    });
    finish(server, "acme")
}

fn journal(runner: &Runner) -> String {
    stdout_of(&mut runner.local(&["journal"]))
}

#[test]
fn an_app_is_deployed_in_a_sandbox_and_both_sides_see_it() {
    if !terraform_or_skip() || !sandbox_or_skip() {
        return;
    }
    let server = Server::up();
    let token = install(&server);
    let runner = Customer::new(&server, "customer").in_sandbox().start(&server, &token);
    let run = first_run(&server);
    assert_eq!(run["state"], "succeeded", "{run:#}");
    assert!(!runner.ledger().is_empty(), "the policy shows the ledger");
    let jobs = server.cli_json(&["jobs", "list", "--install", "acme"]);
    let jobs = jobs.as_array().unwrap();
    assert!(jobs.len() > 4, "{jobs:#?}");
    for job in jobs {
        let job = server.cli_json(&["jobs", "show", job["id"].as_str().unwrap()]);
        let isolation = &job["attempts"][0]["isolation"];
        // Such a job runs only git, outside of a sandbox.
        if ["resolve", "sync"].map(Value::from).contains(&job["kind"]) {
            assert_eq!(isolation["level"], "process", "{job:#}");
            continue;
        }
        assert_eq!(isolation["level"], "sandbox", "{job:#}");
        assert_eq!(isolation.get("not_enforced"), not_enforced().as_ref(), "{job:#}");
    }
    let id = jobs[0]["id"].as_str().unwrap();
    let shown = stdout_of(server.stead_for_people().args(["jobs", "show", id]));
    assert!(shown.contains("isolation sandbox"), "{shown}");
    let entries = journal(&runner);
    assert!(entries.contains("isolation: sandbox") && entries.contains("; writes "), "{entries}");
    let preflight = run["preflight"].to_string();
    assert!(preflight.contains("cloud credentials"), "{preflight}");

    // A later version of the app finds the state of the first one.
    server.cli_json(&["installs", "deploy", "acme", "--reason", "again"]);
    assert_eq!(finish(&server, "acme")["state"], "succeeded");
}

#[test]
fn a_host_without_the_required_level_refuses_jobs_before_they_start() {
    if !terraform_or_skip() {
        return;
    }
    let server = Server::up();
    let token = install(&server);
    let empty = server.dir().join("no-programs");
    fs::create_dir(&empty).unwrap();
    // The runner enrols, because its policy accepts less. It has no Terraform either.
    let runner = Customer::new(&server, "customer")
        .policy("isolation = \"process\"\n")
        .env("PATH", empty.to_str().unwrap())
        .start(&server, &token);
    assert_eq!(first_run(&server)["state"], "failed");

    // The preflight runs, and finds that the applies would be refused.
    let policy = runner.data().with_file_name("policy.toml");
    let rules = "version = 1\nisolation = { apply = \"sandbox\", plan = \"process\" }\n";
    fs::write(&policy, rules).unwrap();
    server.cli_json(&["installs", "deploy", "acme", "--reason", "again"]);
    let run = finish(&server, "acme");
    assert_eq!((&run["state"], &run["preflight"]["state"]), (&"failed".into(), &"failed".into()));
    let checks = run["preflight"].to_string();
    assert!(checks.contains("policy isolation"), "{checks}");
    assert!(checks.contains("bubblewrap is not installed"), "{checks}");

    // A preflight that requires the level itself is refused.
    fs::write(&policy, "version = 1\nisolation = \"sandbox\"\n").unwrap();
    server.cli_json(&["installs", "deploy", "acme", "--reason", "once more"]);
    assert_eq!(finish(&server, "acme")["state"], "failed");
    let refused = server.cli_json(&["audit", "events", "--type", "runner.refused"]).to_string();
    assert!(refused.contains("need the isolation level sandbox"), "{refused}");
    assert!(runner.ledger().is_empty(), "{:?}", runner.ledger());
}

/// Enrols with the command that the server printed and these options. `path` is the search path.
fn enrol(server: &Server, created: &Value, more: &[&str], path: &str) -> (bool, String) {
    let command = created["enrolment"]["command"].as_str().unwrap();
    let data = server.dir().join("customer").display().to_string();
    let command = command.replace("/var/lib/stead-runner", &data);
    let mut child = Command::new(program("stead-runner"))
        .arg("enrol")
        .args(command.split_whitespace().skip(1))
        .args(more)
        .env("PATH", path)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let token = created["enrolment"]["token"].as_str().unwrap();
    child.stdin.take().unwrap().write_all(format!("{token}\n").as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.success(), String::from_utf8(output.stderr).unwrap())
}

fn policy_of_customer(server: &Server) -> Option<String> {
    fs::read_to_string(server.dir().join("customer/policy.toml")).ok()
}

#[test]
fn a_host_without_a_sandbox_enrols_only_a_runner_that_needs_none() {
    let server = Server::up();
    let created = create(&server);
    let empty = server.dir().join("no-programs");
    fs::create_dir(&empty).unwrap();
    let enrol = |more: &[&str]| enrol(&server, &created, more, empty.to_str().unwrap());
    let (has_enrolled, error) = enrol(&["--isolation", "sandbox"]);
    assert!(!has_enrolled);
    for text in ["bubblewrap is not installed", "doctor"] {
        assert!(error.contains(text), "{error}");
    }
    assert_eq!(policy_of_customer(&server), None);
    // The token is still valid. Without the option, jobs run as they did before.
    let (has_enrolled, error) = enrol(&[]);
    assert!(has_enrolled, "{error}");
    assert!(!error.contains("supports a sandbox"), "{error}");
    let text = policy_of_customer(&server).unwrap();
    assert!(text.contains("\n# isolation = \"sandbox\""), "{text}");
    assert!(!text.contains("\nisolation"), "{text}");
}

#[test]
fn a_host_with_a_sandbox_recommends_it_and_the_printed_command_can_select_it() {
    if !sandbox_or_skip() {
        return;
    }
    let path = std::env::var("PATH").unwrap();
    let server = Server::up();
    let (has_enrolled, error) = enrol(&server, &create(&server), &[], &path);
    assert!(has_enrolled, "{error}");
    assert!(error.contains("isolation = \"sandbox\""), "{error}");
    assert!(!error.contains("metadata addresses"), "{error}");

    let server = Server::up();
    let (has_enrolled, error) =
        enrol(&server, &create(&server), &["--isolation", "sandbox"], &path);
    assert!(has_enrolled, "{error}");
    // Jobs lose what they had at the level process, so the customer must know.
    assert!(error.contains("credentials of this host's instance role"), "{error}");
    let text = policy_of_customer(&server).unwrap();
    assert!(text.contains("\nversion = 1\nisolation = \"sandbox\"\n"), "{text}");
}

#[test]
fn doctor_needs_no_data_directory() {
    if !sandbox_or_skip() {
        return;
    }
    let output = Command::new(program("stead-runner"))
        .args(["doctor", "--output", "json", "--data", "/nonexistent/stead"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let status = |check: &str| {
        let all = found.as_array().unwrap();
        all.iter().find(|finding| finding["check"] == check).unwrap()["status"].clone()
    };
    assert_eq!((status("sandbox"), status("network")), ("ok".into(), "ok".into()), "{found:#}");
    assert!(!fs::exists("/nonexistent").unwrap());
}
