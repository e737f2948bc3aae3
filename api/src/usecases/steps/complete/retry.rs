//! Failures that permit an automatic retry of a step.
use domain::job::{FailureReason, Job, JobClass, JobEvent};

/// Exit codes of a process that ended without a signal. A shell reports a signal of its child as
/// 128 plus the number of the signal.
const NO_SIGNAL: std::ops::Range<i32> = 0..128;

/// Returns true if the job's result is known and another attempt may succeed. A mutating job is
/// retried only if its process exited without a signal or never started.
pub(super) fn may_retry(job: &Job) -> bool {
    let (mut reports, mut has_running_processes, mut by_itself) =
        (job.reports.iter().rev(), false, false);
    let reason = reports.find_map(|event| {
        let JobEvent::Failed { reason, not_ended, exit_code, .. } = event else { return None };
        // A remaining process may still change something.
        has_running_processes = !not_ended.is_empty();
        by_itself = exit_code.is_some_and(|code| NO_SIGNAL.contains(&code));
        Some(*reason)
    });
    let is_pure = job.work.as_ref().is_some_and(|work| work.class == JobClass::Pure);
    if has_running_processes && !is_pure {
        return false;
    }
    match reason {
        Some(FailureReason::ExitCode) => is_pure || by_itself,
        Some(FailureReason::ArtifactUnavailable | FailureReason::SpawnFailed) => true,
        Some(FailureReason::Signal | FailureReason::TimedOut | FailureReason::PluginFailed) => {
            is_pure
        }
        Some(
            // A retry would exceed the limit again.
            FailureReason::MemoryLimit
            | FailureReason::ProcessLimit
            | FailureReason::Refused
            | FailureReason::ToolMissing
            | FailureReason::PlanStale
            | FailureReason::AgentStopped
            | FailureReason::QueueExpired
            | FailureReason::Resolved
            | FailureReason::Internal,
        )
        | None => false,
    }
}

#[cfg(test)]
mod tests;
