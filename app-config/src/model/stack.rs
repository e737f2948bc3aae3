//! Supporting parts: metadata, runner, stack, roles, policies, secrets, installs.
use std::collections::BTreeMap;

use serde::Serialize;

use super::{Input, InputKind};
use crate::text::{Origin, Text};

/// Name and description of the app.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Metadata {
    /// Location; see [`crate::AppConfig::span`].
    #[serde(skip)]
    pub at: Origin,
    /// Version of the format: `v1` or `v2`.
    pub version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readme: Option<Text>,
}

/// Settings of the runner in the customer's account.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Runner {
    /// Location; see [`crate::AppConfig::span`].
    #[serde(skip)]
    pub at: Origin,
    pub runner_type: String,
    /// Location of the value of the type.
    #[serde(skip)]
    pub type_at: Origin,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub helm_driver: Option<String>,
    /// Environment variables of every job of the install.
    pub env_vars: BTreeMap<String, Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub init_script_url: Option<String>,
}

/// Stack that the customer applies once to admit the runner. This release reads and shows it, but
/// does not generate it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Stack {
    /// Location; see [`crate::AppConfig::span`].
    #[serde(skip)]
    pub at: Origin,
    pub stack_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vpc_nested_template_url: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runner_nested_template_url: Option<Text>,
    /// Number of [`Stack::nested_stacks`].
    pub custom_nested_stacks: usize,
    pub nested_stacks: Vec<NestedStack>,
}

/// A template of the vendor inside the stack.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct NestedStack {
    /// Location; see [`crate::AppConfig::span`].
    #[serde(skip)]
    pub at: Origin,
    pub name: String,
    pub template_url: Text,
    /// Order among nested stacks, lowest first.
    pub index: i64,
    pub parameters: BTreeMap<String, Text>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RolePurpose {
    Provision,
    Maintenance,
    Deprovision,
    BreakGlass,
    /// An operation or an action names the role.
    Custom,
}

/// Permissions of an operation in the customer's account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Role {
    /// Location; see [`crate::AppConfig::span`].
    #[serde(skip)]
    pub at: Origin,
    pub purpose: RolePurpose,
    /// Purpose as written: `provision` in a file per role, `provision_role` in the one-file form.
    pub word: String,
    pub file: String,
    pub name: Text,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permissions_boundary: Option<Text>,
    /// `aws`, `gcp` or `azure`. `None` means the platform of the app.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloud_platform: Option<String>,
    /// True if the customer's stack creates the role initially.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled_in_stack: Option<bool>,
    pub clouds: CloudGrants,
    pub policies: Vec<RolePolicy>,
}

/// Grants on clouds other than AWS.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct CloudGrants {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gcp_predefined_roles: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gcp_permissions: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub azure_built_in_roles: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub azure_actions: Vec<String>,
}

/// A grant of a role: a managed policy of the cloud, or a document.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct RolePolicy {
    /// Location; see [`crate::AppConfig::span`].
    #[serde(skip)]
    pub at: Origin,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed_policy_name: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contents: Option<Text>,
    pub clouds: CloudGrants,
}

/// A rule about plans or clusters. This release reads and shows it, but does not evaluate it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Policy {
    /// Location; see [`crate::AppConfig::span`].
    #[serde(skip)]
    pub at: Origin,
    pub kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    pub components: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contents: Option<Text>,
}

/// A secret that the customer gives to the stack. This release reads and shows it, but does not
/// sync it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Secret {
    /// Location; see [`crate::AppConfig::span`].
    #[serde(skip)]
    pub at: Origin,
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<Text>,
    pub required: bool,
    pub auto_generate: bool,
    /// Placeholder that the customer sees.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    pub kubernetes_sync: bool,
    pub sync_targets: Vec<SyncTarget>,
}

impl Secret {
    /// Returns the secret as a sensitive input, which only the customer sets.
    pub(crate) fn as_input(&self) -> Input {
        let text = |text: &Option<Text>| text.as_ref().map(|text| text.value.clone());
        Input {
            at: self.at.clone(),
            name: self.name.clone(),
            display_name: text(&self.display_name).unwrap_or_default(),
            description: text(&self.description).unwrap_or_default(),
            group: None,
            kind: InputKind::String,
            required: self.required,
            default: text(&self.default),
            sensitive: true,
            internal: false,
            user_configurable: true,
        }
    }
}

/// Secret of a cluster to which a secret of the customer is copied.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct SyncTarget {
    /// Location; see [`crate::AppConfig::span`].
    #[serde(skip)]
    pub at: Origin,
    pub name: Text,
    pub namespaces: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// An install that the app directory describes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct InstallFile {
    /// Location; see [`crate::AppConfig::span`].
    #[serde(skip)]
    pub at: Origin,
    pub name: String,
    pub file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval_option: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    pub inputs: BTreeMap<String, String>,
}
