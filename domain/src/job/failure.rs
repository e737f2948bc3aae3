//! Reasons of failed jobs.
use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Reason of a failed job. The list is closed: particulars belong in the detail.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Encode, Decode, ToSchema,
)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FailureReason {
    /// The process exited with a code other than 0.
    ExitCode,
    /// A signal that the runner did not send killed the process.
    Signal,
    /// The deadline passed, or the process wrote no output for too long.
    TimedOut,
    /// The runner or its customer refused the job.
    Refused,
    /// A tool that the plugin needs is not installed.
    ToolMissing,
    /// The artifact cannot be pulled, or does not match its digest.
    ArtifactUnavailable,
    /// The plan no longer matches its inputs.
    PlanStale,
    /// The plugin violated its contract.
    PluginFailed,
    /// The process cannot be started.
    SpawnFailed,
    /// The runner stopped its jobs on request.
    AgentStopped,
    /// No runner claimed the job in time. Set by the server only.
    QueueExpired,
    /// A principal resolved an unknown outcome as failed. Set by the server only.
    Resolved,
    /// A bug in the runner or the server.
    Internal,
}

impl FailureReason {
    /// Returns true if a runner may report this reason.
    pub fn is_the_runners(self) -> bool {
        use FailureReason::*;
        match self {
            ExitCode | Signal | TimedOut | Refused | ToolMissing | ArtifactUnavailable
            | PlanStale | PluginFailed | SpawnFailed | AgentStopped | Internal => true,
            QueueExpired | Resolved => false,
        }
    }

    /// Text for users.
    pub fn text(self) -> &'static str {
        match self {
            FailureReason::ExitCode => "the process failed",
            FailureReason::Signal => "a signal killed the process",
            FailureReason::TimedOut => "timed out",
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
