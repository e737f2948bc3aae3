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

const SOON: Duration = Duration::from_secs(30);

fn planned_names(run: &Value) -> Vec<String> {
    let steps = run["dag"].as_array().unwrap();
    let mut names: Vec<_> = steps.iter().map(|s| s["name"].as_str().unwrap().into()).collect();
    names.sort();
    names
}

/// Starts a command that follows events until its subject ends.
fn listening(server: &Server, args: &[&str]) -> Child {
    let mut command = server.stead_for_people();
    command.args(args).stdout(Stdio::piped()).spawn().unwrap()
}

/// Returns the output of a command that ends by itself.
fn heard(command: Child) -> String {
    let said = command.wait_with_output().unwrap();
    assert!(said.status.success(), "{}", said.status);
    String::from_utf8_lossy(&said.stdout).into_owned()
}

/// Verifies bundles of the install and of a job, with the key and the checkpoint that the
/// customer's runner stores.
fn what_a_customer_checks_alone(server: &Server, runner: &Runner) {
    let at = |name: &str| server.dir().join(name).to_str().unwrap().to_owned();
    let note = at("kept-by-the-runner");
    std::fs::write(&note, stdout_of(&mut runner.local(&["witness"]))).unwrap();
    let key = stdout_of(&mut runner.local(&["witness", "key"]));
    let job = server.ask(&["jobs", "list"])[0]["id"].as_str().unwrap().to_owned();
    let of_acme = ["complete, ", "requested", "approved", "signed by the runner that ran them"];
    for (subject, shown) in [("acme", &of_acme[..]), (&job, &["is missing"][..])] {
        let proof = at(&format!("{subject}.json"));
        let ask = [
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
        stdout_of(server.stead_for_people().args(ask));
        let check = ["audit", "check", &proof, "--key", key.trim(), "--checkpoint", &note];
        let said = stdout_of(Command::new(program("stead")).args(check));
        assert!(said.contains("the stored checkpoint"), "{said}");
        assert!(shown.iter().all(|shown| said.contains(shown)), "{said}");
    }
}

#[test]
fn an_app_is_synced_installed_deployed_changed_rolled_back_and_proved() {
    if !terraform_or_skip() {
        return;
    }
    let server = Server::up();
    let app = edge_api(server.dir());
    let app = app.to_str().unwrap();

    // published once; a repeated sync of the same bytes changes nothing
    let first = server.ask(&["apps", "sync", app, "--wait"]);
    assert_eq!((first["version"].as_u64(), first["unchanged"].as_bool()), (Some(1), Some(false)));
    assert_eq!(first["builds"].as_array().unwrap().len(), 6, "sandbox and five components");
    let again = server.ask(&["apps", "sync", app]);
    assert_eq!(again["unchanged"], true);

    // inputs are checked before anything is created
    let (code, said) = server.refused(&["installs", "create", "edge-api", "acme"]);
    assert!(said.contains("company"), "{said}");
    assert_eq!(code, 2, "{said}");
    let typed = ["--input", "company=Acme", "--input", "replicas=many"];
    let (_, said) =
        server.refused(&[&["installs", "create", "edge-api", "acme"], &typed[..]].concat());
    assert!(said.contains("replicas") && said.contains("number"), "{said}");
    let unknown = ["--input", "company=Acme", "--input", "compani=x"];
    let (_, said) =
        server.refused(&[&["installs", "create", "edge-api", "acme"], &unknown[..]].concat());
    assert!(said.contains("compani"), "{said}");

    let create = ["installs", "create", "edge-api", "acme", "--input", "company=Acme"];
    let created = server.ask(&create);
    let token = created["enrolment"]["token"].as_str().unwrap();
    let (_, said) = server.refused(&create);
    assert!(said.contains("taken"), "{said}");

    // The install provisions itself. One command approves layer after layer and exits with the
    // run's result.
    let runner = Runner::start(&server, "customer", token);
    let follow = ["runs", "approve", "acme", "--follow", "--reason", "first install"];
    let (code, said) = server.refused(&follow);
    assert!(code == 2 && said.contains("--all"), "nobody can be asked here: {said}");
    let all = [&follow[..], &["--all"]].concat();
    let said = stdout_of(server.stead_for_people().args(all));
    for shown in ["plan of network", "network approved: plan sha256:", "edge approved: plan"] {
        assert!(said.contains(shown), "{shown}: {said}");
    }
    until("the provision run", SOON, || {
        let runs = server.ask(&["runs", "list", "--install", "acme"]);
        !runs.as_array().unwrap().is_empty()
    });
    let run = finish(&server, "acme");
    assert_eq!(run["state"], "succeeded", "{run:#}");
    let ledger = runner.ledger();
    let mut effects: Vec<_> = ledger.iter().map(|(what, _)| what.as_str()).collect();
    effects.sort_unstable();
    assert_eq!(effects, ["api", "cache", "database", "edge", "network", "sandbox"]);

    // a second use of the token with another key is rejected
    let other = Runner::start(&server, "impostor", token);
    until("the refusal", SOON, || other.log().contains("enrolment_used"));
    drop(other);

    // version 2 changes only the affected components
    let v2 = edge_api_v2(server.dir());
    let second = server.ask(&["apps", "sync", v2.to_str().unwrap(), "--wait"]);
    assert_eq!(second["version"], 2);
    assert_eq!(second["builds"].as_array().unwrap().len(), 1, "only the changed module is built");
    server.ask(&["installs", "upgrade", "acme", "--to", "2", "--reason", "version 2"]);
    let run = finish(&server, "acme");
    assert_eq!(run["state"], "succeeded", "{run:#}");
    let names = planned_names(&run);
    assert!(
        !names.contains(&"network".to_string()) && !names.contains(&"sandbox".to_string()),
        "{names:?}"
    );

    // a rollback of the same difference, without approval prompts
    let back = ["installs", "rollback", "acme", "--to", "1", "--reason", "back"];
    let said = stdout_of(server.stead_for_people().args(back));
    assert!(said.contains("From version 2 to version 1:\n"), "{said}");
    assert!(said.contains("cache") && said.contains("replicas"), "{said}");
    let watching = listening(&server, &["runs", "watch", "acme"]);
    let run = finish(&server, "acme");
    assert_eq!(
        (run["state"].as_str(), run["kind"].as_str()),
        (Some("succeeded"), Some("rollback"))
    );
    let said = heard(watching);
    assert!(said.contains("✔ deploy cache  succeeded"), "{said}");

    // a new input value affects only the components that read it
    let changed = ["--type", "install.inputs_changed", "--limit", "1"];
    let following = listening(&server, &[&["audit", "events", "--follow"], &changed[..]].concat());
    server.ask(&["installs", "set-inputs", "acme", "--input", "replicas=3"]);
    let said = heard(following);
    assert!(said.contains("install.inputs_changed"), "{said}");
    let run = finish(&server, "acme");
    assert_eq!(run["state"], "succeeded", "{run:#}");
    assert!(!planned_names(&run).contains(&"database".to_string()));

    // proofs, also against the checkpoint that the customer stored
    let before = position(&server);
    let verified = server.ask(&["audit", "verify"]);
    assert!(verified["verified"].as_u64().unwrap() >= before, "{verified}");
    // A runner signs every report.
    assert!(verified["signed_reports"].as_u64().unwrap() > 5, "{verified}");
    assert_eq!(verified["unsigned_results"], 0, "{verified}");
    let kept = runner.data().join("checkpoint");
    let verified = server.ask(&["audit", "verify", "--against", kept.to_str().unwrap()]);
    assert!(verified["unchanged_since"].as_u64().unwrap() > 0, "{verified}");
    what_a_customer_checks_alone(&server, &runner);
    for verb in ["verify", "rebuild", "verify"] {
        stdout_of(server.stead_for_people().args(["projections", verb, "--all"]));
    }

    // state as of a time and of a position, before the input change, and now
    let changed = server.ask(&["audit", "events", "--type", "install.inputs_changed"]);
    let changed = changed.as_array().unwrap().last().unwrap().clone();
    let at = changed["position"].as_u64().unwrap();
    let replicas = |at: &str| {
        let then = server.ask(&["audit", "replay", "--install", "acme", "--at", at]);
        then["state"]["inputs"]["replicas"].clone()
    };
    let (then, now) = (replicas(&(at - 1).to_string()), replicas(&at.to_string()));
    assert_eq!(
        (then, now),
        (Value::Null, "3".into()),
        "the default is the config's, not the install's"
    );
    assert_eq!(replicas(changed["recorded_at"].as_str().unwrap()), "3");

    // changes since then: requester, approver, jobs
    let from = (at - 1).to_string();
    let told = server.ask(&["audit", "diff", "--install", "acme", "--from", &from]);
    let path = |path: &str| {
        let changes = told["changes"].as_array().unwrap();
        changes.iter().find(|change| change["path"] == path).cloned().unwrap_or_default()
    };
    assert_eq!(path("inputs.replicas")["after"], "3", "{told:#}");
    let of_run = told["runs"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (of_run["run"].clone(), &of_run["outcome"]),
        (run["id"].clone(), &"succeeded".into())
    );
    let approvals = of_run["interventions"].as_array().unwrap();
    assert!(approvals.iter().any(|intervention| intervention["kind"] == "approved"), "{told:#}");
    let jobs = of_run["jobs"].as_array().unwrap();
    assert!(jobs.iter().any(|job| job["kind"] == "apply" && job["outcome"] == "succeeded"));
    assert!(!of_run["components"].as_array().unwrap().is_empty(), "{told:#}");
    // a projection's row as of then
    let row =
        ["projections", "show", "runs", "--as-of", &from, "--key", run["id"].as_str().unwrap()];
    assert_eq!(server.refused(&row).0, 3, "the run was not asked for yet");
    let row = ["projections", "show", "runs", "--key", run["id"].as_str().unwrap()];
    assert_eq!(server.ask(&row)[0]["row"]["state"]["outcome"], "succeeded");

    // teardown of the components, dependents first, then deprovision
    server.ask(&["installs", "teardown", "acme", "--reason", "the end"]);
    let run = finish(&server, "acme");
    assert_eq!(run["state"], "succeeded", "{run:#}");
    server.ask(&["installs", "deprovision", "acme", "--reason", "the end"]);
    let run = finish(&server, "acme");
    assert_eq!(run["state"], "succeeded", "{run:#}");
    let ledger = runner.ledger();
    let destroyed: Vec<_> =
        ledger.iter().filter_map(|(what, _)| what.strip_suffix("/destroy")).collect();
    let last = |name| destroyed.iter().rposition(|other| *other == name).unwrap();
    assert!(last("edge") < last("api") && last("api") < last("database"));
    assert!(last("network") < last("sandbox"));

    // each effect once, by one execution
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
fn what_an_apply_left_half_done_is_taken_down_by_a_rollback_and_by_a_deprovision() {
    if !terraform_or_skip() {
        return;
    }
    let server = Server::up();
    let app = edge_api(server.dir());
    server.ask(&["apps", "sync", app.to_str().unwrap(), "--wait"]);
    let created =
        server.ask(&["installs", "create", "edge-api", "acme", "--input", "company=Acme"]);
    let runner =
        Runner::start(&server, "customer", created["enrolment"]["token"].as_str().unwrap());
    until("the provision run", SOON, || {
        !server.ask(&["runs", "list", "--install", "acme"]).as_array().unwrap().is_empty()
    });
    assert_eq!(finish(&server, "acme")["state"], "succeeded");
    let v2 = with_a_component_that_fails(&server);
    server.ask(&["apps", "sync", v2.to_str().unwrap(), "--wait"]);
    let extra = || {
        let install = server.ask(&["installs", "show", "acme"]);
        let parts = install["components"].as_array().unwrap().clone();
        parts.into_iter().find(|part| part["name"] == "extra")
    };
    let count = |effect: &str| runner.ledger().iter().filter(|(what, _)| what == effect).count();

    server.ask(&["installs", "upgrade", "acme", "--to", "2", "--reason", "version 2"]);
    assert_eq!(finish(&server, "acme")["state"], "failed");
    assert_eq!((count("half"), extra().unwrap()["state"].as_str()), (1, Some("incomplete")));
    server.ask(&["installs", "rollback", "acme", "--to", "1", "--reason", "it failed"]);
    let run = finish(&server, "acme");
    assert_eq!(
        (run["state"].as_str(), run["kind"].as_str()),
        (Some("succeeded"), Some("rollback"))
    );
    assert!(planned_names(&run).contains(&"extra".to_string()), "{run:#}");
    assert_eq!((count("half/destroy"), extra()), (1, None));

    server.ask(&["installs", "upgrade", "acme", "--to", "2", "--reason", "again"]);
    assert_eq!(finish(&server, "acme")["state"], "failed");
    server.ask(&["installs", "deprovision", "acme", "--reason", "the end"]);
    assert_eq!(finish(&server, "acme")["state"], "succeeded");
    assert_eq!((count("half"), count("half/destroy")), (2, 2));
    assert_eq!(server.ask(&["installs", "show", "acme"])["state"], "deprovisioned");
}
