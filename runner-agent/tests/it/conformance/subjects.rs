//! Plugins that run the scenario.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
};

use schemas::manifest::{ArtifactRef, PluginRef};
use serde_json::{Map, Value, json};

use super::test_runner::TestRunner;

/// Plugin with a component. `text` is the value that a deploy sets.
pub struct Subject {
    pub plugin: PluginRef,
    pub artifact: ArtifactRef,
    pub inputs: fn(&str) -> Value,
    /// Returns the deployed value from the outputs.
    pub deployed_value: fn(&Map<String, Value>) -> Option<String>,
    /// Text in the output of a slow apply before its end.
    pub text_during_apply: &'static str,
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
    Some(Subject {
        plugin,
        artifact: runner.artifact(&[("main.tf", MODULE)]),
        inputs: |text| {
            json!({
                "component": "web",
                "operation": "apply",
                "vars": { "text": text },
                "var_files": ["pause = \"0\"", "{\"unused_elsewhere\": \"x\"}"],
                "terraform_version": "",
            })
        },
        deployed_value: |outputs| Some(outputs.get("text")?.as_str()?.to_owned()),
        text_during_apply: "in the middle",
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

/// Returns the example plugin, after building it.
pub fn files(runner: &mut TestRunner) -> Subject {
    files_of(runner, "stead-plugin-files")
}

/// Builds and returns the frozen example plugin of protocol version 1.
pub fn files_v1(runner: &mut TestRunner) -> Subject {
    files_of(runner, "frozen-plugin-v1")
}

fn files_of(runner: &mut TestRunner, package: &str) -> Subject {
    runner.env.insert("STEAD_FILES_ROOT".into(), runner.at("account").display().to_string());
    runner.env.insert("STEAD_LEDGER".into(), runner.at("ledger").display().to_string());
    Subject {
        plugin: runner.plugin("files", &built(package)),
        artifact: runner.artifact(&[("static/robots.txt", "none")]),
        inputs: |text| json!({ "component": "web", "operation": "apply", "vars": { "motd.txt": text } }),
        deployed_value: |outputs| {
            let root = PathBuf::from(outputs.get("root")?.as_str()?);
            outputs.get("files")?.get("motd.txt")?;
            std::fs::read_to_string(root.join("motd.txt")).ok()
        },
        text_during_apply: "created",
    }
}

/// Builds the executable of a package of this workspace in the profile of this test.
fn built(package: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile_dir = test.parent().unwrap().parent().unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--package", package, "--target-dir"]);
    cargo.arg(profile_dir.parent().unwrap()).current_dir(env!("CARGO_MANIFEST_DIR"));
    if profile_dir.ends_with("release") {
        cargo.arg("--release");
    }
    assert!(cargo.status().unwrap().success(), "{package} does not build");
    profile_dir.join(package)
}
