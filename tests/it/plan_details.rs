//! Tests the details of plans with real engines: approvers read the values that change, other roles
//! cannot, and no sensitive value leaves the customer's account.
use std::{fs, path::PathBuf, process::Command, time::Duration};

use serde_json::Value;
use tests::{
    Customer, Runner, Server, call, dump, edge_api, finish, program, stdout_of, step,
    terraform_or_skip, until, until_some,
};

const TIMEOUT: Duration = Duration::from_secs(60);

/// Value that only the plan contains: the module computes it.
const SHOWN: &str = "computed-4f1d8a90-c2b7";
/// Path of an attribute, which the summary does not contain.
const ONLY_IN_DETAILS: &str = "input.text";
/// Sensitive value, which the module computes.
const HIDDEN: &str = "sensitive-0b9d4a1e-7c52";

/// Resources with a shown, a sensitive and an unknown value, and one whose change replaces it.
const RESOURCES: &str = r#"
variable "size" {
  type = string
}

locals {
  shown  = join("-", ["computed", "4f1d8a90", "c2b7", var.size])
  hidden = sensitive(join("-", ["sensitive", "0b9d4a1e", "7c52", var.size]))
}

resource "terraform_data" "shown" {
  input = { text = local.shown, mixed = [local.shown, local.hidden] }
}

resource "terraform_data" "replaced" {
  triggers_replace = local.shown
}

output "size" {
  value = local.shown
}

output "hidden" {
  value     = local.hidden
  sensitive = true
}
"#;

/// Returns `edge-api` with one component, whose module has these resources.
fn app(server: &Server) -> PathBuf {
    let app = edge_api(server.dir());
    for name in ["api", "cache", "database", "edge"] {
        fs::remove_file(app.join("components").join(name).with_extension("toml")).unwrap();
    }
    fs::remove_file(app.join("components/api.tfvars")).unwrap();
    fs::remove_dir_all(app.join("actions")).unwrap();
    let append = |file: &str, text: &str| {
        let file = app.join(file);
        fs::write(&file, fs::read_to_string(&file).unwrap() + text).unwrap();
    };
    append("modules/network/main.tf", RESOURCES);
    append("components/network.toml", "size = \"{{ .nuon.inputs.inputs.replicas }}\"\n");
    app
}

/// Waits until the plan of the component waits for an approval, and returns its run. Approves the
/// sandbox.
fn planned(server: &Server) -> Value {
    until_some("the plan of the network", TIMEOUT, || {
        let output = server.stead().args(["runs", "show", "acme"]).output().unwrap();
        let run: Value = serde_json::from_slice(&output.stdout).ok()?;
        let is_waiting = |name: &str| {
            let mut steps = run["dag"].as_array().unwrap().iter();
            steps.any(|step| step["name"] == name && step["state"] == "waiting_for_approval")
        };
        if is_waiting("sandbox") {
            let args = ["--step", "sandbox", "--all", "--reason", "not what is tested"];
            let _next_time =
                server.stead().args(["runs", "approve", "acme"]).args(args).output().unwrap();
        }
        is_waiting("network").then_some(run)
    })
}

/// Returns status and body of the details of a step, for a caller with this token.
fn details(server: &Server, run: &Value, token: &str) -> (u16, Value) {
    let (id, step) = (run["id"].as_str().unwrap(), step(run, "network")["id"].as_str().unwrap());
    let url = format!("{}/v1/runs/{id}/steps/{step}/plan/details", server.control());
    let response = call("GET", &url, &[("Authorization", &format!("Bearer {token}"))], b"");
    (response.status, serde_json::from_str(&response.body).unwrap())
}

fn attribute<'d>(details: &'d Value, address: &str, path: &str) -> &'d Value {
    let find = |list: &'d Value, key: &str, name: &str| {
        list.as_array().unwrap().iter().find(|one| one[key] == name)
    };
    let resources = &details["details"]["resources"];
    let resource = find(resources, "address", address).unwrap_or_else(|| panic!("{details:#}"));
    find(&resource["attributes"], "path", path).unwrap_or_else(|| panic!("{path}: {details:#}"))
}

