//! Result of `plan`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::details::PlanDetails;

/// Result of `plan`: the planned changes. Only `details` contains values.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Changes {
    /// True if the plan has no changes.
    pub noop: bool,
    /// Number of resources to create. A replacement counts here and in `destroy`.
    pub add: u64,
    /// Number of resources to change in place.
    pub change: u64,
    /// Number of resources to remove.
    pub destroy: u64,
    /// Changes of the resources.
    #[serde(default)]
    pub resources: Vec<ResourceChange>,
    /// Changes of the outputs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<OutputChange>,
    /// Values of the changes. The summary of a plan never contains them. From version 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<PlanDetails>,
}

/// Planned change of one resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResourceChange {
    /// Name of the resource in its component.
    pub address: String,
    /// Planned action.
    pub action: Action,
    /// Names of the attributes that differ.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attributes: Vec<String>,
}

/// Planned change of one output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OutputChange {
    /// Name of the output.
    pub name: String,
    /// Planned action.
    pub action: Action,
}

/// Planned action on a resource or an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Creates it.
    Create,
    /// Changes it in place.
    Update,
    /// Removes it.
    Delete,
    /// Removes it and creates it again.
    Replace,
    /// Stops managing it without removing it.
    Forget,
    /// Starts managing an existing resource. From version 2.
    Adopt,
}
