//! The base and the parts: `sandbox.toml`, `components/**/*.toml`.
use super::*;

/// One deployable part. Other files name it by `name`, not by its file.
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

/// What every component may say.
#[derive(JsonSchema)]
pub struct Common {
    /// Letters, digits and `_`: templates name it in a field chain.
    name: String,
    /// Another name for it in variables.
    var_name: Option<String>,
    /// Components that have to be deployed before. What templates read counts without being named.
    dependencies: Option<Vec<String>>,
    display_name: Option<String>,
    description: Option<String>,
    /// Maximum number of automatic retries of a failed deploy, 0 to 10. Default: 0.
    max_auto_retries: Option<i64>,
    /// A duration such as `30m`.
    timeout: Option<String>,
    /// A duration such as `30m`.
    deploy_timeout: Option<String>,
    /// Whether an install may be without it.
    toggleable: Option<Flag>,
    /// Whether it is on in a new install.
    default_enabled: Option<Flag>,
    /// Whether a plan without changes is applied without a word.
    skip_noops: Option<Flag>,
    auto_approve_on_policies_passing: Option<Flag>,
    /// The cluster, as kubernetes_contexts.toml names it.
    kubernetes_context: Option<String>,
    operation_roles: Option<Vec<OperationRole>>,
    role: Option<String>,
    labels: Option<Values>,
    label: Option<String>,
    /// Minute, hour, day, month, weekday.
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

/// A Helm chart, of a repository of sources or of charts.
#[derive(JsonSchema)]
pub struct HelmChart {
    #[serde(flatten)]
    common: Common,
    chart_name: String,
    public_repo: Option<Repo>,
    connected_repo: Option<Repo>,
    helm_repo: Option<HelmRepo>,
    /// Without it the install's id. A template.
    namespace: Option<String>,
    values: Option<Values>,
    values_file: Option<Vec<ValuesFile>>,
    storage_driver: Option<String>,
    take_ownership: Option<Flag>,
}

#[derive(JsonSchema)]
pub struct HelmRepo {
    repo_url: String,
    chart: String,
    version: Option<Scalar>,
}

#[derive(JsonSchema)]
pub struct ValuesFile {
    /// The text itself, or `./file`. A template.
    contents: Option<String>,
    source: Option<String>,
}

/// Manifests of Kubernetes, as a text or by kustomize.
#[derive(JsonSchema)]
pub struct KubernetesManifest {
    #[serde(flatten)]
    common: Common,
    /// A template.
    namespace: Option<String>,
    /// The text itself, or `./file`. A template.
    manifest: Option<String>,
    kustomize: Option<Kustomize>,
    public_repo: Option<Repo>,
    connected_repo: Option<Repo>,
}

#[derive(JsonSchema)]
pub struct Kustomize {
    /// In the component's repository.
    path: String,
    patches: Option<Vec<String>>,
    enable_helm: Option<Flag>,
}

/// An image that others built.
#[derive(JsonSchema)]
pub struct Image {
    #[serde(flatten)]
    common: Common,
    public: Option<PublicImage>,
    aws_ecr: Option<EcrImage>,
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
    /// `go`, `nodejs`, `python`, …
    runtime: Option<String>,
    config: Option<Values>,
    public_repo: Option<Repo>,
    connected_repo: Option<Repo>,
}

/// No longer part of the format: use an action.
#[derive(JsonSchema)]
pub struct Job {
    #[serde(flatten)]
    common: Common,
    image_url: String,
    tag: Scalar,
    cmd: Option<Vec<String>>,
    args: Option<Vec<String>>,
}

/// The base of an install: provisioned first and torn down last.
#[derive(JsonSchema)]
pub struct Sandbox {
    /// `terraform` (also without it) or `pulumi`.
    #[serde(rename = "type")]
    kind: Option<String>,
    /// Of a Pulumi program: `go`, `nodejs`, `python`, …
    runtime: Option<String>,
    terraform_version: Option<Scalar>,
    public_repo: Option<Repo>,
    connected_repo: Option<Repo>,
    /// Values of the module's variables.
    vars: Option<Values>,
    env_vars: Option<Values>,
    var_file: Option<Vec<VarFile>>,
    pulumi_config: Option<Values>,
    /// Minute, hour, day, month, weekday.
    drift_schedule: Option<String>,
    operation_roles: Option<Vec<OperationRole>>,
    skip_noops: Option<Flag>,
    max_auto_retries: Option<i64>,
    labels: Option<Values>,
}
