//! The same words on both sides: the domain's enums and the wire's.
use domain::job::{self, Class, FailureReason, Job, JobKind, Outcome, State};
use schemas::runner as wire;

/// A kind of work, for the wire.
pub fn kind(kind: JobKind) -> wire::JobKind {
    match kind {
        JobKind::Build => wire::JobKind::Build,
        JobKind::Plan => wire::JobKind::Plan,
        JobKind::Apply => wire::JobKind::Apply,
        JobKind::Action => wire::JobKind::Action,
    }
}

/// A kind of work, from the wire.
pub fn kind_of(kind: wire::JobKind) -> JobKind {
    match kind {
        wire::JobKind::Build => JobKind::Build,
        wire::JobKind::Plan => JobKind::Plan,
        wire::JobKind::Apply => JobKind::Apply,
        wire::JobKind::Action => JobKind::Action,
    }
}

/// Why a job failed, from the wire.
pub fn reason_of(reason: wire::FailureReason) -> FailureReason {
    match reason {
        wire::FailureReason::ExitCode => FailureReason::ExitCode,
        wire::FailureReason::Signal => FailureReason::Signal,
        wire::FailureReason::TimedOut => FailureReason::TimedOut,
        wire::FailureReason::Refused => FailureReason::Refused,
        wire::FailureReason::ToolMissing => FailureReason::ToolMissing,
        wire::FailureReason::ArtifactUnavailable => FailureReason::ArtifactUnavailable,
        wire::FailureReason::PlanIsStale => FailureReason::PlanIsStale,
        wire::FailureReason::PluginFailed => FailureReason::PluginFailed,
        wire::FailureReason::SpawnFailed => FailureReason::SpawnFailed,
        wire::FailureReason::AgentStopped => FailureReason::AgentStopped,
        wire::FailureReason::QueueExpired => FailureReason::QueueExpired,
        wire::FailureReason::Resolved => FailureReason::Resolved,
        wire::FailureReason::Internal => FailureReason::Internal,
    }
}

/// A plan, from the wire.
pub fn plan_of(plan: wire::PlanReport) -> job::PlanReport {
    let wire::PlanReport { digest, file, summary, noop, add, change, destroy, tool, signature } =
        plan;
    job::PlanReport { digest, file, summary, noop, add, change, destroy, tool, signature }
}

/// Where a job is, in one word.
pub fn state(job: &Job) -> &'static str {
    match &job.state {
        State::Unborn => "unknown",
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

/// The cancel that waits for the execution that holds a job.
pub fn pending_cancel(job: &Job) -> Option<wire::PendingCancel> {
    let asked = job.execution()?.cancel.as_ref()?;
    let grace_s = grace_s(job.class(), asked.force);
    Some(wire::PendingCancel { reason: asked.reason.clone(), grace_s, force: asked.force })
}

/// Seconds from SIGTERM to SIGKILL. Terraform must be able to write its state, so what changes
/// things gets more; a second request with force leaves little.
pub fn grace_s(class: Class, force: bool) -> u64 {
    match (class, force) {
        (Class::Pure | Class::Mutating | Class::Unsafe, true) => 5,
        (Class::Mutating, false) => 300,
        (Class::Pure | Class::Unsafe, false) => 30,
    }
}
