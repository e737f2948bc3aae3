//! File kinds of the format as an editor should know them. Editors show these descriptions next to
//! the keys.
#![expect(dead_code, reason = "these types only define schemas and are never constructed")]
use std::collections::BTreeMap;

use schemars::JsonSchema;

pub mod components;
pub mod supporting;
pub mod work;

/// A string. A number or a boolean is read as its source text.
#[derive(JsonSchema)]
#[serde(untagged)]
pub enum Scalar {
    Text(String),
    Number(f64),
    Flag(bool),
}

/// `true` or `false`, as a boolean or as a string.
#[derive(JsonSchema)]
#[serde(untagged)]
pub enum Flag {
    Bool(bool),
    Text(String),
}

/// Names with values. Values that mention `.nuon` are templates.
pub type Values = BTreeMap<String, Scalar>;

/// A directory of a repository.
#[derive(JsonSchema)]
pub struct Repo {
    /// Repository: `OWNER/NAME`, or `.` for the app directory itself.
    repo: String,
    /// Directory relative to the root of the repository. The default is the root.
    directory: Option<String>,
    branch: Option<String>,
}

/// A file of Terraform variables.
#[derive(JsonSchema)]
pub struct VarFile {
    /// Text, or `./file` for the text of a file. May be a template.
    contents: String,
}

/// Role of an operation of this part.
#[derive(JsonSchema)]
pub struct OperationRole {
    /// `nuon::sandbox`, `nuon::component:NAME` or `nuon::action:NAME`; only in operation_roles.toml.
    principal: Option<String>,
    /// Operation: `provision`, `reprovision`, `deprovision`, `deploy`, `teardown` or `trigger`.
    operation: String,
    /// Name of the role. May be a template.
    role: String,
}
