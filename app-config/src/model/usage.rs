//! File kinds about the use of an app: operation roles, clusters, branches, and the installer page.
use serde::Serialize;

use super::{OperationRole, Source};
use crate::text::{Origin, Text};

/// Contents of `operation_roles.toml`.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct OperationRoles {
    pub kind: String,
    pub rules: Vec<OperationRole>,
}

/// A cluster that one component creates and to which other components are deployed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct KubernetesContext {
    /// Location; see [`crate::AppConfig::span`].
    #[serde(skip)]
    pub at: Origin,
    pub name: String,
    pub component: String,
}

/// Contexts of the cluster that the sandbox creates. They need no declaration.
pub const SANDBOX_CONTEXTS: [&str; 2] = ["default", "sandbox"];

/// A branch of the vendor's repository.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Branch {
    /// Location; see [`crate::AppConfig::span`].
    #[serde(skip)]
    pub at: Origin,
    pub name: String,
    pub file: String,
    pub source: Option<Source>,
}

/// Web page for customers who install the app themselves.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Installer {
    /// Location; see [`crate::AppConfig::span`].
    #[serde(skip)]
    pub at: Origin,
    pub name: String,
    pub description: String,
    pub apps: Vec<String>,
    pub post_install_markdown: Option<Text>,
}
