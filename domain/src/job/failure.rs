use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Stable code of the reason for which a job failed. The failure's `detail` has the particulars.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Encode, Decode, ToSchema,
)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FailureReason {
    /// The process exited with a code other than 0.
    ExitCode,
    /// A signal from outside the runner ended the process.
    Signal,
    /// The deadline passed, or the process wrote no output for too long.
    TimedOut,
    /// The job used more memory than its limit.
    MemoryLimit,
    /// The job started more processes than its limit.
    ProcessLimit,
    /// The runner refused the job: its verification or the customer's policy does not allow it.
    Refused,
    /// A tool that the plugin needs is not installed.
    ToolMissing,
    /// The artifact cannot be pulled, or does not match its digest.
    ArtifactUnavailable,
    /// The approved plan no longer matches the state of the component.
    PlanStale,
    /// The plugin violated the protocol.
    PluginFailed,
    /// The process cannot be started.
    SpawnFailed,
    /// The agent was stopped together with its jobs.
    AgentStopped,
    /// No runner claimed the job in time. Set by the server only.
    QueueExpired,
    /// An actor resolved an unknown outcome as failed. Set by the server only.
    Resolved,
    /// An unexpected error in the runner or the server.
    Internal,
}

impl FailureReason {
    /// Returns true if a runner may report this reason.
    pub fn may_be_reported(self) -> bool {
        use FailureReason::*;
        match self {
            ExitCode | Signal | TimedOut | MemoryLimit | ProcessLimit | Refused | ToolMissing
            | ArtifactUnavailable | PlanStale | PluginFailed | SpawnFailed | AgentStopped
            | Internal => true,
            QueueExpired | Resolved => false,
        }
    }

    /// Returns a short description for users, without the detail.
    pub fn text(self) -> &'static str {
        match self {
            FailureReason::ExitCode => "the process failed",
            FailureReason::Signal => "a signal killed the process",
            FailureReason::TimedOut => "timed out",
            FailureReason::MemoryLimit => "memory limit exceeded",
            FailureReason::ProcessLimit => "process limit exceeded",
            FailureReason::Refused => "the runner refused the job",
            FailureReason::ToolMissing => "a tool is not installed",
            FailureReason::ArtifactUnavailable => "the artifact is not available",
            FailureReason::PlanStale => "the plan is stale",
            FailureReason::PluginFailed => "the plugin failed",
            FailureReason::SpawnFailed => "the process could not be started",
            FailureReason::AgentStopped => "the runner was stopped",
            FailureReason::QueueExpired => "no runner claimed the job in time",
            FailureReason::Resolved => "resolved as failed",
            FailureReason::Internal => "internal error",
        }
    }
}
