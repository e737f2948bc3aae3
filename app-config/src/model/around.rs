//! File kinds that say how an app is used rather than what it is: which role does what, which
//! clusters there are, and where installs and branches are described.
use serde::Serialize;

use super::{OperationRole, Source};
use crate::text::{Origin, Text};

/// `operation_roles.toml`.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct OperationRoles {
    pub kind: String,
    pub rules: Vec<OperationRole>,
}

/// A cluster that a component makes and that others are deployed to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct KubernetesContext {
    /// Where it is written; see [`crate::AppConfig::span`].
    #[serde(skip)]
    pub at: Origin,
    pub name: String,
    pub component: String,
}

/// A branch of the vendor's repository, and whom it is deployed to.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Branch {
    /// Where it is written; see [`crate::AppConfig::span`].
    #[serde(skip)]
    pub at: Origin,
    pub name: String,
    pub file: String,
    pub source: Option<Source>,
}

/// The page by which customers install the app themselves.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Installer {
    /// Where it is written; see [`crate::AppConfig::span`].
    #[serde(skip)]
    pub at: Origin,
    pub name: String,
    pub description: String,
    pub apps: Vec<String>,
    pub post_install_markdown: Option<Text>,
}
