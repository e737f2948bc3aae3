//! Scripts: `actions/**/*.toml`, `runbooks/*.toml`.
use super::*;

/// A script with triggers.
#[derive(JsonSchema)]
pub struct Action {
    name: String,
    display_name: Option<String>,
    description: Option<String>,
    /// Timeout, up to `60m`. The default is `5m`.
    timeout: Option<String>,
    triggers: Option<Vec<Trigger>>,
    steps: Vec<Step>,
    dependencies: Option<Vec<String>>,
    /// Requested role. May be a template.
    role: Option<String>,
    break_glass_role: Option<String>,
    enable_kube_config: Option<Flag>,
    kubernetes_context: Option<String>,
    inputs: Option<Vec<ActionInput>>,
    max_auto_retries: Option<i64>,
    labels: Option<Values>,
    label: Option<String>,
}

/// Event or schedule that starts the action, or permission to start it manually.
#[derive(JsonSchema)]
pub struct Trigger {
    /// Type of the trigger: `manual`, `cron`, `post-provision`, `post-deploy-component`, …
    #[serde(rename = "type")]
    kind: String,
    /// Cron expression of a cron trigger: minute, hour, day, month, weekday.
    cron_schedule: Option<String>,
    /// Component of a component trigger. The default is every component.
    component_name: Option<String>,
    component: Option<String>,
    /// Order among actions with the same trigger, lowest first.
    index: Option<i64>,
}

/// One script: a `command` in a repository, or `inline_contents`.
#[derive(JsonSchema)]
pub struct Step {
    name: String,
    description: Option<String>,
    /// Command in the step's repository. May be a template.
    command: Option<String>,
    /// Script, or `./file` for the text of a file. May be a template.
    inline_contents: Option<String>,
    env_vars: Option<Values>,
    public_repo: Option<Repo>,
    connected_repo: Option<Repo>,
    enable_kube_config: Option<Flag>,
    labels: Option<Values>,
}

/// Input that a user provides when they start the action.
#[derive(JsonSchema)]
pub struct ActionInput {
    name: String,
    description: Option<String>,
    required: Option<Flag>,
    default: Option<Scalar>,
}

/// An ordered list of actions and deploys.
#[derive(JsonSchema)]
pub struct Runbook {
    name: String,
    display_name: Option<String>,
    description: Option<String>,
    /// Text, or `./file` for the text of a file. May be a template.
    readme: Option<String>,
    steps: Option<Vec<RunbookStep>>,
    labels: Option<Values>,
    label: Option<String>,
}

#[derive(JsonSchema)]
pub struct RunbookStep {
    name: Option<String>,
    description: Option<String>,
    /// Type of the step: `action`, `component_deploy`, …
    #[serde(rename = "type")]
    kind: String,
    action_name: Option<String>,
    component_name: Option<String>,
    command: Option<String>,
    inline_contents: Option<String>,
    env_vars: Option<Values>,
    /// Timeout of the step, such as `5m`.
    timeout: Option<String>,
    role: Option<String>,
    skip_noops: Option<Flag>,
    public_repo: Option<Repo>,
    connected_repo: Option<Repo>,
    enable_kube_config: Option<Flag>,
    kubernetes_context: Option<String>,
    labels: Option<Values>,
}
