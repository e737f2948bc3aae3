//! The Runner API, in the order of a runner's life: [`identity`], [`session`], [`work`], [`log`]; and what it signs, [`signed`].
//!
//! Every call may be repeated. An execution id travels in the header [`EXECUTION`] with everything that
//! belongs to one; the server refuses what a former execution says with 412.
pub mod identity;
pub mod log;
pub mod session;
pub mod signed;
pub mod work;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use self::{
    identity::{
        Enrol, Enrolled, Host, RekeyRequest, Rekeyed, RunnerMode, TokenRequest, TokenResponse,
    },
    log::{LogRecord, LogResponse, LogSettings, LogStream},
    session::{
        Directive, ExecutionState, Exit, JournalEntry, Lease, Next, OpenSession, Poll,
        PollResponse, Pressure, ProtocolRange, Resume, ResumeAction, Running, SentDirective,
        SessionOpened,
    },
    signed::{JOURNAL_HEAD_TYPE, JournalHead, STATEMENT_TYPE, StatedLog, Statement},
    work::{
        ArtifactReport, Claim, Claimed, Consistency, Finished, Inclusion, NOT_ENDED, OUTPUTS_BYTES,
        Outcome, PendingCancel, PlanReport, RefusedBy, Report, ReportBody, ReportResponse,
        SignedEnd,
    },
};

/// Header of every call that belongs to an execution.
pub const EXECUTION: &str = "execution";
/// Header of a log answer: the job's state in one word.
pub const JOB_STATE: &str = "x-job-state";
/// Header of a log answer: what is left of the lease, milliseconds.
pub const LEASE_MS: &str = "x-lease-ms";
/// Header of a log answer: how long to wait before the next chunk, milliseconds.
pub const LOG_INTERVAL_MS: &str = "x-log-interval-ms";
/// Header of a log chunk: `sha-256=:<base64>:` of the chunk before compression.
pub const REPR_DIGEST: &str = "repr-digest";
/// The version of this protocol.
pub const PROTOCOL: u32 = 1;

/// What kind of work a job is.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum JobKind {
    /// Turn a component's source into an artifact.
    Build,
    /// Find out what an apply would change.
    Plan,
    /// Change something, as planned.
    Apply,
    /// Run a vendor's script.
    Action,
}

impl JobKind {
    /// Every kind.
    pub const ALL: [JobKind; 4] = [JobKind::Build, JobKind::Plan, JobKind::Apply, JobKind::Action];

    /// The word on the wire.
    pub fn word(self) -> &'static str {
        match self {
            JobKind::Build => "build",
            JobKind::Plan => "plan",
            JobKind::Apply => "apply",
            JobKind::Action => "action",
        }
    }
}

/// What a silence means: whether the job may simply be started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobClass {
    /// Changes nothing outside; may be repeated.
    Pure,
    /// Changes something; never started twice without proof or a decision.
    Mutating,
    /// Changes something unknown; only a person decides.
    Unsafe,
}

/// Why a job failed. A closed list: new facts go into `detail`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailureReason {
    /// The child said so.
    ExitCode,
    /// The child was killed by a signal that we did not send.
    Signal,
    /// The deadline passed, or the child was silent for too long.
    TimedOut,
    /// The runner did not want to.
    Refused,
    /// A tool that the plugin needs is not installed.
    ToolMissing,
    /// An artifact could not be pulled or is not what its digest says.
    ArtifactUnavailable,
    /// What the plan read has changed since.
    PlanIsStale,
    /// The plugin itself went wrong.
    PluginFailed,
    /// The child could not be started.
    SpawnFailed,
    /// The agent was told to stop at once.
    AgentStopped,
    /// Nobody took the job in time.
    QueueExpired,
    /// A person or a probe decided.
    Resolved,
    /// Our own fault.
    Internal,
}
