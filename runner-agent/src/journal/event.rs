use chrono::{DateTime, Utc};
use domain::{
    digest::Digest,
    ids::{ExecutionId, JobId, SessionId},
    isolation::Isolation,
};
use schemas::{
    manifest::Fence,
    moment,
    runner::{Exit, JobClass, JobKind, Outcome, RefusedBy},
};
use serde::{Deserialize, Serialize};

use crate::host::Process;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Time of the entry by the host's clock.
    #[serde(with = "moment")]
    pub at: DateTime<Utc>,
    #[serde(flatten)]
    pub event: JournalEvent,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
pub enum JournalEvent {
    /// First line of each journal file. The id distinguishes this journal from other journals.
    Opened { journal_id: String },
    /// Start or continuation of the hash chain after `lines` lines that a program without the chain
    /// wrote. `sha256` is the digest of those lines.
    ChainStarted { journal_id: String, lines: u64, sha256: Digest },
    /// A session with the server began.
    SessionOpened { session: SessionId, generation: u64 },
    /// The runner is about to send a claim.
    Claiming { job: JobId, claim_id: String },
    /// The server rejected the claim.
    ClaimRejected { job: JobId, claim_id: String, reason: String },
    /// The server granted the claim.
    Claimed { job: JobId, execution: ExecutionId, claim_id: String, attempt: u32 },
    /// The runner verified the claim.
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
    Refused {
        job: JobId,
        execution: ExecutionId,
        refused_by: RefusedBy,
        rule: String,
        detail: String,
    },
    /// The agent is about to start a shim.
    Spawning { job: JobId, execution: ExecutionId },
    /// The shim runs.
    Spawned { job: JobId, execution: ExecutionId, process: Process },
    /// The plugin started a child, which leads a process group. `stop` is the graceful stop of the
    /// child.
    ChildStarted {
        execution: ExecutionId,
        process: Process,
        #[serde(default)]
        stop: Stop,
    },
    /// The shim isolated the job. `note` explains a lower level, and names what the policy opens.
    Isolated { execution: ExecutionId, isolation: Isolation, note: String },
    /// A stop of the job was requested.
    Cancelling { execution: ExecutionId, reason: String, force: bool },
    /// The job ended.
    Exited { job: JobId, execution: ExecutionId, exit: Exit },
    /// The runner signed a statement of the result. `statement` is its digest.
    StatementSigned { job: JobId, execution: ExecutionId, outcome: Outcome, statement: Digest },
    /// The server rejected the signed statement, so the runner reports the result without it.
    StatementRejected { job: JobId, execution: ExecutionId, reason: String },
    /// The server has the result.
    Reported { job: JobId, execution: ExecutionId },
    /// The customer's policy requires approval on the host first.
    ApprovalRequested { job: JobId, execution: ExecutionId },
    /// A user of the customer approved or denied the job.
    ApprovalDecided { execution: ExecutionId, approved: bool, reason: String },
    /// The runner stopped its work on the job and leaves the outcome to the server. The job's files
    /// stay.
    Abandoned { job: JobId, claim_id: String, reason: String },
    /// The runner verified this signed head of the server's log.
    Checkpoint { note: String },
    /// The server presented a log that does not extend the verified log. The file `evidence` has
    /// both heads.
    LogRejected { job: JobId, rule: String, evidence: String },
    /// The customer accepted a log that the vendor restored.
    EpochAccepted { epoch: u64 },
    /// The runner replaced its identity key.
    Rekeyed {
        identity_key: String,
        /// Public key that `identity_key` replaced.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        former_key: Option<String>,
    },
    /// The customer disabled the runner.
    Disabled { reason: String },
    /// The customer enabled the runner.
    Enabled {},
    /// State that a plan read or an apply wrote. The runner refuses an older state from now on.
    /// Without a lineage, a destroy left no state.
    StateSeen {
        execution: ExecutionId,
        component: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lineage: Option<String>,
        #[serde(default)]
        serial: u64,
        /// Keyed digest of the state. Absent in entries of earlier versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        digest: Option<String>,
    },
    /// The vendor accepted another state. The decision came with a manifest.
    StateAccepted {
        execution: ExecutionId,
        component: String,
        lineage: String,
        serial: u64,
        /// Number of the decision for this component.
        decision: u64,
    },
    /// A user of the customer is about to resolve the state of a component. Without a lineage, the
    /// component has no resources.
    StateResolving {
        component: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lineage: Option<String>,
        #[serde(default)]
        serial: u64,
        reason: String,
    },
    /// A user of the customer resolved the state of a component. Without a lineage, the component
    /// has no resources.
    StateResolved {
        component: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lineage: Option<String>,
        #[serde(default)]
        serial: u64,
        reason: String,
    },
    /// The customer accepted this state of the server as the newest one when the install was
    /// recovered. Nothing proves that: the lost host may have written a later one.
    StateUnproved { component: String, lineage: String, serial: u64, digest: String },
    /// The customer chose the policy of this runner.
    PolicyChosen { policy: String },
    /// The customer added or removed a recorded publisher of plugins. Contains all recorded ones.
    PublishersTrusted { publishers: Vec<String> },
    /// Copy of an entry of the previous file. The entry belongs to an open claim or has the known
    /// state of a component. Readers of the current file get the original entry.
    CarriedOver { original: Box<Entry> },
    /// Entry of a later version.
    #[serde(other)]
    Unknown,
}

