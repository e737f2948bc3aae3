//! What surrounds the components: metadata, runner, stack, roles, policies, secrets, installs.
use std::collections::BTreeMap;

use serde::Serialize;

use crate::text::{Origin, Text};

/// What the app is called.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Metadata {
    /// Where it is written; see [`crate::AppConfig::span`].
    #[serde(skip)]
    pub at: Origin,
    /// Of the format: `v1` or `v2`.
    pub version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readme: Option<Text>,
}

/// What the runner in the account is given.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Runner {
    /// Where it is written; see [`crate::AppConfig::span`].
    #[serde(skip)]
    pub at: Origin,
    pub runner_type: String,
    /// Position of the type's value.
    #[serde(skip)]
    pub type_at: Origin,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub helm_driver: Option<String>,
    /// In the environment of every job of the install.
    pub env_vars: BTreeMap<String, Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub init_script_url: Option<String>,
}

/// What the customer applies once to admit the runner. Read and shown; a later release generates it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Stack {
    /// Where it is written; see [`crate::AppConfig::span`].
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
    /// How many [`Stack::nested_stacks`] there are.
    pub custom_nested_stacks: usize,
    pub nested_stacks: Vec<NestedStack>,
}

/// A template of the vendor's inside the stack.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct NestedStack {
    /// Where it is written; see [`crate::AppConfig::span`].
    #[serde(skip)]
    pub at: Origin,
    pub name: String,
    pub template_url: Text,
    /// The order among nested stacks, lowest first.
    pub index: i64,
    pub parameters: BTreeMap<String, Text>,
}

/// For which operations a role is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RolePurpose {
    Provision,
    Maintenance,
    Deprovision,
    BreakGlass,
    /// Named by an operation or an action.
    Custom,
}

/// What an operation may do in the customer's account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Role {
    /// Where it is written; see [`crate::AppConfig::span`].
    #[serde(skip)]
    pub at: Origin,
    pub purpose: RolePurpose,
    /// The purpose as it is written: `provision` in a file of its own, `provision_role` in one for
    /// all.
    pub word: String,
    pub file: String,
    pub name: Text,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permissions_boundary: Option<Text>,
    /// `aws`, `gcp` or `azure`; absent means that of the app.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloud_platform: Option<String>,
    /// Whether the customer's stack makes it from the beginning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled_in_stack: Option<bool>,
    pub clouds: CloudGrants,
    pub policies: Vec<RolePolicy>,
}

/// What clouds other than AWS grant.
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

/// One grant of a role: one managed by the cloud, or a document.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct RolePolicy {
    /// Where it is written; see [`crate::AppConfig::span`].
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

/// A rule over plans or clusters. Read and shown; a later release evaluates it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Policy {
    /// Where it is written; see [`crate::AppConfig::span`].
    #[serde(skip)]
    pub at: Origin,
    pub kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    pub components: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contents: Option<Text>,
}

/// A secret that the customer gives to the stack. Read and shown; a later release syncs it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Secret {
    /// Where it is written; see [`crate::AppConfig::span`].
    #[serde(skip)]
    pub at: Origin,
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<Text>,
    pub required: bool,
    pub auto_generate: bool,
    /// What the customer sees before they give it; never a secret itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    pub kubernetes_sync: bool,
    pub sync_targets: Vec<SyncTarget>,
}

/// A secret of the cluster that a secret is copied to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct SyncTarget {
    /// Where it is written; see [`crate::AppConfig::span`].
    #[serde(skip)]
    pub at: Origin,
    pub name: Text,
    pub namespaces: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// An install that the app directory itself describes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct InstallFile {
    /// Where it is written; see [`crate::AppConfig::span`].
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
