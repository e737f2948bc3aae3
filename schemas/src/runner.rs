//! Runner API, in the order of use: [`identity`], [`session`], [`work`], [`log`]. The module
//! [`signed`] has the documents that a runner signs.
//!
//! Every call is idempotent, except that an assertion for an access token is valid for one use.
//! Uploads of logs and blobs have the execution id in the header [`EXECUTION`], and reports have it
//! in the body. The server rejects a call of a superseded execution with 412.
pub mod identity;
pub mod install_keys;
pub mod log;
pub mod recovery;
pub mod session;
pub mod signed;
pub mod state;
pub mod work;

pub use domain::{
    artifact::Artifact,
    check::{Check, CheckStatus},
    job::{FailureReason, JobClass, JobKind, PlanReport, PlanV2},
    runner::{Host, InstallPublicKeys, RefusedBy, RunnerMode},
};

pub use self::{
    identity::{Enrol, Enrolled, RekeyRequest, Rekeyed, TokenRequest, TokenResponse},
    install_keys::{INSTALL_KEYS_TYPE, install_keys_are_signed, sign_install_keys},
    log::{LogRecord, LogResponse, LogSettings, LogStream},
    recovery::{
        MAX_RECIPIENTS, OfferedSeed, RecoveryOffer, RecoveryProof, RecoveryRequest,
        WRAPPED_SEED_BYTES, WrappedSeed, succession, succession_is_signed,
    },
    session::{
        CustomerValue, Directive, DiskUsage, ExecutionState, Exit, JournalEntry, Lease,
        OpenSession, Poll, PollResponse, PollTiming, ProtocolRange, Resume, ResumeAction, Running,
        SentDirective, SessionOpened,
    },
    signed::{JOURNAL_HEAD_TYPE, JournalHead, STATEMENT_TYPE, SignedLog, Statement},
    state::{
        STATE_BYTES, STATE_CIPHERTEXT_BYTES, STATE_RECORDED, STATE_VERSION, StateHead, StateUpload,
    },
    work::{
        Claim, Claimed, Consistency, DETAILS_BYTES, Finished, Inclusion, NOT_ENDED, OUTPUTS_BYTES,
        Outcome, PendingCancel, Report, ReportBody, ReportResponse, SaltedDetails, SignedEnd,
        VALUES_BYTES,
    },
};

/// Request header with the execution id. Required for uploads of logs and blobs, optional for
/// reports.
pub const EXECUTION: &str = "execution";
/// Response header of a log upload with the state of the job.
pub const JOB_STATE: &str = "x-job-state";
/// Response header of a log upload with the remaining time of the lease in milliseconds.
pub const LEASE_MS: &str = "x-lease-ms";
/// Response header of a log upload with the delay before the next chunk in milliseconds.
pub const LOG_INTERVAL_MS: &str = "x-log-interval-ms";
/// Request header of a log upload with the digest of the uncompressed chunk, `sha-256=:<base64>:`.
pub const REPR_DIGEST: &str = "repr-digest";
/// Version of the runner protocol that this release supports.
pub const PROTOCOL: u32 = 1;
