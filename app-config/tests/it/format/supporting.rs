//! Files about the app and its installs: metadata, inputs, runner, stack, permissions, policies, secrets.
use super::*;

/// `metadata.toml`: name and description of the app. Every directory has this file.
#[derive(JsonSchema)]
pub struct Metadata {
    /// Version of the format: `v1` or `v2`.
    version: String,
    display_name: Option<String>,
    description: Option<String>,
    /// Text, or `./file` for the text of a file. May be a template.
    readme: Option<String>,
    slack_webhook_url: Option<String>,
    onboarding: Option<BTreeMap<String, Scalar>>,
    labels: Option<Values>,
}

/// `inputs.toml`: inputs that each install provides.
#[derive(JsonSchema)]
pub struct Inputs {
    group: Option<Vec<InputGroup>>,
    input: Option<Vec<Input>>,
}

/// `input_groups/*.toml`: a group of inputs under one heading.
#[derive(JsonSchema)]
pub struct InputGroup {
    name: String,
    display_name: Option<String>,
    description: Option<String>,
    index: Option<i64>,
    labels: Option<Values>,
}

/// `inputs/*.toml`: an input that each install provides.
#[derive(JsonSchema)]
pub struct Input {
    name: String,
    display_name: Option<String>,
    description: Option<String>,
    group: Option<String>,
    #[serde(rename = "type")]
    kind: Option<InputKind>,
    required: Option<Flag>,
    /// Always a string, regardless of the type. May be a template over other inputs.
    default: Option<Scalar>,
    sensitive: Option<Flag>,
    /// If `true`, the customer does not see the input.
    internal: Option<Flag>,
    /// If `true`, the customer sets the input through the stack.
    user_configurable: Option<Flag>,
    index: Option<i64>,
    labels: Option<Values>,
}

#[derive(JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum InputKind {
    String,
    Number,
    List,
    Json,
    Bool,
}

/// `runner.toml`: settings of the runner in the customer's account.
#[derive(JsonSchema)]
pub struct Runner {
    /// Type of the runner: `aws`, `azure`, `gcp`, …
    runner_type: String,
    /// Storage of Helm releases: `configmap`, `secret`, …
    helm_driver: Option<String>,
    /// Environment variables of every job.
    env_vars: Option<Values>,
    init_script_url: Option<String>,
    instance_type: Option<String>,
    labels: Option<Values>,
}

/// `stack.toml`: stack that the customer applies once to admit the runner.
#[derive(JsonSchema)]
pub struct Stack {
    /// Type of the stack: `aws-cloudformation`, `azure-bicep` or `gcp-terraform`.
    #[serde(rename = "type")]
    kind: String,
    /// Name of the stack. May be a template.
    name: Option<String>,
    /// Description of the stack. May be a template.
    description: Option<String>,
    vpc_nested_template_url: Option<String>,
    runner_nested_template_url: Option<String>,
    custom_nested_stacks: Option<Vec<NestedStack>>,
    labels: Option<Values>,
}

#[derive(JsonSchema)]
pub struct NestedStack {
    name: String,
    template_url: String,
    /// Order among nested stacks, lowest first.
    index: Option<i64>,
    parameters: Option<Values>,
    labels: Option<Values>,
}

/// `permissions.toml`: roles of the install's operations.
#[derive(JsonSchema)]
pub struct Permissions {
    provision_role: Option<Role>,
    maintenance_role: Option<Role>,
    deprovision_role: Option<Role>,
    custom_roles: Option<Vec<Role>>,
}

/// `permissions/*.toml` and `break_glass/*.toml`: permissions of an operation in the customer's
/// account.
#[derive(JsonSchema)]
pub struct Role {
    /// Purpose of the role: `provision`, `maintenance`, `deprovision`, `custom` or `break_glass`.
    #[serde(rename = "type")]
    kind: Option<String>,
    /// Name of the role. May be a template.
    name: String,
    /// Description of the role. May be a template.
    description: Option<String>,
    display_name: Option<String>,
    /// Text, or `./file` for the text of a file. May be a template.
    permissions_boundary: Option<String>,
    policies: Option<Vec<RolePolicy>>,
    cloud_platform: Option<String>,
    enabled_in_stack: Option<Flag>,
    gcp_predefined_roles: Option<Vec<String>>,
    gcp_permissions: Option<Vec<String>>,
    azure_built_in_roles: Option<Vec<String>>,
    labels: Option<Values>,
}

/// A grant of a role: a managed policy of the cloud, or a document.
#[derive(JsonSchema)]
pub struct RolePolicy {
    managed_policy_name: Option<String>,
    name: Option<String>,
    /// Text, or `./file` for the text of a file. May be a template.
    contents: Option<String>,
    gcp_predefined_role: Option<String>,
    gcp_permissions: Option<Vec<String>>,
    azure_built_in_roles: Option<Vec<String>>,
    azure_actions: Option<Vec<String>>,
}

