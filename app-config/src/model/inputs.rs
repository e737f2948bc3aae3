//! Inputs: what every install is asked.
use serde::Serialize;

use crate::text::Origin;

/// What an input accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum InputKind {
    #[default]
    String,
    Number,
    List,
    Json,
    Bool,
}

impl InputKind {
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "string" => InputKind::String,
            "number" => InputKind::Number,
            "list" => InputKind::List,
            "json" => InputKind::Json,
            "bool" => InputKind::Bool,
            _ => return None,
        })
    }

    /// The word in the config.
    pub fn name(self) -> &'static str {
        match self {
            InputKind::String => "string",
            InputKind::Number => "number",
            InputKind::List => "list",
            InputKind::Json => "json",
            InputKind::Bool => "bool",
        }
    }
}

/// One question to each install.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Input {
    /// Where it is written; see [`crate::AppConfig::span`].
    #[serde(skip)]
    pub at: Origin,
    pub name: String,
    pub display_name: String,
    pub description: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    pub kind: InputKind,
    pub required: bool,
    /// Always a text, as the format has it (`"8"`, `"true"`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    pub sensitive: bool,
    /// Not shown to the customer.
    pub internal: bool,
    /// The customer gives it, through the stack.
    pub user_configurable: bool,
}

/// A heading over inputs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct InputGroup {
    /// Where it is written; see [`crate::AppConfig::span`].
    #[serde(skip)]
    pub at: Origin,
    pub name: String,
    pub display_name: String,
    pub description: String,
}