impl JournalEvent {
    /// Returns the execution of the entry, if it has one.
    pub fn execution(&self) -> Option<ExecutionId> {
        match self {
            JournalEvent::Claimed { execution, .. }
            | JournalEvent::Verified { execution, .. }
            | JournalEvent::Refused { execution, .. }
            | JournalEvent::Spawning { execution, .. }
            | JournalEvent::Spawned { execution, .. }
            | JournalEvent::ChildStarted { execution, .. }
            | JournalEvent::Isolated { execution, .. }
            | JournalEvent::Cancelling { execution, .. }
            | JournalEvent::Exited { execution, .. }
            | JournalEvent::StatementSigned { execution, .. }
            | JournalEvent::StatementRejected { execution, .. }
            | JournalEvent::Reported { execution, .. }
            | JournalEvent::ApprovalRequested { execution, .. }
            | JournalEvent::ApprovalDecided { execution, .. }
            | JournalEvent::StateSeen { execution, .. }
            | JournalEvent::StateAccepted { execution, .. } => Some(*execution),
            JournalEvent::CarriedOver { original } => original.event.execution(),
            JournalEvent::Opened { .. }
            | JournalEvent::ChainStarted { .. }
            | JournalEvent::SessionOpened { .. }
            | JournalEvent::Claiming { .. }
            | JournalEvent::ClaimRejected { .. }
            | JournalEvent::Abandoned { .. }
            | JournalEvent::Checkpoint { .. }
            | JournalEvent::LogRejected { .. }
            | JournalEvent::EpochAccepted { .. }
            | JournalEvent::Rekeyed { .. }
            | JournalEvent::StateResolving { .. }
            | JournalEvent::StateResolved { .. }
            | JournalEvent::StateUnproved { .. }
            | JournalEvent::Disabled { .. }
            | JournalEvent::Enabled {}
            | JournalEvent::PolicyChosen { .. }
            | JournalEvent::PublishersTrusted { .. }
            | JournalEvent::Unknown => None,
        }
    }

    /// Returns the idempotency key of the claim.
    pub fn claim_id(&self) -> Option<&str> {
        if let JournalEvent::Claiming { claim_id, .. }
        | JournalEvent::ClaimRejected { claim_id, .. }
        | JournalEvent::Claimed { claim_id, .. }
        | JournalEvent::Abandoned { claim_id, .. } = self
        {
            Some(claim_id)
        } else {
            None
        }
    }
}

/// Graceful stop of a child.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// Name of the signal, for example `SIGINT`.
    pub signal: String,
    /// Milliseconds from the signal to SIGKILL.
    pub grace_ms: u64,
}

impl Default for Stop {
    fn default() -> Self {
        Stop { signal: "SIGTERM".into(), grace_ms: 300_000 }
    }
}
