//! Inputs, environment and role of a component or the sandbox.
use app_config::{
    Origin, Text,
    model::{Module, RolePurpose, Spec, TERRAFORM_MODULE},
    tree::SANDBOX,
};
use domain::run::{Operation, RunKind};
use schemas::cluster::CLUSTER_INPUT;
use serde_json::{Value, json};

use super::{ManifestParts, StepContext};
use crate::render::manifest::{DEFAULT_DEADLINE_MS, MAX_DEADLINE_MS};

impl StepContext {
    pub(super) fn module(
        &self,
        name: &str,
        module: &Module,
        operation: Operation,
    ) -> Result<ManifestParts, String> {
        let mut env = self.runner_env()?;
        env.extend(self.texts(&module.env_vars)?);
        let vars = self.texts(&module.vars)?;
        let var_files: Vec<String> =
            module.var_files.iter().map(|text| self.text(text)).collect::<Result<_, _>>()?;
        let mut inputs = json!({
            "component": name,
            "operation": operation_text(operation),
            "vars": vars,
            "var_files": var_files,
        });
        // A component's deploy timeout has precedence over its general timeout, for every
        // operation.
        let options = &module.options;
        let deadline_ms = options.deploy_timeout_ms.or(options.timeout_ms);
        let deadline_ms =
            deadline_ms.map_or(DEFAULT_DEADLINE_MS, |own| own.clamp(1000, MAX_DEADLINE_MS));
        match (&module.spec, module.own_settings()) {
            (Spec::KubernetesManifest(manifest), _) => {
                inputs["settings"] = self.kubernetes_manifest(manifest, deadline_ms)?;
            }
            (Spec::HelmChart(chart), _) => {
                inputs["settings"] = self.helm_chart(chart, deadline_ms)?;
            }
            // The build copied the image, so its settings are those of the artifact.
            (Spec::Image(_), _) => {
                if let Some(registry) = registry(&self.nuon["nuon"]["sandbox"]["outputs"]) {
                    inputs["registry"] = registry;
                }
            }
            (_, Some(own)) => inputs["settings"] = self.rendered(&own)?,
            (_, None) => {
                let version = module.terraform_version.clone().unwrap_or_default();
                inputs["terraform_version"] = json!(version);
            }
        }
        if module.kind != TERRAFORM_MODULE {
            inputs["install"] = json!(self.install);
        }
        if let Some(cluster) = self.component_cluster(name)? {
            inputs[CLUSTER_INPUT] = json!(cluster);
        }
        // Without `present`, a runner that has lost the state would plan as if the target did not
        // exist.
        if self.is_provisioned {
            inputs["present"] = json!(true);
        }
        let plugin = self.plugin(&module.kind);
        let role = self.module_role(name, module, operation)?;
        Ok(ManifestParts { plugin, inputs, env, role, deadline_ms })
    }

    /// Returns the role of an operation. The component's role for this operation has precedence
    /// over a rule in `operation_roles.toml`. Otherwise, the component's role for all operations or
    /// the app's default role applies.
    fn module_role(
        &self,
        name: &str,
        module: &Module,
        operation: Operation,
    ) -> Result<Option<String>, String> {
        let is_sandbox = name == SANDBOX;
        let (purpose, operation_name) = match operation {
            Operation::Destroy if is_sandbox => (RolePurpose::Deprovision, "deprovision"),
            Operation::Destroy => (RolePurpose::Deprovision, "teardown"),
            Operation::Apply | Operation::Execute | Operation::Check if is_sandbox => {
                let again = self.request.kind == RunKind::Reprovision;
                (RolePurpose::Provision, if again { "reprovision" } else { "provision" })
            }
            Operation::Apply | Operation::Execute | Operation::Check => {
                (RolePurpose::Maintenance, "deploy")
            }
        };
        let by_operation = module.settings["operation_roles"].as_array().into_iter().flatten();
        let mut by_operation = by_operation
            .filter(|role| role["operation"] == operation_name && role.get("principal").is_none())
            .map(|role| &role["role"]);
        let named = |role: Option<&Value>| {
            let named = role.and_then(Value::as_str).filter(|named| !named.is_empty());
            named.map(|named| Text { value: named.to_owned(), origin: Origin::default() })
        };
        let principal =
            if is_sandbox { "nuon::sandbox".to_owned() } else { format!("nuon::component:{name}") };
        let role = named(by_operation.next())
            .or_else(|| self.ruled_role(&principal, operation_name).cloned())
            .or_else(|| named(module.settings.get("role")));
        match role {
            Some(role) => Ok(Some(self.text(&role)?)),
            None => self.role(purpose),
        }
    }

    /// Role in `operation_roles.toml` for an operation of the sandbox, a component or an action.
    pub(super) fn ruled_role(&self, principal: &str, operation: &str) -> Option<&Text> {
        let mut rules = self.config.app.operation_roles.iter().flat_map(|roles| &roles.rules);
        let rule = rules.find(|rule| {
            rule.principal.as_deref() == Some(principal) && rule.operation == operation
        });
        rule.map(|rule| &rule.role)
    }

    /// Renders every text in a plugin's settings, at any depth.
    pub(super) fn rendered(&self, settings: &Value) -> Result<Value, String> {
        Ok(match settings {
            Value::String(value) => {
                let text = Text { value: value.clone(), origin: Origin::default() };
                Value::String(self.text(&text)?)
            }
            Value::Array(items) => {
                items.iter().map(|item| self.rendered(item)).collect::<Result<_, _>>()?
            }
            Value::Object(fields) => {
                let rendered =
                    |(key, value): (&String, &Value)| Ok((key.clone(), self.rendered(value)?));
                Value::Object(fields.iter().map(rendered).collect::<Result<_, String>>()?)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => settings.clone(),
        })
    }
}

/// Returns the registry that the outputs of a sandbox name. A repository of ECR is one for all images, and
/// the other clouds create repositories as needed.
fn registry(outputs: &Value) -> Option<Value> {
    let text = |cloud: &str, key: &str| {
        let text = outputs[cloud][key].as_str().filter(|text| !text.is_empty());
        text.map(|text| text.trim_start_matches("https://").trim_end_matches('/').to_owned())
    };
    let prefix = || text("acr", "login_server").or_else(|| text("gar", "repository_url"));
    match text("ecr", "repository_url") {
        Some(repository) => Some(json!({ "repository": repository })),
        None => prefix().map(|prefix| json!({ "prefix": prefix })),
    }
}

fn operation_text(operation: Operation) -> &'static str {
    match operation {
        Operation::Apply => "apply",
        Operation::Destroy => "destroy",
        Operation::Execute => "execute",
        Operation::Check => "check",
    }
}
