//! Documents that a runner signs with its identity key. Each document is the RFC 8785 JSON payload
//! of a DSSE envelope.
//!
//! A reader verifies the received bytes and never serializes them again.
use base64::{Engine as _, engine::general_purpose::STANDARD};
use chrono::{DateTime, Utc};
use domain::{
    digest::Digest,
    ids::{ExecutionId, JobId, RunnerId},
};
use ed25519_dalek::VerifyingKey;
use proof::dsse::{self, Envelope, EnvelopeSignature};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{FailureReason, Outcome};
use crate::moment;

/// DSSE payload type of a [`JournalHead`].
pub const JOURNAL_HEAD_TYPE: &str = proof::journal::HEAD;
/// DSSE payload type of a [`Statement`].
pub const STATEMENT_TYPE: &str = proof::report::STATEMENT;

/// Signed head of a runner's journal: number of entries and one hash over all of them. A comparison
/// with a stored copy reveals a truncated journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JournalHead {
    /// Format version, always 1.
    pub version: u32,
    /// Id of the runner: `rnr_` and a ULID.
    #[schema(value_type = String)]
    pub runner: RunnerId,
    /// Random id of the journal. A runner that lost its journal begins a new one with another id.
    pub journal_id: String,
    /// Number of entries in the journal.
    pub entries: u64,
    /// Hash chain over all entries.
    #[schema(value_type = String)]
    pub chain: Digest,
    /// Time of the signature on the runner's clock.
    #[serde(with = "moment")]
    pub at: DateTime<Utc>,
}

/// Result of an execution, which its runner signs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Statement {
    /// Format version, always 1.
    pub version: u32,
    /// Id of the runner: `rnr_` and a ULID.
    #[schema(value_type = String)]
    pub runner: RunnerId,
    /// Id of the job: `job_` and a ULID.
    #[schema(value_type = String)]
    pub job: JobId,
    /// Id of the execution: `exe_` and a ULID.
    #[schema(value_type = String)]
    pub execution: ExecutionId,
    /// Outcome of the execution.
    pub outcome: Outcome,
    /// Stable code of the failure. Absent without a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<FailureReason>,
    /// Exit code of the child process. Absent if a signal ended the process or none ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Number of the signal that ended the child process. Absent if no signal did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Digest of the manifest that the runner verified. Absent if the runner verified none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub manifest: Option<Digest>,
    /// Digest of the payload of the grant that the runner verified. Absent if the runner verified
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub grant: Option<Digest>,
    /// Length and digest of the complete log. Absent if the execution did not start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<SignedLog>,
    /// Digest of the reported outputs as an RFC 8785 JSON object. Absent without outputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub outputs: Option<Digest>,
    /// Processes of the job that the runner could not end, as in [`super::Finished`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_ended: Vec<String>,
}

impl Statement {
    /// Returns the statement in `json` if `signature` is a signature of it by `key`. The key is
    /// hexadecimal, and the signature is base64.
    pub fn open(json: &str, key: &str, signature: &str) -> Option<Statement> {
        let key: [u8; 32] = hex::decode(key).ok()?.try_into().ok()?;
        let key = VerifyingKey::from_bytes(&key).ok()?;
        let envelope = Envelope {
            payload: STANDARD.encode(json),
            payload_type: STATEMENT_TYPE.into(),
            signatures: vec![EnvelopeSignature { keyid: String::new(), sig: signature.into() }],
        };
        let payload = dsse::verify_as(STATEMENT_TYPE, &envelope, &[key]).ok()?;
        serde_json::from_slice(&payload).ok()
    }
}

/// Length and digest of the complete log on the runner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SignedLog {
    /// Length of the log in bytes.
    pub length_bytes: u64,
    /// SHA-256 of all bytes of the log.
    #[schema(value_type = String)]
    pub sha256: Digest,
    /// Number of output bytes that the shim omitted from the middle of the log.
    pub omitted_bytes: u64,
}
