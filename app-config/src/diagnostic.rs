//! What is wrong with a config, where, and what to do about it.
use std::fmt;

use serde::Serialize;

/// Whether a finding stops the config from being published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    Error,
    Warning,
}

/// One finding. `file` is relative to the app directory; line and column count from 1, and are 0
/// when the finding is about the whole file or the whole directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    pub severity: Severity,
    /// A stable word for programs (`unknown_key`, `cycle`, `not_yet`).
    pub code: &'static str,
    pub file: String,
    pub line: u32,
    pub column: u32,
    pub message: String,
    /// What to do about it; may be empty for a warning that needs nothing.
    pub remedy: String,
}

impl Diagnostic {
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(f, "{severity}: {}", self.message)?;
        if !self.file.is_empty() {
            write!(f, "\n  --> {}", self.file)?;
            if self.line > 0 {
                write!(f, ":{}:{}", self.line, self.column)?;
            }
        }
        if !self.remedy.is_empty() {
            write!(f, "\n  = {}", self.remedy)?;
        }
        Ok(())
    }
}
