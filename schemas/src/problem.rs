//! A refusal, as RFC 9457 `application/problem+json`.
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// The media type of every answer that is not a success.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// Why a call was refused. Programs branch on `code`; people read `title` and `detail`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// `urn:stead:problem:<code>`.
    #[serde(rename = "type", default)]
    pub kind: String,
    /// The same sentence for every occurrence of this code.
    #[serde(default)]
    pub title: String,
    /// The HTTP status, repeated.
    #[serde(default)]
    pub status: u16,
    /// A word for programs, never renamed: `session_superseded`, `not_offered` …
    #[serde(default)]
    pub code: String,
    /// What happened this time.
    #[serde(default)]
    pub detail: String,
    /// Where: the request's path or the thing's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Each thing that is wrong with what was sent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldProblem>,
    /// What this code adds: `job_state` with 412, `expected` with a gap, `protocol` with 426.
    #[serde(flatten)]
    #[schema(value_type = Object)]
    pub more: Map<String, Value>,
}

/// One thing that is wrong, and how to mend it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FieldProblem {
    /// The path of the field inside the request or the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The file, where the request carried files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// From 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// From 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Problem {
    /// A problem with the least that each must say.
    pub fn new(status: u16, code: &str, title: &str, detail: impl Into<String>) -> Self {
        Problem {
            kind: format!("urn:stead:problem:{code}"),
            title: title.into(),
            status,
            code: code.into(),
            detail: detail.into(),
            instance: None,
            errors: Vec::new(),
            more: Map::new(),
        }
    }

    /// Add a member that belongs to this code.
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.more.insert(key.into(), value.into());
        self
    }

    /// A member of this code that is a number, such as `expected`.
    pub fn number(&self, key: &str) -> Option<u64> {
        self.more.get(key).and_then(Value::as_u64)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ({})",
            if self.detail.is_empty() { &self.title } else { &self.detail },
            self.code
        )?;
        // Where to look, for who has no other place to show it.
        for error in &self.errors {
            if let (Some(file), Some(line)) = (&error.file, error.line) {
                write!(f, "; {file}:{line}: {}", error.message)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_said_with_its_places() {
        let mut said = Problem::new(422, "invalid", "Invalid", "an output is missing");
        let message = "`region` is read here".to_string();
        let (file, line) = (Some("sandbox.tfvars".to_string()), Some(3));
        said.errors.push(FieldProblem { file, line, message, ..FieldProblem::default() });
        let expected = "an output is missing (invalid); sandbox.tfvars:3: `region` is read here";
        assert_eq!(said.to_string(), expected);
    }

    #[test]
    fn a_problem_keeps_what_its_code_adds() {
        let said =
            Problem::new(409, "seq_gap", "A report is missing", "expected 3").with("expected", 3);
        let text = serde_json::to_string(&said).unwrap();
        assert!(text.starts_with(r#"{"type":"urn:stead:problem:seq_gap""#), "{text}");
        let read: Problem = serde_json::from_str(&text).unwrap();
        assert_eq!(read.number("expected"), Some(3));
        assert_eq!(read, said);
    }
}
