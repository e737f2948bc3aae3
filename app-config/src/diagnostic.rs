//! Findings in a config: the problem, its location and the remedy.
use std::fmt;

use serde::Serialize;

mod codes;
mod nearest;
mod output;
mod sarif;

pub use self::{codes::CODES, nearest::nearest, output::format_findings, sarif::sarif};

/// Severity of a finding. An error stops the config from being published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    Error,
    Warning,
}

/// Location in a file. All fields are zero for the whole file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Location {
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// Length in characters from `column`, up to the end of the line.
    pub length: u32,
}

/// A finding. `file` is relative to the app directory. `line` and `column` count from 1, and are 0
/// if the finding is about a whole file or the whole directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    pub severity: Severity,
    /// Stable, machine-readable code, one of [`CODES`].
    pub code: &'static str,
    pub file: String,
    pub line: u32,
    pub column: u32,
    /// Length in characters from `column`, up to the end of the line.
    pub length: u32,
    pub message: String,
    /// Remedy. May be empty for a warning.
    pub remedy: String,
}

impl Diagnostic {
    /// Creates an error about the whole directory. [`Diagnostic::at`] adds a location.
    pub fn error(
        code: &'static str,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Diagnostic::new(Severity::Error, code, message, remedy)
    }

    pub fn warning(
        code: &'static str,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Diagnostic::new(Severity::Warning, code, message, remedy)
    }

    pub fn new(
        severity: Severity,
        code: &'static str,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        debug_assert!(CODES.iter().any(|(known, _)| *known == code), "{code} is not in CODES");
        let Location { line, column, length } = Location::default();
        let (file, message, remedy) = (String::new(), plain(message), plain(remedy));
        Diagnostic { severity, code, file, line, column, length, message, remedy }
    }

    #[must_use]
    pub fn at(self, file: &str, place: Location) -> Self {
        let Location { line, column, length } = place;
        Diagnostic { file: plain(file), line, column, length, ..self }
    }

    /// True if the finding is about something that this release reads but does not act on.
    pub fn is_about_ignored_setting(&self) -> bool {
        ["no_plugin", "not_enforced", "not_yet"].contains(&self.code)
    }

    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

/// Replaces control characters other than newlines, and bidirectional controls, with U+FFFD. A
/// string from an app directory must not control the reader's terminal or change the order of the
/// displayed characters.
fn plain(text: impl Into<String>) -> String {
    let is_bidirectional = |c| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let is_control = |c: char| (c.is_control() && c != '\n') || is_bidirectional(c);
    let text = text.into();
    if text.contains(is_control) { text.replace(is_control, "\u{fffd}") } else { text }
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
