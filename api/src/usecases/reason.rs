//! Reasons that callers give for changes.
use crate::problem::Problem;

/// Maximum length of a reason, in characters.
const MAX_CHARACTERS: usize = 2000;

/// Returns a mandatory reason, or a problem if the reason is empty or too long.
pub(crate) fn required(reason: &str) -> Result<String, Problem> {
    if reason.trim().is_empty() {
        let remedy = "give a reason; the log records it";
        return Err(Problem::invalid_field("reason", "is empty", remedy));
    }
    optional(Some(reason.to_owned())).map(Option::unwrap_or_default)
}

/// Returns an optional reason, or a problem if the reason is too long. An empty reason counts as
/// `None`.
pub(crate) fn optional(reason: Option<String>) -> Result<Option<String>, Problem> {
    if reason.as_ref().is_some_and(|reason| reason.chars().count() > MAX_CHARACTERS) {
        let message = "is longer than 2,000 characters";
        return Err(Problem::invalid_field("reason", message, "shorten the reason"));
    }
    Ok(reason.filter(|reason| !reason.trim().is_empty()))
}
