//! Reason why a call failed.

use schemas::plugin::ErrorCode;

/// Error of a call: its code in the protocol and a message for users, without values of objects.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    pub code: ErrorCode,
    pub message: String,
}

pub type Outcome<T> = Result<T, Failure>;

impl Failure {
    /// Failure because the inputs or the cluster do not allow the operation.
    pub fn refused(message: impl Into<String>) -> Self {
        Failure { code: ErrorCode::Refused, message: message.into() }
    }

    /// Failure because the plan no longer matches the cluster. The call changed nothing.
    pub fn stale(message: impl Into<String>) -> Self {
        Failure { code: ErrorCode::PlanStale, message: message.into() }
    }

    pub fn failed(message: impl Into<String>) -> Self {
        Failure { code: ErrorCode::Failed, message: message.into() }
    }

    pub fn tool_missing(message: impl Into<String>) -> Self {
        Failure { code: ErrorCode::ToolMissing, message: message.into() }
    }

    pub fn is_cancelled(&self) -> bool {
        self.code == ErrorCode::Cancelled
    }

    pub fn cancelled() -> Self {
        let message = "cancelled before all changes were applied".into();
        Failure { code: ErrorCode::Cancelled, message }
    }
}

/// Adds the failed operation to an I/O error.
pub trait IoContext<T> {
    fn context(self, what: impl FnOnce() -> String) -> Outcome<T>;
}

impl<T> IoContext<T> for std::io::Result<T> {
    fn context(self, what: impl FnOnce() -> String) -> Outcome<T> {
        self.map_err(|e| Failure::failed(format!("cannot {}: {e}", what())))
    }
}

/// Joins lines under a title.
pub fn listed(title: &str, lines: &[String]) -> String {
    match lines {
        [one] => format!("{title}: {one}"),
        _ => format!("{title}:\n  {}", lines.join("\n  ")),
    }
}
