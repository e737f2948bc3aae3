//! What can be wrong with a log that is shown, in plain words for whoever owns the host.
use schemas::runner::RefusedBy;

use crate::policy::Refusal;

/// Why a log is not believed to be the one that was seen before, grown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Doubt {
    #[error(
        "the head of the vendor's log is not signed by a key of theirs that this runner knows: somebody else may have \
         made it, or a key was replaced and the list of keys did not come ({0})"
    )]
    Unsigned(String),
    #[error(
        "the head is of log {shown}, and this runner enrolled with log {known}: it is another database, or another \
         vendor's"
    )]
    OtherLog { known: String, shown: String },
    #[error(
        "the grant names epoch {grant} and the head of the log epoch {head}: they are not of one log"
    )]
    TwoEpochs { grant: u64, head: u64 },
    #[error("the claim is not in the log that is shown with it: {0}")]
    NotInIt(String),
    #[error(
        "the log had {seen} events when this runner looked last, and now has {shown}: an old backup may have been \
         restored, or events were removed"
    )]
    Smaller { seen: u64, shown: u64 },
    #[error(
        "the log's first {seen} events are not the ones that this runner has seen: history was rewritten, or the \
         vendor shows different logs to different people ({why})"
    )]
    Forked { seen: u64, why: String },
    #[error(
        "nothing shows that the log of {shown} events goes on from the {seen} that this runner has seen ({why}): it may \
         have been rewritten, or the server cannot prove that it was not"
    )]
    Unprovable { seen: u64, shown: u64, why: String },
    #[error(
        "the log is of epoch {shown}, and this runner has seen epoch {seen}: it is the log from before the vendor's last \
         restore, or a copy of it"
    )]
    LowerEpoch { seen: u64, shown: u64 },
    #[error(
        "the log is of epoch {shown} after epoch {seen}: the vendor restored it, and events may be missing. Ask them; \
         to accept it, `stead-runner witness accept --epoch {shown}`"
    )]
    RaisedEpoch { seen: u64, shown: u64 },
}

impl Doubt {
    /// In one word, as the vendor's log and the journal have it.
    pub fn rule(&self) -> &'static str {
        match self {
            Doubt::Unsigned(_) => "checkpoint",
            Doubt::OtherLog { .. } => "log",
            Doubt::TwoEpochs { .. } => "fence",
            Doubt::NotInIt(_) => "inclusion",
            Doubt::Smaller { .. } => "log_smaller",
            Doubt::Forked { .. } => "log_forked",
            Doubt::Unprovable { .. } => "log_unprovable",
            Doubt::LowerEpoch { .. } | Doubt::RaisedEpoch { .. } => "epoch",
        }
    }

    /// Whether a refusal by this rule is about the log, and its head is evidence.
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

impl From<Doubt> for Refusal {
    fn from(doubt: Doubt) -> Refusal {
        let (by, rule) = (RefusedBy::Verification, doubt.rule().into());
        Refusal { by, rule, detail: doubt.to_string() }
    }
}
