//! Tests the lifecycle through the public interfaces: sync, install, deploy, update, roll back,
//! tear down, prove.
use std::{
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::Value;
use tests::{
    Runner, Server, edge_api, edge_api_v2, finish, position, program, stdout_of, terraform_or_skip,
    until,
};

const TIMEOUT: Duration = Duration::from_secs(30);

fn planned_names(run: &Value) -> Vec<String> {
    let steps = run["dag"].as_array().unwrap();
    let mut names: Vec<_> = steps.iter().map(|s| s["name"].as_str().unwrap().into()).collect();
    names.sort();
    names
}

/// Starts a command that follows events until its subject ends.
fn start_following(server: &Server, args: &[&str]) -> Child {
    let mut command = server.stead_for_people();
    command.args(args).stdout(Stdio::piped()).spawn().unwrap()
}

/// Returns the output of a command that ends by itself.
fn output_of(command: Child) -> String {
    let output = command.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Verifies bundles of the install and of a job, with the key and the checkpoint that the
/// customer's runner stores.
fn assert_customer_can_verify_proofs(server: &Server, runner: &Runner) {
    let at = |name: &str| server.dir().join(name).to_str().unwrap().to_owned();
    let note = at("kept-by-the-runner");
    std::fs::write(&note, stdout_of(&mut runner.local(&["witness"]))).unwrap();
    let key = stdout_of(&mut runner.local(&["witness", "key"]));
    let job = server.cli_json(&["jobs", "list"])[0]["id"].as_str().unwrap().to_owned();
    let expected_of_acme =
        ["complete, ", "requested", "approved", "signature of the runner that ran them"];
    for (subject, expected) in [("acme", &expected_of_acme[..]), (&job, &["is missing"][..])] {
        let proof = at(&format!("{subject}.json"));
        let args = [
            "audit",
            "prove",
            subject,
            "--other-entries",
            "all",
            "--since",
            &note,
            "--out",
            &proof,
        ];
        stdout_of(server.stead_for_people().args(args));
        let check = ["audit", "check", &proof, "--key", key.trim(), "--checkpoint", &note];
        let output = stdout_of(Command::new(program("stead")).args(check));
        assert!(output.contains("the stored checkpoint"), "{output}");
        assert!(expected.iter().all(|expected| output.contains(expected)), "{output}");
    }
}

#[test]
fn an_app_passes_the_whole_lifecycle_with_proofs() {
    if !terraform_or_skip() {
        return;
    }
    let server = Server::up();
    let app = edge_api(server.dir());
    let app = app.to_str().unwrap();

    // A repeated sync of the same bytes publishes no second version.
    let first = server.cli_json(&["apps", "sync", app, "--wait"]);
    assert_eq!((first["version"].as_u64(), first["unchanged"].as_bool()), (Some(1), Some(false)));
    assert_eq!(first["builds"].as_array().unwrap().len(), 6, "sandbox and five components");
    let again = server.cli_json(&["apps", "sync", app]);
    assert_eq!(again["unchanged"], true);

    // The server checks the inputs before it creates an install.
    let (code, message) = server.refused(&["installs", "create", "edge-api", "acme"]);
    assert!(message.contains("company"), "{message}");
    assert_eq!(code, 2, "{message}");
    let wrong_type = ["--input", "company=Acme", "--input", "replicas=many"];
    let (_, message) =
        server.refused(&[&["installs", "create", "edge-api", "acme"], &wrong_type[..]].concat());
    assert!(message.contains("replicas") && message.contains("number"), "{message}");
    let unknown = ["--input", "company=Acme", "--input", "compani=x"];
    let (_, message) =
        server.refused(&[&["installs", "create", "edge-api", "acme"], &unknown[..]].concat());
    assert!(message.contains("compani"), "{message}");

    let create = ["installs", "create", "edge-api", "acme", "--input", "company=Acme"];
    let created = server.cli_json(&create);
    let token = created["enrolment"]["token"].as_str().unwrap();
    let (_, message) = server.refused(&create);
    assert!(message.contains("taken"), "{message}");

    // The install provisions itself. One command approves layer after layer and exits with the
    // run's result.
    let runner = Runner::start(&server, "customer", token);
    let follow = ["runs", "approve", "acme", "--follow", "--reason", "first install"];
    let (code, message) = server.refused(&follow);
    assert!(code == 2 && message.contains("--all"), "no prompt is possible here: {message}");
    let all = [&follow[..], &["--all"]].concat();
    let output = stdout_of(server.stead_for_people().args(all));
    for expected in ["plan of network", "network approved: plan sha256:", "edge approved: plan"] {
        assert!(output.contains(expected), "{expected}: {output}");
    }
    until("the provision run", TIMEOUT, || {
        let runs = server.cli_json(&["runs", "list", "--install", "acme"]);
        !runs.as_array().unwrap().is_empty()
    });
    let run = finish(&server, "acme");
    assert_eq!(run["state"], "succeeded", "{run:#}");
    let ledger = runner.ledger();
    let mut effects: Vec<_> = ledger.iter().map(|(what, _)| what.as_str()).collect();
    effects.sort_unstable();
    assert_eq!(effects, ["api", "cache", "database", "edge", "network", "sandbox"]);

    // The server rejects a second use of the token with another key.
    let other = Runner::start(&server, "impostor", token);
    until("the refusal", TIMEOUT, || other.log().contains("enrolment_redeemed"));
    drop(other);

    // Version 2 changes only the affected components.
    let v2 = edge_api_v2(server.dir());
    let second = server.cli_json(&["apps", "sync", v2.to_str().unwrap(), "--wait"]);
    assert_eq!(second["version"], 2);
    assert_eq!(second["builds"].as_array().unwrap().len(), 1, "only the changed module is built");
    server.cli_json(&["installs", "upgrade", "acme", "--to", "2", "--reason", "version 2"]);
    let run = finish(&server, "acme");
    assert_eq!(run["state"], "succeeded", "{run:#}");
    let names = planned_names(&run);
    assert!(
        !names.contains(&"network".to_string()) && !names.contains(&"sandbox".to_string()),
        "{names:?}"
    );

    // A rollback reverts the same difference.
    let back = ["installs", "rollback", "acme", "--to", "1", "--reason", "back"];
    let output = stdout_of(server.stead_for_people().args(back));
    assert!(output.contains("From version 2 to version 1:\n"), "{output}");
    assert!(output.contains("cache") && output.contains("replicas"), "{output}");
    let watcher = start_following(&server, &["runs", "watch", "acme"]);
    let run = finish(&server, "acme");
    assert_eq!(
        (run["state"].as_str(), run["kind"].as_str()),
        (Some("succeeded"), Some("rollback"))
    );
    let output = output_of(watcher);
    assert!(output.contains("✔ deploy cache  succeeded"), "{output}");

    // A new input value affects only the components that read it.
    let changed = ["--type", "install.inputs_changed", "--limit", "1"];
    let follower =
        start_following(&server, &[&["audit", "events", "--follow"], &changed[..]].concat());
    server.cli_json(&["installs", "set-inputs", "acme", "--input", "replicas=3"]);
    let output = output_of(follower);
    assert!(output.contains("install.inputs_changed"), "{output}");
    let run = finish(&server, "acme");
    assert_eq!(run["state"], "succeeded", "{run:#}");
    assert!(!planned_names(&run).contains(&"database".to_string()));

    // The log is intact and is a continuation of the checkpoint that the customer stored.
    let before = position(&server);
    let verified = server.cli_json(&["audit", "verify"]);
    assert!(verified["verified"].as_u64().unwrap() >= before, "{verified}");
    // A runner signs every report.
    assert!(verified["signed_reports"].as_u64().unwrap() > 5, "{verified}");
    assert_eq!(verified["unsigned_results"], 0, "{verified}");
    let kept = runner.data().join("checkpoint");
    let verified = server.cli_json(&["audit", "verify", "--against", kept.to_str().unwrap()]);
    assert!(verified["unchanged_since"].as_u64().unwrap() > 0, "{verified}");
    assert_customer_can_verify_proofs(&server, &runner);
    for verb in ["verify", "rebuild", "verify"] {
        stdout_of(server.stead_for_people().args(["projections", verb, "--all"]));
    }

    // A replay returns the state as of the position before the input change, and as of the position
    // and the time of the change.
    let changed = server.cli_json(&["audit", "events", "--type", "install.inputs_changed"]);
    let changed = changed.as_array().unwrap().last().unwrap().clone();
    let at = changed["position"].as_u64().unwrap();
    let replicas = |at: &str| {
        let past = server.cli_json(&["audit", "replay", "--install", "acme", "--at", at]);
        past["state"]["inputs"]["replicas"].clone()
    };
    let (past, now) = (replicas(&(at - 1).to_string()), replicas(&at.to_string()));
    assert_eq!(
        (past, now),
        (Value::Null, "3".into()),
        "the default is the config's, not the install's"
    );
    assert_eq!(replicas(changed["recorded_at"].as_str().unwrap()), "3");

    // The diff from that position lists the requester, the approver and the jobs.
    let from = (at - 1).to_string();
    let diff = server.cli_json(&["audit", "diff", "--install", "acme", "--from", &from]);
    let path = |path: &str| {
        let changes = diff["changes"].as_array().unwrap();
        changes.iter().find(|change| change["path"] == path).cloned().unwrap_or_default()
    };
    assert_eq!(path("inputs.replicas")["after"], "3", "{diff:#}");
    let of_run = diff["runs"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (of_run["run"].clone(), &of_run["outcome"]),
        (run["id"].clone(), &"succeeded".into())
    );
    let approvals = of_run["interventions"].as_array().unwrap();
    assert!(approvals.iter().any(|intervention| intervention["kind"] == "approved"), "{diff:#}");
    let jobs = of_run["jobs"].as_array().unwrap();
    assert!(jobs.iter().any(|job| job["kind"] == "apply" && job["outcome"] == "succeeded"));
    assert!(!of_run["components"].as_array().unwrap().is_empty(), "{diff:#}");
    // A projection returns its row as of that position, and its live row.
    let args =
        ["projections", "show", "runs", "--as-of", &from, "--key", run["id"].as_str().unwrap()];
    assert_eq!(server.refused(&args).0, 3, "the run was not requested yet");
    let args = ["projections", "show", "runs", "--key", run["id"].as_str().unwrap()];
    assert_eq!(server.cli_json(&args)[0]["row"]["state"]["outcome"], "succeeded");

    // A teardown destroys the components, dependents first. A deprovision then destroys the
    // sandbox.
    server.cli_json(&["installs", "teardown", "acme", "--reason", "the end"]);
    let run = finish(&server, "acme");
    assert_eq!(run["state"], "succeeded", "{run:#}");
    server.cli_json(&["installs", "deprovision", "acme", "--reason", "the end"]);
    let run = finish(&server, "acme");
    assert_eq!(run["state"], "succeeded", "{run:#}");
    let ledger = runner.ledger();
    let destroyed: Vec<_> =
        ledger.iter().filter_map(|(what, _)| what.strip_suffix("/destroy")).collect();
    let last = |name| destroyed.iter().rposition(|other| *other == name).unwrap();
    assert!(last("edge") < last("api") && last("api") < last("database"));
    assert!(last("network") < last("sandbox"));

    // Each effect happened once, by one execution.
    let mut seen = std::collections::BTreeSet::new();
    for effect in &ledger {
        assert!(seen.insert(effect.clone()), "{effect:?} twice");
    }
}

/// Returns version 2 with one more component. Its apply creates one resource and fails at the next.
fn with_a_component_that_fails(server: &Server) -> std::path::PathBuf {
    let app = edge_api_v2(server.dir());
    let module = app.join("modules/extra");
    std::fs::create_dir(&module).unwrap();
    std::fs::copy(app.join("modules/cache/effect.sh"), module.join("effect.sh")).unwrap();
    let main = r#"
resource "terraform_data" "half" {
  provisioner "local-exec" {
    command = "sh ${path.module}/effect.sh half 0"
  }
  provisioner "local-exec" {
    when    = destroy
    command = "sh ${path.module}/effect.sh half/destroy 0"
  }
}

resource "terraform_data" "never" {
  depends_on = [terraform_data.half]
  provisioner "local-exec" {
    command = "exit 1"
  }
}
"#;
    std::fs::write(module.join("main.tf"), main).unwrap();
    let config = "name = \"extra\"\ntype = \"terraform_module\"\n\n\
                  [public_repo]\nrepo = \".\"\ndirectory = \"modules/extra\"\n";
    std::fs::write(app.join("components/extra.toml"), config).unwrap();
    app
}

#[test]
fn a_partial_apply_is_destroyed_by_a_rollback_and_by_a_deprovision() {
    if !terraform_or_skip() {
        return;
    }
    let server = Server::up();
    let app = edge_api(server.dir());
    server.cli_json(&["apps", "sync", app.to_str().unwrap(), "--wait"]);
    let created =
        server.cli_json(&["installs", "create", "edge-api", "acme", "--input", "company=Acme"]);
    let runner =
        Runner::start(&server, "customer", created["enrolment"]["token"].as_str().unwrap());
    until("the provision run", TIMEOUT, || {
        !server.cli_json(&["runs", "list", "--install", "acme"]).as_array().unwrap().is_empty()
    });
    assert_eq!(finish(&server, "acme")["state"], "succeeded");
    let v2 = with_a_component_that_fails(&server);
    server.cli_json(&["apps", "sync", v2.to_str().unwrap(), "--wait"]);
    let extra = || {
        let install = server.cli_json(&["installs", "show", "acme"]);
        let parts = install["components"].as_array().unwrap().clone();
        parts.into_iter().find(|part| part["name"] == "extra")
    };
    let count = |effect: &str| runner.ledger().iter().filter(|(what, _)| what == effect).count();

    server.cli_json(&["installs", "upgrade", "acme", "--to", "2", "--reason", "version 2"]);
    assert_eq!(finish(&server, "acme")["state"], "failed");
    assert_eq!((count("half"), extra().unwrap()["state"].as_str()), (1, Some("incomplete")));
    server.cli_json(&["installs", "rollback", "acme", "--to", "1", "--reason", "it failed"]);
    let run = finish(&server, "acme");
    assert_eq!(
        (run["state"].as_str(), run["kind"].as_str()),
        (Some("succeeded"), Some("rollback"))
    );
    assert!(planned_names(&run).contains(&"extra".to_string()), "{run:#}");
    assert_eq!((count("half/destroy"), extra()), (1, None));

    server.cli_json(&["installs", "upgrade", "acme", "--to", "2", "--reason", "again"]);
    assert_eq!(finish(&server, "acme")["state"], "failed");
    server.cli_json(&["installs", "deprovision", "acme", "--reason", "the end"]);
    assert_eq!(finish(&server, "acme")["state"], "succeeded");
    assert_eq!((count("half"), count("half/destroy")), (2, 2));
    assert_eq!(server.cli_json(&["installs", "show", "acme"])["state"], "deprovisioned");
}
