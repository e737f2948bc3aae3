//! The sandbox and the components: `sandbox.toml`, `components/**/*.toml`.
use super::*;

/// A deployable component. Other files refer to its `name`, not to its file.
#[derive(JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Component {
    TerraformModule(TerraformModule),
    HelmChart(HelmChart),
    KubernetesManifest(KubernetesManifest),
    ContainerImage(Image),
    ExternalImage(Image),
    DockerBuild(DockerBuild),
    Pulumi(Pulumi),
    Job(Job),
}

/// Settings that every component accepts.
#[derive(JsonSchema)]
pub struct Common {
    /// Name of the component: letters, digits and `_`, because templates use it in a field chain.
    name: String,
    /// Name of the component in templates. This release does not act on the key: templates find a
    /// component only by its `name`.
    var_name: Option<String>,
    /// Components that must be deployed first. Components that templates read need not be listed.
    dependencies: Option<Vec<String>>,
    display_name: Option<String>,
    description: Option<String>,
    /// Number of automatic retries of a failed deploy.
    max_auto_retries: Option<i64>,
    /// Timeout of an operation, such as `30m`.
    timeout: Option<String>,
    /// Timeout of an operation, such as `30m`. Takes precedence over `timeout`.
    deploy_timeout: Option<String>,
    /// True if an install may run without the component.
    toggleable: Option<Flag>,
    /// True if the component is enabled in a new install.
    default_enabled: Option<Flag>,
    /// If `true` (the default), a plan without changes ends the step without an approval.
    skip_noops: Option<Flag>,
    auto_approve_on_policies_passing: Option<Flag>,
    /// Cluster, as named in kubernetes_contexts.toml.
    kubernetes_context: Option<String>,
    operation_roles: Option<Vec<OperationRole>>,
    role: Option<String>,
    labels: Option<Values>,
    label: Option<String>,
    /// Cron expression: minute, hour, day, month, weekday.
    drift_schedule: Option<String>,
    env_vars: Option<Values>,
}

/// A Terraform module.
#[derive(JsonSchema)]
pub struct TerraformModule {
    #[serde(flatten)]
    common: Common,
    terraform_version: Option<Scalar>,
    public_repo: Option<Repo>,
    connected_repo: Option<Repo>,
    /// Values of the module's variables.
    vars: Option<Values>,
    var_file: Option<Vec<VarFile>>,
}

/// A Helm chart from a source repository or a chart repository.
#[derive(JsonSchema)]
pub struct HelmChart {
    #[serde(flatten)]
    common: Common,
    chart_name: String,
    public_repo: Option<Repo>,
    connected_repo: Option<Repo>,
    helm_repo: Option<HelmRepo>,
    /// Namespace. The default is the id of the install. May be a template.
    namespace: Option<String>,
    values: Option<Values>,
    values_file: Option<Vec<ValuesFile>>,
    /// `secret` or `configmap`. May be a template.
    storage_driver: Option<String>,
    /// Allows a deploy to adopt existing objects and an existing release.
    take_ownership: Option<Flag>,
    /// Fields of objects, by the name of the output.
    outputs: Option<BTreeMap<String, OutputField>>,
}

#[derive(JsonSchema)]
pub struct HelmRepo {
    repo_url: String,
    chart: String,
    version: Option<Scalar>,
}

#[derive(JsonSchema)]
pub struct ValuesFile {
    /// Text, or `./file` for the text of a file. May be a template.
    contents: Option<String>,
    source: Option<String>,
}

/// Kubernetes manifests as inline YAML, or with kustomize.
#[derive(JsonSchema)]
pub struct KubernetesManifest {
    #[serde(flatten)]
    common: Common,
    /// Namespace. May be a template.
    namespace: Option<String>,
    /// Text, or `./file` for the text of a file. May be a template.
    manifest: Option<String>,
    kustomize: Option<Kustomize>,
    /// Allows a deploy to adopt existing objects.
    take_ownership: Option<Flag>,
    /// Fields of objects, by the name of the output.
    outputs: Option<BTreeMap<String, OutputField>>,
    public_repo: Option<Repo>,
    connected_repo: Option<Repo>,
}

/// Field of an object that becomes an output.
#[derive(JsonSchema)]
pub struct OutputField {
    kind: String,
    /// May be a template.
    name: String,
    /// May be a template.
    namespace: Option<String>,
    /// Path such as `status.loadBalancer.ingress[0].hostname`.
    field: String,
}

#[derive(JsonSchema)]
pub struct Kustomize {
    /// Path in the component's repository.
    path: String,
    patches: Option<Vec<String>>,
    enable_helm: Option<Flag>,
}

/// An existing image.
#[derive(JsonSchema)]
pub struct Image {
    #[serde(flatten)]
    common: Common,
    public: Option<PublicImage>,
    aws_ecr: Option<EcrImage>,
    /// Platforms to copy, for example `linux/arm64`. Default: `linux/amd64`.
    platforms: Option<Vec<String>>,
}

#[derive(JsonSchema)]
pub struct PublicImage {
    image_url: String,
    tag: Scalar,
}

#[derive(JsonSchema)]
pub struct EcrImage {
    image_url: String,
    tag: Scalar,
    iam_role_arn: String,
    region: String,
}

/// An image that is built from a directory.
#[derive(JsonSchema)]
pub struct DockerBuild {
    #[serde(flatten)]
    common: Common,
    dockerfile: String,
    target: Option<String>,
    build_args: Option<Vec<String>>,
    public_repo: Option<Repo>,
    connected_repo: Option<Repo>,
}

/// A Pulumi program.
#[derive(JsonSchema)]
pub struct Pulumi {
    #[serde(flatten)]
    common: Common,
    /// Language runtime: `go`, `nodejs`, `python`, …
    runtime: Option<String>,
    config: Option<Values>,
    public_repo: Option<Repo>,
    connected_repo: Option<Repo>,
}

/// No longer part of the format. Use an action.
#[derive(JsonSchema)]
pub struct Job {
    #[serde(flatten)]
    common: Common,
    image_url: String,
    tag: Scalar,
    cmd: Option<Vec<String>>,
    args: Option<Vec<String>>,
}

/// The base of an install: provisioned first and destroyed last.
#[derive(JsonSchema)]
pub struct Sandbox {
    /// Type of the module: `terraform` (the default) or `pulumi`.
    #[serde(rename = "type")]
    kind: Option<String>,
    /// Runtime of a Pulumi program: `go`, `nodejs`, `python`, …
    runtime: Option<String>,
    terraform_version: Option<Scalar>,
    public_repo: Option<Repo>,
    connected_repo: Option<Repo>,
    /// Values of the module's variables.
    vars: Option<Values>,
    env_vars: Option<Values>,
    var_file: Option<Vec<VarFile>>,
    pulumi_config: Option<Values>,
    /// Cron expression: minute, hour, day, month, weekday.
    drift_schedule: Option<String>,
    operation_roles: Option<Vec<OperationRole>>,
    skip_noops: Option<Flag>,
    max_auto_retries: Option<i64>,
    labels: Option<Values>,
}
