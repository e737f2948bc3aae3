//! Details of a plan: the values that an apply would change, for the user who approves it.
//!
//! Details are optional, from version 2 of the protocol. A plugin never sends the value of a
//! sensitive attribute. The runner redacts and bounds what it receives.
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::Action;

/// Values of the changed attributes of a plan.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlanDetails {
    /// Changed resources, with the addresses of the summary.
    #[serde(default)]
    pub resources: Vec<ResourceDetails>,
    /// Changed outputs. The address of an output is its name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<ResourceDetails>,
    /// Number of resources and outputs that were omitted because of their size.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted: u64,
}

/// Changed attributes of one resource or output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ResourceDetails {
    /// Name of the resource in its component.
    pub address: String,
    /// Planned action.
    pub action: Action,
    /// Changed attributes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attributes: Vec<AttributeDetails>,
    /// Number of attributes that were omitted because of their size.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted: u64,
}

/// Change of one attribute.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AttributeDetails {
    /// Path of the attribute, such as `tags.Name` or `spec.containers[name=web].image`. Empty for
    /// the whole resource.
    pub path: String,
    /// Value before the apply. Absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<DetailValue>,
    /// Value after the apply. Absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<DetailValue>,
    /// True if the change of this attribute replaces the resource.
    #[serde(default, skip_serializing_if = "is_false")]
    pub replaces: bool,
}

/// Value of an attribute, or the reason why it is not shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DetailValue {
    /// The value.
    #[schema(value_type = Object)]
    Value(Value),
    /// The beginning of a value that is too long.
    Truncated {
        /// First characters of the value.
        text: String,
        /// Size of the whole value in bytes, as text or JSON.
        size_bytes: u64,
    },
    /// The apply determines the value.
    KnownAfterApply,
    /// The value is sensitive.
    Sensitive,
}

/// Size in bytes from which [`DetailValue::of`] cuts a value. The runner shows less: it cuts again
/// after its redaction, so that no part of a secret at the end of a cut value is shown.
const VALUE_BYTES: usize = 16 << 10;

impl DetailValue {
    /// Returns the detail of a value that is not sensitive, and cuts a long one.
    pub fn of(value: &Value) -> Self {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Array(_)
            | Value::Object(_) => value.to_string(),
        };
        match text.len() > VALUE_BYTES {
            false => DetailValue::Value(value.clone()),
            true => DetailValue::Truncated {
                text: text[..text.floor_char_boundary(VALUE_BYTES)].to_owned(),
                size_bytes: text.len() as u64,
            },
        }
    }
}

impl PlanDetails {
    /// Omits the resources and outputs that do not fit into this size in bytes, and counts them.
    #[must_use]
    pub fn within(mut self, bytes: usize) -> Self {
        // Space for the other members.
        let mut room = bytes.saturating_sub(1024);
        let mut more: u64 = 0;
        let mut fits = |one: &ResourceDetails| {
            let size = serde_json::to_vec(one).map_or(usize::MAX, |json| json.len() + 1);
            let fits = size <= room;
            match fits {
                true => room -= size,
                false => more += 1,
            }
            fits
        };
        self.resources.retain(&mut fits);
        self.outputs.retain(&mut fits);
        self.omitted = self.omitted.saturating_add(more);
        self
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(flag: &bool) -> bool {
    !*flag
}
