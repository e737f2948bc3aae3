//! Sets up a module for Terraform: its backend, its variables and its environment.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{lock, tool::Tool};
use crate::plugins::{
    contract::{PluginError, Sink},
    plugin::{Halt, Work},
    process::{self, ChildSpec, Code},
    work::write_private,
};
use crate::{data, state::Backend};

/// File that pins the providers of a plan.
pub(super) const LOCK_FILE: &str = ".terraform.lock.hcl";
/// Override file for the backend. Terraform reads override files in the order of their names, and
/// the last one wins.
const OVERRIDE_FILE: &str = "zzzz_stead_override.tf.json";
/// Shell script that makes state and plan private, whatever mode the tool requests.
const UMASK_SCRIPT: &str = r#"umask 077; exec "$0" "$@""#;

/// Module, and the tool that validates, plans or applies it.
pub(super) struct Workspace<'w> {
    pub work: &'w Work<'w>,
    pub tool: &'w Tool,
    /// Backend of the state. Absent for a build, which uses no state.
    pub backend: Option<&'w Backend>,
}

/// Returns the arguments of `init`. If the artifact has a lock file, `init` must not select other
/// providers.
fn init_arguments(source: &Path, tool: &Tool) -> Vec<String> {
    let mut arguments = ["init", "-input=false", "-no-color"].map(String::from).to_vec();
    let file = source.join(LOCK_FILE);
    // A file that is not text is one of the module's author, and `init` rejects it.
    if file.exists() && lock::binds(&fs::read_to_string(file).unwrap_or_default(), tool) {
        arguments.push("-lockfile=readonly".into());
    }
    arguments
}

impl Workspace<'_> {
    /// Runs `terraform init` with the runner's backend, which replaces the module's.
    pub(super) async fn init(&self, sink: &mut dyn Sink) -> Result<(), Halt> {
        sink.phase("init");
        // The settings are variables of the environment. Terraform copies settings from files into
        // saved plans, and the job that applies a plan has another backend.
        let backend = json!({ "terraform": { "backend": { "http": {} } } });
        write_private(&self.work.source.join(OVERRIDE_FILE), backend.to_string().as_bytes())?;
        let spec = self.spec(init_arguments(&self.work.source, self.tool));
        let ended = process::run(&spec, self.work, sink, |sink, stream, line| {
            sink.line(stream, line);
        });
        ended.await?.require_success("init")?;
        self.check_backend()
    }

    /// Refuses a module with an override file that Terraform reads after the runner's. Terraform
    /// would store the state of such a module elsewhere.
    fn check_backend(&self) -> Result<(), Halt> {
        let path = self.data_dir().join("terraform.tfstate");
        let read: Value = data::read_without_links(&path)
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default();
        let backend = &read["backend"];
        let is_unset = |config: &Value| {
            config.as_object().is_some_and(|config| config.values().all(Value::is_null))
        };
        if backend["type"] == "http" && is_unset(&backend["config"]) {
            return Ok(());
        }
        let refusal = format!(
            "cannot use the module of {}: it overrides the backend of its state; remove that override",
            self.work.name
        );
        Err(PluginError::Refused(refusal).into())
    }

    /// Writes the variable files and returns their arguments. The app's variables come first, as
    /// JSON, then the app's variable files in their order.
    ///
    /// Terraform takes the later of two values, so a file overrides the variables. From JSON,
    /// Terraform converts a string to a bool or a number, but never to a list.
    pub(super) fn write_variables(&self) -> Result<Vec<String>, Halt> {
        let inputs = &self.work.manifest.inputs;
        let mut args = Vec::new();
        if let Some(vars) = inputs["vars"].as_object().filter(|vars| !vars.is_empty()) {
            let text = Value::Object(vars.clone()).to_string();
            args.push(self.variable_file("vars.tfvars.json", &text)?);
        }
        let files = inputs["var_files"].as_array().map(Vec::as_slice).unwrap_or_default();
        for (index, file) in files.iter().enumerate() {
            let text = file.as_str().ok_or_else(|| {
                PluginError::Refused(format!(
                    "cannot plan: variable file {} in the manifest is not a string",
                    index + 1
                ))
            })?;
            let kind = if text.trim_start().starts_with('{') { ".json" } else { "" };
            args.push(self.variable_file(&format!("{index}.tfvars{kind}"), text)?);
        }
        Ok(args)
    }

    fn variable_file(&self, name: &str, text: &str) -> Result<String, Halt> {
        let path = self.work.job.work_dir.join(name);
        write_private(&path, text.as_bytes())?;
        Ok(format!("-var-file={}", path.display()))
    }

    /// Builds a command of the tool, in the module's directory.
    pub(super) fn spec(&self, args: Vec<String>) -> ChildSpec {
        let mut env: BTreeMap<String, String> = [
            ("TF_IN_AUTOMATION", "1"),
            ("TF_INPUT", "0"),
            ("CHECKPOINT_DISABLE", "1"),
            // These variables could lead to a plan that does not match this manifest.
            ("TF_WORKSPACE", "default"),
            ("TF_CLI_ARGS", ""),
            ("TF_CLI_ARGS_init", ""),
            ("TF_CLI_ARGS_plan", ""),
            ("TF_CLI_ARGS_apply", ""),
            ("TF_CLI_ARGS_show", ""),
            ("TF_CLI_ARGS_output", ""),
            ("TF_CLI_ARGS_validate", ""),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
        env.insert("TF_DATA_DIR".into(), self.data_dir().display().to_string());
        env.extend(self.backend.into_iter().flat_map(Backend::env));
        // The customer's own configuration (mirrors, credentials) is used unchanged. Without one,
        // `/dev/null` keeps the tool from reading a configuration in a home directory.
        if !self.work.environment().contains_key("TF_CLI_CONFIG_FILE") {
            env.insert("TF_CLI_CONFIG_FILE".into(), "/dev/null".into());
        }
        let mut words =
            vec!["-c".into(), UMASK_SCRIPT.into(), self.tool.path.clone().into_os_string()];
        words.extend(args.into_iter().map(Into::into));
        ChildSpec {
            program: "/bin/sh".into(),
            args: words,
            dir: self.work.source.clone(),
            env,
            // The signal of a keyboard interrupt: providers ignore it, so Terraform can finish what
            // it began.
            stop: Signal::SIGINT,
            limit: None,
            code: Code::Job,
        }
    }

    fn data_dir(&self) -> PathBuf {
        self.work.job.work_dir.join("terraform-data")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pentest_a_lock_file_of_the_artifact_is_not_changed_by_init() {
        let dir = tempfile::tempdir().unwrap();
        let readonly = "-lockfile=readonly".to_owned();
        let tool = Tool::for_test;
        assert!(!init_arguments(dir.path(), &tool("terraform")).contains(&readonly));
        let pinned = "provider \"registry.terraform.io/hashicorp/null\" {\n}\n";
        let of_build = format!("# Written by a build of Stead\n{pinned}");
        for (lock, name, is_bound) in [
            ("", "terraform", true),
            (pinned, "tofu", true),
            (of_build.as_str(), "terraform", true),
            (of_build.as_str(), "tofu", false),
        ] {
            fs::write(dir.path().join(LOCK_FILE), lock).unwrap();
            let arguments = init_arguments(dir.path(), &tool(name));
            assert_eq!(arguments.contains(&readonly), is_bound, "{name} {lock}");
        }
    }
}
