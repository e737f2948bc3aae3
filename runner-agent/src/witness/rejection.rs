//! Reasons to reject a log, for the owner of the host.
use schemas::runner::RefusedBy;

use crate::policy::Refusal;

/// Reason to reject the vendor's log: its head or the claim cannot be verified, or it does not
/// continue the verified log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogRejection {
    #[error(
        "the head of the vendor's log is not signed by a trusted key of the vendor: the head may be forged, or the \
         vendor's new key list has not arrived ({0})"
    )]
    Unsigned(String),
    #[error(
        "the head is of log {shown}, but this runner enrolled with log {known}: the head belongs to another database or \
         another vendor"
    )]
    OtherLog { known: String, shown: String },
    #[error(
        "the grant has epoch {grant}, but the head of the log has epoch {head}: grant and head are from different logs"
    )]
    TwoEpochs { grant: u64, head: u64 },
    #[error("the claim is not in the log of its checkpoint: {0}")]
    NotIncluded(String),
    #[error(
        "the log had {seen} events at the last check and now has {shown}: an old backup may have been restored, or \
         events were removed"
    )]
    Smaller { seen: u64, shown: u64 },
    #[error(
        "the log's first {seen} events differ from the events that this runner verified: history was rewritten, or the \
         vendor shows different logs to different customers ({why})"
    )]
    Forked { seen: u64, why: String },
    #[error(
        "the server did not prove that its log of {shown} events continues the {seen} verified ones ({why}): the log may \
         have been rewritten"
    )]
    Unprovable { seen: u64, shown: u64, why: String },
    #[error(
        "the log has epoch {shown}, but this runner verified epoch {seen}: the log is from before the vendor's last \
         restore, or a copy of that log"
    )]
    LowerEpoch { seen: u64, shown: u64 },
    #[error(
        "the log has epoch {shown} after epoch {seen}: the vendor restored the log, and events may be missing; ask the vendor \
         and then run `stead-runner witness accept --epoch {shown}`"
    )]
    RaisedEpoch { seen: u64, shown: u64 },
}

impl LogRejection {
    /// Returns the name of the rule, as the vendor's log and the journal show it.
    pub fn rule(&self) -> &'static str {
        match self {
            LogRejection::Unsigned(_) => "checkpoint",
            LogRejection::OtherLog { .. } => "log",
            LogRejection::TwoEpochs { .. } => "fence",
            LogRejection::NotIncluded(_) => "inclusion",
            LogRejection::Smaller { .. } => "log_smaller",
            LogRejection::Forked { .. } => "log_forked",
            LogRejection::Unprovable { .. } => "log_unprovable",
            LogRejection::LowerEpoch { .. } | LogRejection::RaisedEpoch { .. } => "epoch",
        }
    }

    /// Returns whether a refusal by this rule is about the log, so that its head is evidence.
    pub fn is_about_the_log(refusal: &Refusal) -> bool {
        const RULES: [&str; 8] = [
            "checkpoint",
            "log",
            "fence",
            "inclusion",
            "log_smaller",
            "log_forked",
            "log_unprovable",
            "epoch",
        ];
        refusal.by == RefusedBy::Verification && RULES.contains(&refusal.rule.as_str())
    }
}

impl From<LogRejection> for Refusal {
    fn from(rejection: LogRejection) -> Refusal {
        let (by, rule) = (RefusedBy::Verification, rejection.rule().into());
        Refusal { by, rule, detail: rejection.to_string() }
    }
}
