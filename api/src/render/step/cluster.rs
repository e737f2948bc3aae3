//! Cluster of a step's job, from the outputs of the component that creates it.
//!
//! The server renders only what it knows: no credential, and no sensitive output. The runner finds
//! both in its own state.
use app_config::{
    model::{Action, Component, NEED_CLUSTER, TERRAFORM_MODULE},
    tree::SANDBOX,
};
use schemas::cluster::{ClusterInput, ClusterOutput, Platform};
use serde_json::Value;

use super::StepContext;

/// Types whose jobs use no cluster.
const USE_NO_CLUSTER: [&str; 5] =
    [TERRAFORM_MODULE, "container_image", "docker_build", "external_image", "pulumi"];

/// Returns whether the jobs of a component depend on the cluster of the sandbox.
pub(crate) fn depends_on_sandbox(config: &app_config::AppConfig, component: &Component) -> bool {
    let is_of_sandbox = config.cluster_of(component).is_none();
    is_of_sandbox && NEED_CLUSTER.contains(&component.module.kind.as_str())
}

impl StepContext {
    /// Returns the cluster of a component. `None` if its jobs use none.
    pub(super) fn component_cluster(&self, name: &str) -> Result<Option<ClusterInput>, String> {
        let Some(component) = self.config.app.component(name) else { return Ok(None) };
        let module = &component.module;
        if USE_NO_CLUSTER.contains(&module.kind.as_str()) {
            return Ok(None);
        }
        let required = NEED_CLUSTER.contains(&module.kind.as_str());
        self.cluster(module.options.kubernetes_context.as_deref(), required)
    }

    /// Returns the cluster of an action. `None` if it gets no kubeconfig.
    pub(super) fn action_cluster(&self, action: &Action) -> Result<Option<ClusterInput>, String> {
        match action.uses_cluster {
            true => self.cluster(action.kubernetes_context.as_deref(), false),
            false => Ok(None),
        }
    }

    fn cluster(
        &self,
        context: Option<&str>,
        required: bool,
    ) -> Result<Option<ClusterInput>, String> {
        let app = &self.config.app;
        let component = app.cluster_component(context).ok_or_else(|| {
            let context = context.unwrap_or_default();
            format!(
                "cannot find the cluster: kubernetes_contexts.toml has no kubernetes_context {context}"
            )
        })?;
        if component == SANDBOX && app.sandbox.is_none() && !required {
            return Ok(None);
        }
        let nuon = &self.nuon["nuon"];
        let owner = match component {
            SANDBOX => &nuon["sandbox"],
            name => &nuon["components"][name],
        };
        let output = output(&owner["outputs"]["cluster"]);
        let component = component.to_owned();
        Ok(Some(ClusterInput { component, required, platform: self.platform(), output }))
    }

    /// Returns the cloud of the install, from the types of the runner and the stack.
    fn platform(&self) -> Option<Platform> {
        let app = &self.config.app;
        let types = [
            app.runner.as_ref().map(|runner| runner.runner_type.as_str()),
            app.stack.as_ref().map(|stack| stack.stack_type.as_str()),
        ];
        let is_for = |cloud: &str| types.iter().flatten().any(|name| name.starts_with(cloud));
        let clouds = [("azure", Platform::Azure), ("gcp", Platform::Gcp), ("aws", Platform::Aws)];
        clouds.into_iter().find(|(name, _)| is_for(name)).map(|(_, platform)| platform)
    }
}

/// Returns the known members of an output `cluster`. A member that is no text is absent.
fn output(cluster: &Value) -> ClusterOutput {
    let text = |key: &str| {
        let text = cluster[key].as_str().filter(|text| !text.is_empty());
        text.map(str::to_owned)
    };
    ClusterOutput {
        name: text("name"),
        endpoint: text("endpoint"),
        certificate_authority_data: text("certificate_authority_data"),
        arn: text("arn"),
    }
}
