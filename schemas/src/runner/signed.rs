//! Documents that a runner signs with its identity key: payloads of DSSE envelopes in RFC 8785
//! JSON.
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

/// Number of entries in a runner's journal, with one hash over all of them. A copy elsewhere shows
/// whether the end of the journal was removed later.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JournalHead {
    /// Format version, always 1.
    pub version: u32,
    /// Id of the runner.
    #[schema(value_type = String)]
    pub runner: RunnerId,
    /// Id of the journal. A new journal after a loss has a new id.
    pub journal_id: String,
    /// Number of the last entry.
    pub entries: u64,
    /// Chain hash after the last entry.
    #[schema(value_type = String)]
    pub chain: Digest,
    /// Time of the signature, by the runner's clock.
    #[serde(with = "moment")]
    pub at: DateTime<Utc>,
}

/// Signed result of an execution.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Statement {
    /// Format version, always 1.
    pub version: u32,
    /// Id of the runner.
    #[schema(value_type = String)]
    pub runner: RunnerId,
    /// Id of the job.
    #[schema(value_type = String)]
    pub job: JobId,
    /// Id of the execution.
    #[schema(value_type = String)]
    pub execution: ExecutionId,
    /// Outcome of the execution.
    pub outcome: Outcome,
    /// Reason of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<FailureReason>,
    /// Exit code of the child process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Number of the signal that ended the child process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Digest of the payload of the verified manifest. Absent if the runner could not verify one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub manifest: Option<Digest>,
    /// Digest of the payload of the verified grant. Absent if the runner could not verify one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub grant: Option<Digest>,
    /// Complete log, as the runner sends it. Absent if the execution did not start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<SignedLog>,
    /// Digest of the RFC 8785 JSON of all reported outputs, by name. Absent if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub outputs: Option<Digest>,
    /// Processes of the job that the runner could not end, as in the report.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_ended: Vec<String>,
}

impl Statement {
    /// Returns the statement in `json` if `key` signed it. The key is hexadecimal and the signature
    /// base64, as in events.
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

/// Length and digest of a log, as its runner has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SignedLog {
    /// Length in bytes.
    pub length_bytes: u64,
    /// SHA-256 of all bytes.
    #[schema(value_type = String)]
    pub sha256: Digest,
    /// Number of bytes that were omitted from the middle.
    pub omitted_bytes: u64,
}
