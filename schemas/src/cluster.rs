//! Cluster of a job, as the member `cluster` of the inputs of a manifest.

use serde::{Deserialize, Serialize};

/// Name of the member in the inputs of a manifest.
pub const CLUSTER_INPUT: &str = "cluster";

/// Cluster that a job uses. Contains no credential: the runner finds the credentials itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterInput {
    /// Component whose outputs describe the cluster, or `sandbox`.
    pub component: String,
    /// True if the job cannot do its work without access to the cluster.
    #[serde(default)]
    pub required: bool,
    /// Cloud of the install. Absent outside of a cloud.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    /// Output `cluster` of the component, as far as the server knows it.
    #[serde(flatten)]
    pub output: ClusterOutput,
}

/// Cloud that authenticates the requests to a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Platform {
    /// Amazon Web Services.
    Aws,
    /// Microsoft Azure.
    Azure,
    /// Google Cloud.
    Gcp,
}

/// Members of an output `cluster` that describe the access.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterOutput {
    /// Name of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Address of the API server, with or without `https://`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Certificate of the authority that the API server's certificate is from, as PEM in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_authority_data: Option<String>,
    /// ARN of a cluster on AWS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arn: Option<String>,
}
