//! Converts domain types to wire types.
use domain::job::{Job, JobClass, Outcome, State};
use schemas::runner as wire;

/// State of a job as one lower-case name.
pub(crate) fn state(job: &Job) -> &'static str {
    match &job.state {
        State::NotCreated => "unknown",
        State::Queued { .. } => "queued",
        State::Claimed(held) | State::Running(held) if held.cancel.is_some() => "cancelling",
        State::Claimed(_) => "claimed",
        State::Running(_) => "running",
        State::OutcomeUnknown(_) => "outcome_unknown",
        State::Ended { outcome, .. } => match outcome {
            Outcome::Succeeded => "succeeded",
            Outcome::Failed => "failed",
            Outcome::Cancelled => "cancelled",
            Outcome::Lost => "lost",
        },
    }
}

/// Pending cancellation of the execution that holds a job.
pub(crate) fn pending_cancel(job: &Job) -> Option<wire::PendingCancel> {
    let cancel = job.execution()?.cancel.as_ref()?;
    let grace_s = grace_s(job.class(), cancel.force);
    Some(wire::PendingCancel { reason: cancel.reason.clone(), grace_s, force: cancel.force })
}

/// Seconds from SIGTERM to SIGKILL: 5 for a forced cancel, otherwise the grace period of the job
/// class.
pub(super) fn grace_s(class: JobClass, force: bool) -> u64 {
    if force { 5 } else { class.grace_s() }
}
