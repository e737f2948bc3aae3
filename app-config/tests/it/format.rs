//! Every file kind of the format as an editor should know it. What the words mean is said here
//! once: an editor shows it beside the key.
#![expect(dead_code, reason = "these are shapes; nothing is ever read into them")]
use std::collections::BTreeMap;

use schemars::JsonSchema;

pub mod components;
pub mod surroundings;
pub mod work;

/// A text. Numbers and bools are taken as the texts that they are written as.
#[derive(JsonSchema)]
#[serde(untagged)]
pub enum Scalar {
    Text(String),
    Number(f64),
    Flag(bool),
}

/// `true` or `false`, also as a text.
#[derive(JsonSchema)]
#[serde(untagged)]
pub enum Flag {
    Bool(bool),
    Text(String),
}

/// Names with their values. Values that mention `.nuon` are templates.
pub type Values = BTreeMap<String, Scalar>;

/// A directory of a repository.
#[derive(JsonSchema)]
pub struct Repo {
    /// `OWNER/NAME`, or `.` for the app directory itself.
    repo: String,
    /// Relative to the top of the repository; without it the top.
    directory: Option<String>,
    branch: Option<String>,
}

/// A file of Terraform variables.
#[derive(JsonSchema)]
pub struct VarFile {
    /// The text itself, or `./file`. A template.
    contents: String,
}

/// Which role an operation of this part takes.
#[derive(JsonSchema)]
pub struct OperationRole {
    /// `nuon::sandbox`, `nuon::component:NAME` or `nuon::action:NAME`; only in operation_roles.toml.
    principal: Option<String>,
    /// `provision`, `reprovision`, `deprovision`, `deploy`, `teardown` or `trigger`.
    operation: String,
    /// The name of the role. A template.
    role: String,
}
