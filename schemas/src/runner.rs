//! The Runner API, in the order of a runner's life: [`identity`], [`session`], [`work`], [`log`]; and what it signs, [`signed`].
//!
//! Every call may be repeated. An execution id travels in the header [`EXECUTION`] with everything that
//! belongs to one; the server refuses what a former execution says with 412.
pub mod identity;
pub mod log;
pub mod session;
pub mod signed;
pub mod work;

pub use domain::{
    artifact::Artifact,
    job::{FailureReason, JobClass, JobKind, PlanReport},
    runner::{Host, RefusedBy, RunnerMode},
};

pub use self::{
    identity::{Enrol, Enrolled, RekeyAsk, Rekeyed, TokenAnswer, TokenAsk},
    log::{LogAnswer, LogRecord, LogSettings, LogStream},
    session::{
        Directive, ExecutionState, Exit, JournalEntry, Lease, Next, OpenSession, Poll, PollAnswer,
        Pressure, ProtocolRange, Resume, ResumeAction, Running, SentDirective, SessionOpened,
    },
    signed::{JOURNAL_HEAD_TYPE, JournalHead, STATEMENT_TYPE, StatedLog, Statement},
    work::{
        Claim, Claimed, Consistency, Finished, Inclusion, NOT_ENDED, OUTPUTS_BYTES, Outcome,
        PendingCancel, Report, ReportAnswer, ReportBody, SignedEnd,
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
