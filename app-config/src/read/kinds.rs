//! Which kinds of component this release deploys, and what it says about the others.
use crate::{model::TERRAFORM_MODULE, tree::PluginPin};

/// Kinds of the format that a later release brings, and what they wait for.
const LATER: [(&str, &str); 8] = [
    ("helm_chart", "Kubernetes"),
    ("kubernetes_manifest", "Kubernetes"),
    ("docker_build", "container images"),
    ("container_image", "container images"),
    ("external_image", "container images"),
    ("pulumi", "Pulumi"),
    ("terraform_stack", "Terraform stacks"),
    ("opentofu_module", "OpenTofu"),
];

/// What is wrong with a kind: code, message, remedy.
pub type Refusal = (&'static str, String, String);

/// Whether a component of this kind can be deployed.
pub fn check(kind: &str, plugins: &[PluginPin]) -> Result<(), Refusal> {
    if kind == TERRAFORM_MODULE || plugins.iter().any(|plugin| plugin.name == kind) {
        return Ok(());
    }
    if kind == "job" {
        let message = "components of type `job` are no longer part of the format".to_string();
        return Err(("not_supported", message, "use an action".into()));
    }
    if let Some((_, what)) = LATER.iter().find(|(name, _)| *name == kind) {
        let message = format!(
            "components of type `{kind}` cannot be deployed yet: {what} support comes with a later \
             release"
        );
        let remedy = format!(
            "use a `{TERRAFORM_MODULE}`, or a plugin of yours named `{kind}` with --plugin {kind}=PATH"
        );
        return Err(("not_yet", message, remedy));
    }
    let message = format!("there is no component type `{kind}`");
    let remedy = if plugins.is_empty() {
        format!("use `{TERRAFORM_MODULE}`, or pin a plugin with --plugin {kind}=PATH")
    } else {
        let names: Vec<&str> = plugins.iter().map(|plugin| plugin.name.as_str()).collect();
        format!("use `{TERRAFORM_MODULE}` or a pinned plugin: {}", names.join(", "))
    };
    Err(("unknown_kind", message, remedy))
}
