//! Tests of Terraform's specifics: its tool, its state file, its sensitive outputs, its backend.

use std::{fs, os::unix::fs::PermissionsExt};

use runner_agent::plugins::{Outcome, PluginError};
use schemas::{manifest::PluginRef, runner::JobKind};
use serde_json::json;

use super::{
    room::{JobSpec, TestRunner},
    subjects::terraform,
};

#[tokio::test]
async fn without_a_tool_the_refusal_says_what_to_install() {
    let mut room = TestRunner::new();
    room.env.insert("PATH".into(), "/nonexistent".into());
    let plugin = PluginRef { name: "terraform_module".into(), version: "1".into(), digest: None };
    let inputs = json!({ "component": "web", "operation": "apply" });
    let ask =
        JobSpec { kind: JobKind::Plan, plugin, artifacts: vec![], inputs, plan: None, state: None };
    match room.job(&ask).await.0 {
        Err(PluginError::ToolMissing(remedy)) => assert!(remedy.contains("install Terraform")),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn sensitive_outputs_stay_and_the_state_is_nobody_elses() {
    let mut room = TestRunner::new();
    let Some(subject) = terraform(&mut room) else { return };
    let mut ask = JobSpec {
        kind: JobKind::Plan,
        plugin: subject.plugin,
        artifacts: vec![subject.artifact],
        inputs: (subject.inputs)("word"),
        plan: None,
        state: None,
    };
    let (ended, planned) = room.job(&ask).await;
    assert_eq!(ended.unwrap(), Outcome::Succeeded, "{:?}", planned.lines);
    let plan = planned.plan.as_ref().unwrap();
    assert!(plan.tool.starts_with("terraform 1."), "{}", plan.tool);
    assert_eq!(plan.summary["resources"][0]["address"], "terraform_data.web");
    (ask.kind, ask.plan) = (JobKind::Apply, Some(plan.digest.clone()));
    let (ended, applied) = room.job(&ask).await;
    assert_eq!(ended.unwrap(), Outcome::Succeeded, "{:?}", applied.lines);
    assert!(applied.has("output password is sensitive"), "{:?}", applied.lines);
    assert!(!applied.outputs.as_ref().unwrap().contains_key("password"));
    for said in [&planned, &applied] {
        assert!(!said.has("hunter2"), "{:?}", said.lines);
    }
    assert!(applied.phases.contains(&"terraform_data.web".to_owned()), "{:?}", applied.phases);
    let state = room.at("state").join("web/terraform.tfstate");
    assert_eq!(fs::metadata(state).unwrap().permissions().mode() & 0o777, 0o600);
}

/// Every variable of an app is a text. Terraform converts it to a bool or a number, but not to a
/// list, and does not evaluate it as an expression. A variables file of the app takes precedence.
#[tokio::test]
async fn variables_reach_the_module_as_json_and_then_the_files() {
    let mut room = TestRunner::new();
    let Some(subject) = terraform(&mut room) else { return };
    let module = r#"
variable "on" { type = bool }
variable "count_of" { type = number }
variable "anything" { type = any }
variable "many" { type = list(string) }
variable "both" { type = string }
output "seen" {
  value = jsonencode([var.on, var.count_of, var.anything, var.many, var.both])
}
"#;
    let vars = json!({ "on": "true", "count_of": "3", "anything": "[a, b]", "both": "vars" });
    let mut ask = JobSpec {
        kind: JobKind::Plan,
        plugin: subject.plugin,
        artifacts: vec![room.artifact(&[("main.tf", module)])],
        inputs: json!({
            "component": "web", "operation": "apply", "vars": vars, "terraform_version": "",
            "var_files": ["many = [\"x\"]\nboth = \"file\"", "{\"both\": \"last file\"}"],
        }),
        plan: None,
        state: None,
    };
    let (ended, planned) = room.job(&ask).await;
    assert_eq!(ended.unwrap(), Outcome::Succeeded, "{:?}", planned.lines);
    let digest = planned.plan.as_ref().unwrap().digest.clone();
    (ask.kind, ask.plan) = (JobKind::Apply, Some(digest));
    let (ended, applied) = room.job(&ask).await;
    assert_eq!(ended.unwrap(), Outcome::Succeeded, "{:?}", applied.lines);
    let seen = &applied.outputs.as_ref().unwrap()["seen"];
    assert_eq!(seen, r#"[true,3,"[a, b]",["x"],"last file"]"#);

    (ask.kind, ask.plan) = (JobKind::Plan, None);
    ask.inputs["vars"]["many"] = json!("[\"x\"]");
    ask.inputs["var_files"] = json!([]);
    let (ended, refused) = room.job(&ask).await;
    assert!(matches!(ended, Ok(Outcome::Failed { .. })), "{:?}", refused.lines);
    // Terraform wraps its lines at the width of its terminal.
    assert!(refused.has("of string required"), "{:?}", refused.lines);
}

#[tokio::test]
async fn the_module_does_not_choose_where_its_state_is() {
    let mut room = TestRunner::new();
    let Some(subject) = terraform(&mut room) else { return };
    let elsewhere =
        |path: &str| format!("terraform {{\n  backend \"local\" {{ path = \"{path}\" }}\n}}");
    let mut ask = JobSpec {
        kind: JobKind::Plan,
        plugin: subject.plugin,
        artifacts: vec![room.artifact(&[("main.tf", &elsewhere("mine.tfstate"))])],
        inputs: json!({ "component": "web", "operation": "apply" }),
        plan: None,
        state: None,
    };
    let (ended, heard) = room.job(&ask).await;
    assert_eq!(ended.unwrap(), Outcome::Succeeded, "{:?}", heard.lines);

    let last = ("zzzzz_override.tf", elsewhere("mine.tfstate"));
    ask.artifacts = vec![room.artifact(&[("main.tf", ""), (last.0, &last.1)])];
    let (ended, heard) = room.job(&ask).await;
    let refusal = ended.map_err(|e| e.to_string()).unwrap_err();
    assert_eq!(
        refusal,
        "cannot use the module of web: it overrides the backend of its state; remove that override",
        "{:?}",
        heard.lines
    );
}

#[tokio::test]
async fn a_module_that_fails_says_why() {
    let mut room = TestRunner::new();
    let Some(subject) = terraform(&mut room) else { return };
    let broken = "resource \"terraform_data\" \"x\" {\n  provisioner \"local-exec\" {\n    command = \"exit 3\"\n  }\n}";
    let mut ask = JobSpec {
        kind: JobKind::Plan,
        plugin: subject.plugin,
        artifacts: vec![room.artifact(&[("main.tf", broken)])],
        inputs: json!({ "component": "web", "operation": "apply" }),
        plan: None,
        state: None,
    };
    let (ended, planned) = room.job(&ask).await;
    assert_eq!(ended.unwrap(), Outcome::Succeeded, "{:?}", planned.lines);
    (ask.kind, ask.plan) = (JobKind::Apply, Some(planned.plan.unwrap().digest));
    let (ended, applied) = room.job(&ask).await;
    let Outcome::Failed { exit_code, detail, .. } = ended.unwrap() else { panic!() };
    assert_eq!(exit_code, Some(1));
    assert!(detail.starts_with("apply (local-exec provisioner error)"), "{detail}");
    assert!(applied.has("exit status 3"), "{:?}", applied.lines);
}

#[tokio::test]
async fn what_the_config_no_longer_has_is_destroyed_from_its_state_alone() {
    let mut room = TestRunner::new();
    let Some(subject) = terraform(&mut room) else { return };
    let mut ask = JobSpec {
        kind: JobKind::Plan,
        plugin: subject.plugin,
        artifacts: vec![subject.artifact],
        inputs: (subject.inputs)("word"),
        plan: None,
        state: None,
    };
    for (artifacts, operation, resources) in [(1, "apply", 1), (0, "destroy", 0)] {
        ask.artifacts.truncate(artifacts);
        if operation == "destroy" {
            ask.inputs = json!({ "component": "web", "operation": "destroy", "vars": {} });
        }
        (ask.kind, ask.plan) = (JobKind::Plan, None);
        let (ended, planned) = room.job(&ask).await;
        assert_eq!(ended.unwrap(), Outcome::Succeeded, "{:?}", planned.lines);
        (ask.kind, ask.plan) = (JobKind::Apply, Some(planned.plan.unwrap().digest));
        let (ended, applied) = room.job(&ask).await;
        assert_eq!(ended.unwrap(), Outcome::Succeeded, "{:?}", applied.lines);
        let state = fs::read(room.at("state").join("web/terraform.tfstate")).unwrap();
        let state: serde_json::Value = serde_json::from_slice(&state).unwrap();
        assert_eq!(state["resources"].as_array().unwrap().len(), resources);
    }
}

/// Uses a provider that is not built in, from the source in the customer's configuration.
#[tokio::test]
async fn a_plan_is_applied_with_the_very_providers_that_made_it() {
    let mut room = TestRunner::new();
    let Some(subject) = terraform(&mut room) else { return };
    let Some(config) = mirror(&room) else {
        assert!(std::env::var_os("CI").is_none(), "CI must configure a mirror of providers");
        eprintln!("SKIPPED: TF_CLI_CONFIG_FILE names no mirror of providers");
        return;
    };
    for (name, value) in [
        ("TF_CLI_CONFIG_FILE", config.as_str()),
        ("AWS_ACCESS_KEY_ID", "nobody"),
        ("AWS_SECRET_ACCESS_KEY", "nothing"),
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:9"),
    ] {
        room.env.insert(name.into(), value.into());
    }
    let mut ask = JobSpec {
        kind: JobKind::Plan,
        plugin: subject.plugin,
        artifacts: vec![room.artifact(&[("main.tf", BUCKET)])],
        inputs: json!({ "component": "web", "operation": "apply" }),
        plan: None,
        state: None,
    };
    let (ended, planned) = room.job(&ask).await;
    assert_eq!(ended.unwrap(), Outcome::Succeeded, "{:?}", planned.lines);
    let plan = planned.plan.unwrap();
    assert_eq!(plan.summary["resources"][0]["address"], "aws_s3_bucket.web");
    let lock = ".terraform.lock.hcl";
    assert!(plan.summary["reads"]["beside"][lock].is_string(), "{}", plan.summary);

    let kept = room.at("plans").join(&plan.digest.to_string()[7..]).join("beside").join(lock);
    fs::write(kept, "").unwrap();
    (ask.kind, ask.plan) = (JobKind::Apply, Some(plan.digest));
    let (ended, _) = room.job(&ask).await;
    let refusal = ended.unwrap_err().to_string();
    assert_eq!(refusal, "the plan is stale: the plan on this runner is not the approved one");
}

/// Returns the configuration of the test environment, or one with Terraform's own plugin directory.
fn mirror(room: &TestRunner) -> Option<String> {
    let named = std::env::var("TF_CLI_CONFIG_FILE");
    if let Some(config) = named.ok().filter(|path| std::path::Path::new(path).is_file()) {
        return Some(config);
    }
    let plugins = std::path::PathBuf::from(std::env::var_os("HOME")?).join(".terraform.d/plugins");
    let text = format!(
        "provider_installation {{\n  filesystem_mirror {{\n    path = {:?}\n  }}\n}}\n",
        plugins.is_dir().then_some(plugins)?
    );
    let config = room.at("terraform.rc");
    fs::write(&config, text).unwrap();
    Some(config.display().to_string())
}

const BUCKET: &str = r#"
terraform {
  required_providers {
    aws = { source = "hashicorp/aws" }
  }
}

provider "aws" {
  region                      = "eu-west-1"
  skip_credentials_validation = true
  skip_metadata_api_check     = true
  skip_requesting_account_id  = true
}

resource "aws_s3_bucket" "web" {
  bucket = "web"
}
"#;
