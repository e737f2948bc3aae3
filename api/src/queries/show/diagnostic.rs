//! Converts a finding in an app directory to the API type.
use schemas::control::Diagnostic;

/// Converts a finding.
pub(crate) fn diagnostic(found: &app_config::Diagnostic) -> Diagnostic {
    let some = |n: u32| (n > 0).then_some(n);
    Diagnostic {
        severity: if found.is_error() { "error" } else { "warning" }.into(),
        file: found.file.clone(),
        line: some(found.line),
        column: some(found.column),
        message: found.message.clone(),
        remedy: Some(found.remedy.clone()).filter(|remedy| !remedy.is_empty()),
    }
}
