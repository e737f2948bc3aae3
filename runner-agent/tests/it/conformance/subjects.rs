//! Plugins that run the scenario.

use std::{
    any::Any,
    collections::BTreeMap,
    path::PathBuf,
    process::{Command, Stdio},
};

use schemas::manifest::{ArtifactRef, PluginRef};
use serde_json::{Map, Value, json};

use super::test_runner::TestRunner;

/// Function that reads one value from the outputs of a job.
type ReadOutputs = dyn Fn(&Map<String, Value>) -> Option<String>;

/// Plugin with a component.
pub struct Subject {
    pub plugin: PluginRef,
    pub artifact: ArtifactRef,
    /// Returns the inputs that set this value.
    pub inputs: Box<dyn Fn(&str) -> Value>,
    /// Inputs and further environment variables of an apply that does not end within 20 seconds.
    pub slow: Value,
    pub slow_env: BTreeMap<String, String>,
    /// Returns the deployed value from the outputs.
    pub deployed_value: Box<ReadOutputs>,
    /// Text in the output of a slow apply before its end.
    pub text_during_apply: String,
    /// True if the state directory contains the state, false if it is elsewhere.
    pub state_on_host: bool,
    /// Namespace in a cluster, deleted with the subject.
    pub _cluster: Option<Box<dyn Any>>,
}

/// Returns real Terraform, or `None` with a message. Under CI a missing Terraform is a failure.
pub fn terraform(runner: &mut TestRunner) -> Option<Subject> {
    let path = std::env::var("PATH").unwrap_or_default();
    let is_installed =
        |tool| Command::new(tool).arg("version").stderr(Stdio::null()).output().is_ok();
    if !["terraform", "tofu"].into_iter().any(is_installed) {
        assert!(std::env::var_os("CI").is_none(), "CI must have terraform or tofu on its PATH");
        eprintln!("SKIPPED: no terraform or tofu on PATH, so terraform_module is NOT tested");
        return None;
    }
    runner.env.insert("PATH".into(), path);
    let plugin = PluginRef {
        name: "terraform_module".into(),
        version: "1".into(),
        digest: None,
        artifact: None,
    };
    let inputs = |text: &str, pause: u32| {
        json!({
            "component": "web",
            "operation": "apply",
            "vars": { "text": text },
            "var_files": [format!("pause = \"{pause}\""), "{\"unused_elsewhere\": \"x\"}"],
            "terraform_version": "",
        })
    };
    Some(Subject {
        plugin,
        artifact: runner.artifact(&[("main.tf", MODULE)]),
        inputs: Box::new(move |text| inputs(text, 0)),
        slow: inputs("one", 30),
        slow_env: BTreeMap::new(),
        deployed_value: Box::new(|outputs| Some(outputs.get("text")?.as_str()?.to_owned())),
        text_during_apply: "in the middle".into(),
        state_on_host: true,
        _cluster: None,
    })
}

const MODULE: &str = r#"
variable "text" { type = string }
variable "pause" { default = "0" }
variable "unused_elsewhere" { default = "" }

resource "terraform_data" "web" {
  input            = var.text
  triggers_replace = [var.pause]
  provisioner "local-exec" {
    command = "echo in the middle; sleep ${var.pause}"
  }
}

output "text" { value = terraform_data.web.output }
output "password" {
  value     = "hunter2 ${terraform_data.web.output}"
  sensitive = true
}
"#;

/// Returns the example plugin.
pub fn files(runner: &mut TestRunner) -> Subject {
    files_of(runner, "stead-plugin-files")
}

/// Returns the frozen example plugin of protocol version 1.
pub fn files_v1(runner: &mut TestRunner) -> Subject {
    files_of(runner, "frozen-plugin-v1")
}

fn files_of(runner: &mut TestRunner, package: &str) -> Subject {
    runner.env.insert("STEAD_FILES_ROOT".into(), runner.at("account").display().to_string());
    runner.env.insert("STEAD_LEDGER".into(), runner.at("ledger").display().to_string());
    let inputs = |text: &str| json!({ "component": "web", "operation": "apply", "vars": { "motd.txt": text } });
    Subject {
        plugin: runner.plugin("files", &built(package)),
        artifact: runner.artifact(&[("static/robots.txt", "none")]),
        inputs: Box::new(inputs),
        slow: inputs("one"),
        slow_env: [("STEAD_FILES_PAUSE_MS".into(), "30000".into())].into(),
        deployed_value: Box::new(|outputs| {
            let root = PathBuf::from(outputs.get("root")?.as_str()?);
            outputs.get("files")?.get("motd.txt")?;
            std::fs::read_to_string(root.join("motd.txt")).ok()
        }),
        text_during_apply: "created".into(),
        state_on_host: true,
        _cluster: None,
    }
}

/// Returns the executable of a package, as `cargo build` built it in the profile of this test.
pub fn built(package: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.ancestors().nth(2).unwrap().join(package);
    assert!(program.exists(), "{package} is not built: cargo build --workspace --bins");
    program
}
