//! Error in a response, as an RFC 9457 problem.
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// Media type of every error response.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// Error in a response. `code` is for programs; `title` and `detail` are for users.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// Problem type, `urn:stead:problem:<code>`.
    #[serde(rename = "type", default)]
    pub kind: String,
    /// Short summary, constant for each code.
    #[serde(default)]
    pub title: String,
    /// HTTP status code of the response.
    #[serde(default)]
    pub status: u16,
    /// Stable code for programs, such as `session_superseded`.
    #[serde(default)]
    pub code: String,
    /// Explanation of this occurrence, with a remedy if one exists.
    #[serde(default)]
    pub detail: String,
    /// Path of the request, or id of the affected object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Individual errors in the request. Absent if `detail` explains the only error.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldProblem>,
    /// Members that only some codes have, for example `job_state` of `fenced`, `expected` of
    /// `seq_gap`, `protocol` of `protocol_unsupported`, `server_time` of `clock_skew`.
    #[serde(flatten)]
    #[schema(value_type = Object)]
    pub more: Map<String, Value>,
}

/// Error in one field or file, with a suggested fix.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FieldProblem {
    /// Path of the field in the request or in the file. Absent if the error concerns no field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Path of the file in the uploaded directory. Absent if the request has no files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Line number in the file, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Column number in the line, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
    /// Description of the error for users.
    pub message: String,
    /// Suggested fix. Absent if none is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Problem {
    /// Creates a problem without `instance`, `errors` and further members.
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

    /// Adds a member that is specific to the code.
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.more.insert(key.into(), value.into());
        self
    }

    /// Returns a member of `more` that is a non-negative integer, such as `expected`.
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
        // Some callers display only the text of a problem, so the text contains the locations.
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
    fn the_text_of_a_problem_includes_its_fields() {
        let mut problem = Problem::new(422, "invalid", "Invalid", "an output is missing");
        let message = "`region` is read here".to_string();
        let (file, line) = (Some("sandbox.tfvars".to_string()), Some(3));
        problem.errors.push(FieldProblem { file, line, message, ..FieldProblem::default() });
        let expected = "an output is missing (invalid); sandbox.tfvars:3: `region` is read here";
        assert_eq!(problem.to_string(), expected);
    }

    #[test]
    fn members_of_a_code_survive_serialization() {
        let problem =
            Problem::new(409, "seq_gap", "A report is missing", "expected 3").with("expected", 3);
        let text = serde_json::to_string(&problem).unwrap();
        assert!(text.starts_with(r#"{"type":"urn:stead:problem:seq_gap""#), "{text}");
        let read: Problem = serde_json::from_str(&text).unwrap();
        assert_eq!(read.number("expected"), Some(3));
        assert_eq!(read, problem);
    }
}
