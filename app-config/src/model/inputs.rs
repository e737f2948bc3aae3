use serde::Serialize;

use crate::text::Origin;

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

    /// Spelling in the config.
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

/// An input that each install provides.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Input {
    /// Location; see [`crate::AppConfig::span`].
    #[serde(skip)]
    pub at: Origin,
    pub name: String,
    pub display_name: String,
    pub description: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    pub kind: InputKind,
    pub required: bool,
    /// Always a string, as in the format (`"8"`, `"true"`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    pub sensitive: bool,
    /// True if the vendor declares the input as hidden from the customer. This release does not act
    /// on it.
    pub internal: bool,
    /// True if the vendor lets the customer set the input through the stack. This release does not
    /// act on it.
    pub user_configurable: bool,
}

/// A group of inputs under one heading.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct InputGroup {
    /// Location; see [`crate::AppConfig::span`].
    #[serde(skip)]
    pub at: Origin,
    pub name: String,
    pub display_name: String,
    pub description: String,
}