fn start(server: &Server) -> Runner {
    server.cli_json(&["apps", "sync", app(server).to_str().unwrap(), "--wait"]);
    let create = ["installs", "create", "edge-api", "acme", "--input", "company=Acme"];
    let created = server.cli_json(&create);
    let runner = Customer::new(server, "customer")
        .start(server, created["enrolment"]["token"].as_str().unwrap());
    until("the provision run", TIMEOUT, || {
        !server.cli_json(&["runs", "list", "--install", "acme"]).as_array().unwrap().is_empty()
    });
    runner
}

#[test]
fn only_an_approver_sees_the_values_of_a_terraform_plan() {
    if !terraform_or_skip() {
        return;
    }
    let server = Server::up();
    let runner = start(&server);

    // given a plan that creates the resources
    let run = planned(&server);
    let owner = server.owner_token();
    let (status, first) = details(&server, &run, &owner);
    assert_eq!((status, &first["state"]), (200, &Value::from("available")), "{first:#}");
    let text = attribute(&first, "terraform_data.shown", "input.text");
    assert_eq!(text["after"]["value"], format!("{SHOWN}-2"), "{first:#}");
    let id = attribute(&first, "terraform_data.shown", "id");
    assert_eq!(id["after"], "known_after_apply");
    assert_eq!(first["plan"], step(&run, "network")["plan"]["digest"]);
    let sensitive = first.to_string().matches("\"sensitive\"").count();
    assert!(sensitive >= 2, "an attribute and an output: {first:#}");

    // then the roles decide who reads it
    for (role, expected) in [("viewer", 403), ("approver", 200), ("auditor", 200)] {
        let created = server.cli_json(&["tokens", "create", "--role", role]);
        let token = created["token"].as_str().unwrap_or_else(|| panic!("{created:#}"));
        assert_eq!(details(&server, &run, token).0, expected, "{role}");
        // Everyone who reads runs sees the names.
        let mut show = Command::new(program("stead"));
        show.args(["--server", server.control(), "runs", "show", "acme", "--plans"]);
        let shown = stdout_of(show.env("STEAD_TOKEN", token));
        assert!(shown.contains("terraform_data.shown"), "{shown}");
        assert_eq!(shown.contains(SHOWN), expected == 200, "{role}: {shown}");
    }

    // when an input changes
    finish(&server, "acme");
    let change = ["installs", "set-inputs", "acme", "--input", "replicas=5"];
    server.cli_json(&change);
    let run = planned(&server);
    let (_, second) = details(&server, &run, &owner);
    let text = attribute(&second, "terraform_data.shown", "input.text");
    assert_eq!(text["before"]["value"], format!("{SHOWN}-2"), "{second:#}");
    assert_eq!(text["after"]["value"], format!("{SHOWN}-5"));
    let trigger = attribute(&second, "terraform_data.replaced", "triggers_replace");
    assert_eq!(trigger["replaces"], true, "{second:#}");

    // then the CLI shows both values
    let show = |details: &[&str]| {
        let args = [&["runs", "show", "acme", "--plans"][..], details].concat();
        stdout_of(server.stead_for_people().args(args))
    };
    let shown = show(&[]);
    let expected = format!("input.text: \"{SHOWN}-2\" → \"{SHOWN}-5\"");
    assert!(shown.contains(&expected), "{shown}");
    assert!(shown.contains("± terraform_data.replaced (replaced)"), "{shown}");
    assert!(shown.contains("# forces replacement"), "{shown}");
    assert!(shown.contains("(sensitive)"), "{shown}");
    assert!(show(&["--details=full"]).contains(&expected));
    let names = show(&["--details=names"]);
    assert!(names.contains("terraform_data.shown (input") && !names.contains(SHOWN), "{names}");

    // and neither the events nor the database contain a value
    let export = stdout_of(server.stead_for_people().args(["audit", "export"]));
    let digest = second["digest"].as_str().unwrap_or_else(|| panic!("{second:#}"));
    assert!(export.contains(digest), "the event has the digest of the details");
    // A dump contains bytes as hexadecimal.
    let stored = String::from_utf8_lossy(&dump(&server)).into_owned();
    let hex = |text: &str| text.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
    for text in [&export, &stored] {
        for value in [ONLY_IN_DETAILS, HIDDEN] {
            assert!(!text.contains(value) && !text.contains(&hex(value)), "{value}");
        }
    }
    for text in [second.to_string(), shown, show(&["--details=full"]), server.log(), runner.log()] {
        assert!(!text.contains(HIDDEN), "{text}");
    }
}

