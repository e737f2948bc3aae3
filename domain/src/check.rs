//! Checks of a preflight: what a run requires from the runner and its environment.
use std::collections::BTreeMap;

use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Maximum number of checks in an event. Runner and server drop the last ones above this limit.
pub const MAX_CHECKS: usize = 256;
/// Maximum size of the checks in an event, as JSON in bytes.
pub const CHECKS_BYTES: usize = 32 * 1024;
/// Maximum length of a message, in bytes.
pub const MESSAGE_BYTES: usize = 2000;
/// Maximum length of the name of a check or component, in bytes.
pub const NAME_BYTES: usize = 256;

/// Result of one check of a preflight.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode, ToSchema)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Check {
    /// Component that requires the check. Absent if the check concerns the whole run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub component: Option<String>,
    /// Requirement, for example `policy` or `disk`.
    pub check: String,
    /// Result.
    pub status: CheckStatus,
    /// Explanation for users: the finding and its remedy.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Result of a check.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    Encode,
    Decode,
    ToSchema,
)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CheckStatus {
    /// The requirement is not met.
    Failed,
    /// The requirement depends on a result of the run. The plan of the component checks it.
    Deferred,
    /// The requirement is met.
    Ok,
}

impl CheckStatus {
    /// Returns the name in events and in the APIs.
    pub const fn as_str(self) -> &'static str {
        match self {
            CheckStatus::Failed => "failed",
            CheckStatus::Deferred => "deferred",
            CheckStatus::Ok => "ok",
        }
    }
}

impl Check {
    /// Returns the check as one line of text.
    pub fn text(&self) -> String {
        let component = self.component.iter().map(|name| format!("{name}: ")).collect::<String>();
        match self.message.is_empty() {
            true => format!("{component}{}", self.check),
            false => format!("{component}{}: {}", self.check, self.message),
        }
    }
}

/// Returns true if a check failed.
pub fn has_failed(checks: &[Check]) -> bool {
    checks.iter().any(|check| check.status == CheckStatus::Failed)
}

/// Returns the number of checks of each status.
pub fn counts(checks: &[Check]) -> BTreeMap<CheckStatus, usize> {
    checks.iter().fold(BTreeMap::new(), |mut counts, check| {
        *counts.entry(check.status).or_default() += 1;
        counts
    })
}

/// Sorts the checks, failed ones first, and limits them to the size of an event. The result is
/// deterministic, so a repeated report stays equal.
pub fn limited(mut checks: Vec<Check>) -> Vec<Check> {
    checks.sort_by_key(|check| check.status);
    for check in &mut checks {
        shorten(&mut check.check, NAME_BYTES);
        shorten(&mut check.message, MESSAGE_BYTES);
        if let Some(component) = &mut check.component {
            shorten(component, NAME_BYTES);
        }
    }
    let total = checks.len();
    let mut size = 0;
    let fits = |check: &&Check| {
        size += serde_json::to_string(check).map_or(CHECKS_BYTES, |text| text.len() + 1);
        size <= CHECKS_BYTES
    };
    let kept = checks.iter().take_while(fits).count().min(MAX_CHECKS);
    if kept < total {
        // The note takes the place of the last check, so a limited report stays as it is.
        let status = checks[kept.saturating_sub(1)].status;
        checks.truncate(kept.saturating_sub(1));
        let left = total - checks.len();
        let message = format!("{left} checks are not shown; the log of the job lists all");
        checks.push(Check { component: None, check: "more".into(), status, message });
    }
    checks
}

fn shorten(text: &mut String, limit: usize) {
    if text.len() > limit {
        text.truncate(text.floor_char_boundary(limit - '…'.len_utf8()));
        text.push('…');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(status: CheckStatus, message: &str) -> Check {
        Check {
            component: Some("web".into()),
            check: "disk".into(),
            status,
            message: message.into(),
        }
    }

    #[test]
    fn failed_checks_come_first_and_stay_within_the_limit() {
        let mut many = vec![check(CheckStatus::Ok, &"é".repeat(3000)); 400];
        many.push(check(CheckStatus::Failed, "full"));
        let kept = limited(many);
        assert_eq!(
            (kept[0].status, kept[0].text()),
            (CheckStatus::Failed, "web: disk: full".into())
        );
        assert!(serde_json::to_string(&kept).unwrap().len() <= CHECKS_BYTES + 200);
        let last = kept.last().unwrap();
        assert!(last.message.contains("checks are not shown"), "{last:?}");
        assert!(kept[1].message.len() <= MESSAGE_BYTES && kept[1].message.ends_with('…'));
        let short = limited(vec![check(CheckStatus::Ok, "x"); 300]);
        assert_eq!(short.len(), MAX_CHECKS);
        assert_eq!(limited(short.clone()), short, "a repeated report stays equal");
    }

    #[test]
    fn a_check_without_a_message_is_its_name() {
        let one = Check { component: None, ..check(CheckStatus::Ok, "") };
        assert_eq!((one.text(), has_failed(std::slice::from_ref(&one))), ("disk".into(), false));
        assert_eq!(counts(&[one])[&CheckStatus::Ok], 1);
    }
}
