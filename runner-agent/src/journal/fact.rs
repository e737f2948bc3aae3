//! What can stand in the journal: one fact for each line.
use chrono::{DateTime, Utc};
use domain::{
    digest::Digest,
    ids::{ExecutionId, JobId, SessionId},
};
use schemas::{
    manifest::Fence,
    moment,
    runner::{Exit, JobClass, JobKind, Outcome, RefusedBy},
};
use serde::{Deserialize, Serialize};

use crate::host::Process;

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// When, by the host's clock.
    #[serde(with = "moment")]
    pub at: DateTime<Utc>,
    /// What.
    #[serde(flatten)]
    pub fact: Fact,
}

/// What can have happened on this runner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
pub enum Fact {
    /// The first line: a journal without it, or with another id, is another journal.
    Opened { journal_id: String },
    /// Each line from here on is an entry of the chain. The journal was begun by a program that knew of none, or went on
    /// under one: so many lines stand before this one in no chain, and this is their digest.
    ChainStarted { journal_id: String, lines: u64, sha256: Digest },
    /// A session with the server began.
    SessionOpened { session: SessionId, generation: u64 },
    /// A claim is about to be sent.
    Claiming { job: JobId, claim_id: String },
    /// The server rejected the claim.
    ClaimRejected { job: JobId, claim_id: String, reason: String },
    /// The claim was granted.
    Claimed { job: JobId, execution: ExecutionId, claim_id: String, attempt: u32 },
    /// What was claimed was verified, and what it is.
    Verified {
        execution: ExecutionId,
        manifest: Digest,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        grant: Option<Digest>,
        kind: JobKind,
        class: JobClass,
        plugin: String,
        fence: Fence,
    },
    /// This runner does not do it.
    Refused {
        job: JobId,
        execution: ExecutionId,
        refused_by: RefusedBy,
        rule: String,
        detail: String,
    },
    /// A shim is about to be started.
    Spawning { job: JobId, execution: ExecutionId },
    /// The shim runs.
    Spawned { job: JobId, execution: ExecutionId, process: Process },
    /// The shim's plugin started a child, which leads a process group; and how it is stopped without losing what
    /// it has done.
    ChildStarted {
        execution: ExecutionId,
        process: Process,
        #[serde(default)]
        stop: Stop,
    },
    /// Somebody asked for an end.
    Cancelling { execution: ExecutionId, reason: String, force: bool },
    /// The work ended.
    Exited { job: JobId, execution: ExecutionId, exit: Exit },
    /// The runner signed a statement of the result; the digest of that statement.
    StatementSigned { job: JobId, execution: ExecutionId, outcome: Outcome, statement: Digest },
    /// The server rejected the signed statement: the result is reported without a signature.
    StatementRejected { job: JobId, execution: ExecutionId, reason: String },
    /// The server knows.
    Reported { job: JobId, execution: ExecutionId },
    /// The customer's policy requires approval on the host first.
    ApprovalRequested { job: JobId, execution: ExecutionId },
    /// A user of the customer approved or denied the job.
    ApprovalDecided { execution: ExecutionId, approved: bool, reason: String },
    /// It is no longer ours; its files are kept.
    Abandoned { job: JobId, claim_id: String, reason: String },
    /// The log's signed head that this runner has seen and believes.
    Checkpoint { note: String },
    /// The server presented a log that does not extend the one seen before. The file holds both heads.
    LogRejected { job: JobId, rule: String, evidence: String },
    /// The customer accepts a log that an operator restored.
    EpochAccepted { epoch: u64 },
    /// This runner signs with another key from now on.
    Rekeyed {
        identity_key: String,
        /// The one before, which signed what was signed until now.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        former_key: Option<String>,
    },
    /// The customer switched the runner off.
    Disabled { reason: String },
    /// The customer switched it on.
    Enabled {},
    /// State that a plan was made from or that an apply wrote. An older one is refused from now on.
    /// No lineage: a destroy left none.
    StateSeen {
        execution: ExecutionId,
        component: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lineage: Option<String>,
        #[serde(default)]
        serial: u64,
    },
    /// The vendor's recorded decision that another state is right, as this runner took it from a manifest.
    StateAccepted {
        execution: ExecutionId,
        component: String,
        lineage: String,
        serial: u64,
        /// Number of the decision for this component.
        decision: u64,
    },
    /// A user of the customer is about to resolve the state of a component. No lineage: nothing of it exists.
    StateResolving {
        component: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lineage: Option<String>,
        #[serde(default)]
        serial: u64,
        reason: String,
    },
    /// A user of the customer resolved the state of a component. No lineage: nothing of it exists.
    StateResolved {
        component: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lineage: Option<String>,
        #[serde(default)]
        serial: u64,
        reason: String,
    },
    /// The customer chose the policy of this runner.
    PolicyChosen { policy: String },
    /// Copy of an entry of the previous file that is still needed: its claim is not over. The history shows it once.
    CarriedOver { original: Box<Entry> },
    /// A line of a later version.
    #[serde(other)]
    Unknown,
}

impl Fact {
    /// Execution that this is about. A claim that was not granted has none.
    pub fn execution(&self) -> Option<ExecutionId> {
        match self {
            Fact::Claimed { execution, .. }
            | Fact::Verified { execution, .. }
            | Fact::Refused { execution, .. }
            | Fact::Spawning { execution, .. }
            | Fact::Spawned { execution, .. }
            | Fact::ChildStarted { execution, .. }
            | Fact::Cancelling { execution, .. }
            | Fact::Exited { execution, .. }
            | Fact::StatementSigned { execution, .. }
            | Fact::StatementRejected { execution, .. }
            | Fact::Reported { execution, .. }
            | Fact::ApprovalRequested { execution, .. }
            | Fact::ApprovalDecided { execution, .. }
            | Fact::StateSeen { execution, .. }
            | Fact::StateAccepted { execution, .. } => Some(*execution),
            Fact::CarriedOver { original } => original.fact.execution(),
            Fact::Opened { .. }
            | Fact::ChainStarted { .. }
            | Fact::SessionOpened { .. }
            | Fact::Claiming { .. }
            | Fact::ClaimRejected { .. }
            | Fact::Abandoned { .. }
            | Fact::Checkpoint { .. }
            | Fact::LogRejected { .. }
            | Fact::EpochAccepted { .. }
            | Fact::Rekeyed { .. }
            | Fact::StateResolving { .. }
            | Fact::StateResolved { .. }
            | Fact::Disabled { .. }
            | Fact::Enabled {}
            | Fact::PolicyChosen { .. }
            | Fact::Unknown => None,
        }
    }

    /// Claim that this is about, by its key.
    pub fn claim_id(&self) -> Option<&str> {
        if let Fact::Claiming { claim_id, .. }
        | Fact::ClaimRejected { claim_id, .. }
        | Fact::Claimed { claim_id, .. }
        | Fact::Abandoned { claim_id, .. } = self
        {
            Some(claim_id)
        } else {
            None
        }
    }
}

/// The polite way to end a child.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// The signal's name: `SIGINT`.
    pub signal: String,
    /// Milliseconds until it is killed.
    pub grace_ms: u64,
}

impl Default for Stop {
    fn default() -> Self {
        Stop { signal: "SIGTERM".into(), grace_ms: 300_000 }
    }
}
