//! Tests of Terraform's specifics: its tool, its state file, its sensitive outputs, its backend.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use runner_agent::plugins::{Outcome, PluginError};
use schemas::{manifest::PluginRef, runner::JobKind};
use serde_json::json;

use super::{
    subjects::terraform,
    test_runner::{JobRecord, JobSpec, TestRunner},
};

#[tokio::test]
async fn a_missing_tool_is_refused_with_its_installation() {
    let mut runner = TestRunner::new();
    runner.env.insert("PATH".into(), "/nonexistent".into());
    let plugin = PluginRef {
        name: "terraform_module".into(),
        version: "1".into(),
        digest: None,
        artifact: None,
    };
    let inputs = json!({ "component": "web", "operation": "apply" });
    let spec =
        JobSpec { kind: JobKind::Plan, plugin, artifacts: vec![], inputs, plan: None, state: None };
    match runner.job(&spec).await.0 {
        Err(PluginError::ToolMissing(remedy)) => assert!(remedy.contains("install Terraform")),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn sensitive_outputs_are_only_reported_encrypted_and_the_state_is_private() {
    let mut runner = TestRunner::new();
    let Some(subject) = terraform(&mut runner) else { return };
    let mut spec = JobSpec {
        kind: JobKind::Plan,
        plugin: subject.plugin,
        artifacts: vec![subject.artifact],
        inputs: (subject.inputs)("word"),
        plan: None,
        state: None,
    };
    let (result, planned) = runner.job(&spec).await;
    assert_eq!(result.unwrap(), Outcome::Succeeded, "{:?}", planned.lines);
    let plan = planned.plan.as_ref().unwrap();
    assert!(plan.tool.starts_with("terraform 1."), "{}", plan.tool);
    assert_eq!(plan.summary["resources"][0]["address"], "terraform_data.web");
    (spec.kind, spec.plan) = (JobKind::Apply, Some(plan.digest.clone()));
    let (result, applied) = runner.job(&spec).await;
    assert_eq!(result.unwrap(), Outcome::Succeeded, "{:?}", applied.lines);
    assert_eq!(applied.sensitive["password"], "hunter2 word");
    assert!(!applied.outputs.as_ref().unwrap().contains_key("password"));
    for record in [&planned, &applied] {
        assert!(!record.has("hunter2"), "{:?}", record.lines);
    }
    assert!(applied.phases.contains(&"terraform_data.web".to_owned()), "{:?}", applied.phases);
    // The password is in the state, and in no file in clear.
    assert_eq!(runner.state()["outputs"]["password"]["value"], "hunter2 word");
    for dir in ["state", "plans"] {
        for file in files(&runner.at(dir)) {
            assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
            let bytes = fs::read(&file).unwrap();
            assert!(!bytes.windows(7).any(|part| part == b"hunter2"), "{}", file.display());
        }
    }
}

#[tokio::test]
async fn an_apply_that_moves_the_state_of_an_earlier_version_is_planned_again() {
    let mut runner = TestRunner::new();
    let Some(subject) = terraform(&mut runner) else { return };
    let spec = |kind: JobKind, text: &str, plan: Option<&JobRecord>| JobSpec {
        kind,
        plugin: subject.plugin.clone(),
        artifacts: vec![subject.artifact.clone()],
        inputs: (subject.inputs)(text),
        plan: plan.map(|planned| planned.plan.as_ref().unwrap().digest.clone()),
        state: None,
    };
    let (_, planned) = runner.job(&spec(JobKind::Plan, "one", None)).await;
    let (result, applied) = runner.job(&spec(JobKind::Apply, "one", Some(&planned))).await;
    assert_eq!(result.unwrap(), Outcome::Succeeded, "{:?}", applied.lines);
    let (_, waiting) = runner.job(&spec(JobKind::Plan, "two", None)).await;
    // Given a plan that waits, and the state in the file of an earlier version.
    let (state, dir) = (runner.store().read().unwrap().unwrap(), runner.at("state/web"));
    fs::remove_dir(dir.join("terraform.tfstate")).unwrap();
    fs::write(dir.join("terraform.tfstate"), &*state).unwrap();
    fs::remove_file(dir.join("state.encrypted")).unwrap();
    match runner.job(&spec(JobKind::Apply, "two", Some(&waiting))).await.0 {
        Err(PluginError::PlanStale(why)) => assert!(why.contains("was moved"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert!(dir.join("terraform.tfstate.moved").exists());
    let (result, planned) = runner.job(&spec(JobKind::Plan, "two", None)).await;
    assert_eq!(result.unwrap(), Outcome::Succeeded, "{:?}", planned.lines);
    let (result, applied) = runner.job(&spec(JobKind::Apply, "two", Some(&planned))).await;
    assert_eq!(result.unwrap(), Outcome::Succeeded, "{:?}", applied.lines);
}

/// Returns all files below a directory.
fn files(dir: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Every variable of an app is a string. Terraform converts it to a bool or a number, but not to a
/// list, and does not evaluate it as an expression. A variables file of the app takes precedence.
#[tokio::test]
async fn variable_files_override_the_apps_variables() {
    let mut runner = TestRunner::new();
    let Some(subject) = terraform(&mut runner) else { return };
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
    let mut spec = JobSpec {
        kind: JobKind::Plan,
        plugin: subject.plugin,
        artifacts: vec![runner.artifact(&[("main.tf", module)])],
        inputs: json!({
            "component": "web", "operation": "apply", "vars": vars, "terraform_version": "",
            "var_files": ["many = [\"x\"]\nboth = \"file\"", "{\"both\": \"last file\"}"],
        }),
        plan: None,
        state: None,
    };
    let (result, planned) = runner.job(&spec).await;
    assert_eq!(result.unwrap(), Outcome::Succeeded, "{:?}", planned.lines);
    let digest = planned.plan.as_ref().unwrap().digest.clone();
    (spec.kind, spec.plan) = (JobKind::Apply, Some(digest));
    let (result, applied) = runner.job(&spec).await;
    assert_eq!(result.unwrap(), Outcome::Succeeded, "{:?}", applied.lines);
    let values = &applied.outputs.as_ref().unwrap()["seen"];
    assert_eq!(values, r#"[true,3,"[a, b]",["x"],"last file"]"#);

    (spec.kind, spec.plan) = (JobKind::Plan, None);
    spec.inputs["vars"]["many"] = json!("[\"x\"]");
    spec.inputs["var_files"] = json!([]);
    let (result, replanned) = runner.job(&spec).await;
    assert!(matches!(result, Ok(Outcome::Failed { .. })), "{:?}", replanned.lines);
    // Terraform wraps its lines at the width of its terminal.
    assert!(replanned.has("of string required"), "{:?}", replanned.lines);
}

#[tokio::test]
async fn the_module_cannot_change_the_state_backend() {
    let mut runner = TestRunner::new();
    let Some(subject) = terraform(&mut runner) else { return };
    let with_backend =
        |path: &str| format!("terraform {{\n  backend \"local\" {{ path = \"{path}\" }}\n}}");
    let mut spec = JobSpec {
        kind: JobKind::Plan,
        plugin: subject.plugin,
        artifacts: vec![runner.artifact(&[("main.tf", &with_backend("mine.tfstate"))])],
        inputs: json!({ "component": "web", "operation": "apply" }),
        plan: None,
        state: None,
    };
    let (result, record) = runner.job(&spec).await;
    assert_eq!(result.unwrap(), Outcome::Succeeded, "{:?}", record.lines);

    let last = ("zzzzz_override.tf", with_backend("mine.tfstate"));
    spec.artifacts = vec![runner.artifact(&[("main.tf", ""), (last.0, &last.1)])];
    let (result, record) = runner.job(&spec).await;
    let refusal = result.map_err(|e| e.to_string()).unwrap_err();
    assert_eq!(
        refusal,
        "cannot use the module of web: it overrides the backend of its state; remove that override",
        "{:?}",
        record.lines
    );
}

#[tokio::test]
async fn a_failed_apply_reports_the_error_of_terraform() {
    let mut runner = TestRunner::new();
    let Some(subject) = terraform(&mut runner) else { return };
    let broken = "resource \"terraform_data\" \"x\" {\n  provisioner \"local-exec\" {\n    command = \"exit 3\"\n  }\n}";
    let mut spec = JobSpec {
        kind: JobKind::Plan,
        plugin: subject.plugin,
        artifacts: vec![runner.artifact(&[("main.tf", broken)])],
        inputs: json!({ "component": "web", "operation": "apply" }),
        plan: None,
        state: None,
    };
    let (result, planned) = runner.job(&spec).await;
    assert_eq!(result.unwrap(), Outcome::Succeeded, "{:?}", planned.lines);
    (spec.kind, spec.plan) = (JobKind::Apply, Some(planned.plan.unwrap().digest));
    let (result, applied) = runner.job(&spec).await;
    let Outcome::Failed { exit_code, detail, .. } = result.unwrap() else { panic!() };
    assert_eq!(exit_code, Some(1));
    assert!(detail.starts_with("apply (local-exec provisioner error)"), "{detail}");
    assert!(applied.has("exit status 3"), "{:?}", applied.lines);
}

#[tokio::test]
async fn a_removed_component_is_destroyed_without_its_source() {
    let mut runner = TestRunner::new();
    let Some(subject) = terraform(&mut runner) else { return };
    let mut spec = JobSpec {
        kind: JobKind::Plan,
        plugin: subject.plugin,
        artifacts: vec![subject.artifact],
        inputs: (subject.inputs)("word"),
        plan: None,
        state: None,
    };
    for (artifacts, operation, resources) in [(1, "apply", 1), (0, "destroy", 0)] {
        spec.artifacts.truncate(artifacts);
        if operation == "destroy" {
            spec.inputs = json!({ "component": "web", "operation": "destroy", "vars": {} });
        }
        (spec.kind, spec.plan) = (JobKind::Plan, None);
        let (result, planned) = runner.job(&spec).await;
        assert_eq!(result.unwrap(), Outcome::Succeeded, "{:?}", planned.lines);
        (spec.kind, spec.plan) = (JobKind::Apply, Some(planned.plan.unwrap().digest));
        let (result, applied) = runner.job(&spec).await;
        assert_eq!(result.unwrap(), Outcome::Succeeded, "{:?}", applied.lines);
        assert_eq!(runner.state()["resources"].as_array().unwrap().len(), resources);
    }
}

/// Uses a provider that is not built in, from the source in the customer's configuration.
#[tokio::test]
async fn a_plan_with_another_provider_lock_is_stale() {
    let mut runner = TestRunner::new();
    let Some(subject) = terraform(&mut runner) else { return };
    let Some(config) = mirror(&runner) else {
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
        runner.env.insert(name.into(), value.into());
    }
    let mut spec = JobSpec {
        kind: JobKind::Plan,
        plugin: subject.plugin,
        artifacts: vec![runner.artifact(&[("main.tf", BUCKET)])],
        inputs: json!({ "component": "web", "operation": "apply" }),
        plan: None,
        state: None,
    };
    let (result, planned) = runner.job(&spec).await;
    assert_eq!(result.unwrap(), Outcome::Succeeded, "{:?}", planned.lines);
    let plan = planned.plan.unwrap();
    assert_eq!(plan.summary["resources"][0]["address"], "aws_s3_bucket.web");
    let lock = ".terraform.lock.hcl";
    assert!(plan.summary["reads"]["beside"][lock].is_string(), "{}", plan.summary);

    let kept = runner.at("plans").join(&plan.digest.to_string()[7..]).join("beside").join(lock);
    fs::write(kept, "").unwrap();
    (spec.kind, spec.plan) = (JobKind::Apply, Some(plan.digest));
    let (result, _) = runner.job(&spec).await;
    let refusal = result.unwrap_err().to_string();
    assert_eq!(refusal, "the plan is stale: the plan on this runner is not the approved one");
}

/// Returns the configuration of the test environment, or one with Terraform's own plugin directory.
fn mirror(runner: &TestRunner) -> Option<String> {
    let path = std::env::var("TF_CLI_CONFIG_FILE");
    if let Some(config) = path.ok().filter(|path| std::path::Path::new(path).is_file()) {
        return Some(config);
    }
    let plugins = std::path::PathBuf::from(std::env::var_os("HOME")?).join(".terraform.d/plugins");
    let text = format!(
        "provider_installation {{\n  filesystem_mirror {{\n    path = {:?}\n  }}\n}}\n",
        plugins.is_dir().then_some(plugins)?
    );
    let config = runner.at("terraform.rc");
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