/// `break_glass.toml`: roles that the customer enables in an emergency.
#[derive(JsonSchema)]
pub struct BreakGlass {
    role: Option<Vec<Role>>,
}

/// `policies.toml`: rules about plans and clusters.
#[derive(JsonSchema)]
pub struct Policies {
    policy: Option<Vec<Policy>>,
}

/// `policies/*.toml`: one rule.
#[derive(JsonSchema)]
pub struct Policy {
    /// Type of the policy: `kubernetes_cluster`, `sandbox`, `terraform_module`, `helm_chart`,
    /// `container_image`, …
    #[serde(rename = "type")]
    kind: String,
    /// Policy engine: `opa` or `kyverno`.
    engine: Option<String>,
    name: Option<String>,
    description: Option<String>,
    mode: Option<String>,
    /// Components that the policy applies to. `*` means all.
    components: Option<Vec<String>>,
    /// Text, or `./file` for the text of a file.
    contents: Option<String>,
    labels: Option<Values>,
}

/// `secrets.toml`: secrets that the customer gives only to the stack.
#[derive(JsonSchema)]
pub struct Secrets {
    secret: Option<Vec<Secret>>,
}

/// `secrets/*.toml`: one secret.
#[derive(JsonSchema)]
pub struct Secret {
    name: String,
    display_name: Option<String>,
    description: Option<String>,
    /// Excludes `auto_generate` and `default`.
    required: Option<Flag>,
    /// Excludes `required` and `default`.
    auto_generate: Option<Flag>,
    default: Option<Scalar>,
    /// Encoding of the secret: `base64`.
    format: Option<String>,
    user_configurable: Option<Flag>,
    /// True if the secret is copied into a cluster.
    kubernetes_sync: Option<Flag>,
    kubernetes_secret_namespace: Option<String>,
    kubernetes_secret_name: Option<String>,
    kubernetes_sync_targets: Option<Vec<SyncTarget>>,
    labels: Option<Values>,
}

#[derive(JsonSchema)]
pub struct SyncTarget {
    name: String,
    namespace: Option<String>,
    namespaces: Option<Vec<String>>,
    key: Option<String>,
    labels: Option<Values>,
}

/// `operation_roles.toml`: role of each operation.
#[derive(JsonSchema)]
pub struct OperationRoles {
    #[serde(rename = "type")]
    kind: Option<String>,
    rules: Option<Vec<OperationRole>>,
}

/// `kubernetes_contexts.toml`: clusters that components create.
#[derive(JsonSchema)]
pub struct KubernetesContexts {
    kubernetes_context: Option<Vec<KubernetesContext>>,
}

#[derive(JsonSchema)]
pub struct KubernetesContext {
    name: String,
    component: Option<String>,
}

/// `installs.toml`: source of the installs, if they are not in `installs/`.
#[derive(JsonSchema)]
pub struct Installs {
    public_repo: Option<Repo>,
    connected_repo: Option<Repo>,
}

/// `installs/*.toml`: one install.
#[derive(JsonSchema)]
pub struct Install {
    name: String,
    /// Approval of plans: `prompt` or `approve-all`.
    approval_option: Option<String>,
    aws_account: Option<Account>,
    azure_account: Option<Account>,
    gcp_account: Option<Account>,
    /// Tables of inputs with their values.
    inputs: Option<Vec<Values>>,
    labels: Option<Values>,
}

#[derive(JsonSchema)]
pub struct Account {
    /// Region on AWS and GCP.
    region: Option<String>,
    /// Location on Azure.
    location: Option<String>,
    iam_role_arn: Option<String>,
    project_id: Option<String>,
    subscription_id: Option<String>,
    account_id: Option<Scalar>,
}

/// `branch.toml`, `branches/*.toml`: a branch of the vendor's repository.
#[derive(JsonSchema)]
pub struct Branch {
    name: String,
    description: Option<String>,
    public_repo: Option<Repo>,
    connected_repo: Option<Repo>,
    labels: Option<Values>,
}

/// `installer.toml`: web page for customers who install the app themselves.
#[derive(JsonSchema)]
pub struct Installer {
    name: String,
    description: Option<String>,
    apps: Option<Vec<String>>,
    documentation_url: Option<String>,
    community_url: Option<String>,
    homepage_url: Option<String>,
    github_url: Option<String>,
    logo_url: Option<String>,
    demo_url: Option<String>,
    favicon_url: Option<String>,
    og_image_url: Option<String>,
    post_install_markdown: Option<String>,
    footer_markdown: Option<String>,
    copyright_markdown: Option<String>,
}