#[test]
fn the_plans_of_an_erased_install_are_reported_as_erased() {
    if !terraform_or_skip() {
        return;
    }
    let server = Server::up();
    let _runner = start(&server);
    let run = planned(&server);
    assert_eq!(finish(&server, "acme")["state"], "succeeded");
    let (id, owner) = (run["id"].as_str().unwrap(), server.owner_token());
    let install = run["install"].as_str().unwrap();

    // The data of an install in use cannot be erased.
    let shred = ["subjects", "shred", install, "--yes", "--reason", "the contract ended"];
    let (_, message) = server.refused(&shred);
    assert!(message.contains("deprovision"), "{message}");
    server.cli_json(&["installs", "deprovision", install, "--reason", "the contract ended"]);
    assert_eq!(finish(&server, install)["state"], "succeeded");
    assert_eq!(details(&server, &run, &owner).1["state"], "available");
    server.cli_json(&shred);
    until("the erasure", TIMEOUT, || {
        server.cli_json(&["subjects", "show", install])["state"] == "erased"
    });

    // The details keep only their digest, and the summary is gone.
    let (status, erased) = details(&server, &run, &owner);
    assert_eq!((status, &erased["state"]), (200, &Value::from("erased")), "{erased:#}");
    assert!(erased["details"].is_null() && erased["salt"].is_null(), "{erased:#}");
    let step = step(&run, "network")["id"].as_str().unwrap();
    let url = format!("{}/v1/runs/{id}/steps/{step}/plan", server.control());
    let summary = call("GET", &url, &[("Authorization", &format!("Bearer {owner}"))], b"");
    assert_eq!(summary.status, 410, "{}", summary.body);
    let expected = format!("the data of {install} was erased");
    assert!(summary.body.contains("\"erased\"") && summary.body.contains(&expected));
    let json = server.stead().args(["runs", "show", id, "--plans"]).output().unwrap();
    let message = String::from_utf8_lossy(&json.stderr);
    assert!(!json.status.success() && message.contains(&expected), "{message}");
    let shown = stdout_of(server.stead_for_people().args(["runs", "show", id, "--plans"]));
    assert!(shown.contains("plan of network\n  the plan was erased"), "{shown}");
}

#[test]
fn the_digest_of_the_details_can_be_recomputed() {
    if !terraform_or_skip() {
        return;
    }
    let server = Server::up();
    let _runner = start(&server);
    let run = planned(&server);
    let (_, shown) = details(&server, &run, &server.owner_token());
    let salt: domain::digest::Digest = shown["salt"].as_str().unwrap().parse().unwrap();
    let content = proof::canonical::json(&shown["details"]).unwrap();
    let digest = proof::plan::details(&salt.bytes(), &content);
    assert_eq!(proof::digest_text(&digest), shown["digest"].as_str().unwrap());

    // Stead's own verification accepts plans of version 2.
    let verified = stdout_of(server.stead_for_people().args(["audit", "verify"]));
    assert!(verified.contains("signed"), "{verified}");
}
