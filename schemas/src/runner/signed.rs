//! What a runner signs with its identity key, as payloads of DSSE envelopes in RFC 8785 JSON.
//!
//! Whoever reads one verifies the bytes that arrived and never writes them anew.
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

/// So many entries a runner's journal has, and everything in them in one hash. Whoever keeps it elsewhere sees whether
/// the journal's end was cut off later.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JournalHead {
    /// 1.
    pub version: u32,
    /// Whose journal.
    #[schema(value_type = String)]
    pub runner: RunnerId,
    /// Its name: another one when the former was lost.
    pub journal_id: String,
    /// The number of the last entry.
    pub entries: u64,
    /// The link after it.
    #[schema(value_type = String)]
    pub chain: Digest,
    /// When it was signed, by the runner's clock.
    #[serde(with = "moment")]
    pub at: DateTime<Utc>,
}

/// How an execution ended, in its runner's own words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Statement {
    /// 1.
    pub version: u32,
    /// Who says so.
    #[schema(value_type = String)]
    pub runner: RunnerId,
    /// Of which job.
    #[schema(value_type = String)]
    pub job: JobId,
    /// The one execution that this is about.
    #[schema(value_type = String)]
    pub execution: ExecutionId,
    /// In one word.
    pub outcome: Outcome,
    /// Why, when it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<FailureReason>,
    /// The child's exit code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// The payload of the manifest that was verified; absent when none could be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub manifest: Option<Digest>,
    /// The payload of the grant that permitted it; absent when none could be verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub grant: Option<Digest>,
    /// The whole log as it is sent; absent when the runner did not begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<StatedLog>,
    /// RFC 8785 JSON of all outputs that were reported, by name; absent when there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub outputs: Option<Digest>,
    /// Processes of the job that could not be ended, as the report names them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_ended: Vec<String>,
}

impl Statement {
    /// What was said in this JSON, if this key signed it: both hexadecimal and base64 as events have them.
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

/// A log as its runner has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StatedLog {
    /// How long it is.
    pub length_bytes: u64,
    /// Of all its bytes.
    #[schema(value_type = String)]
    pub sha256: Digest,
    /// What was left out of the middle.
    pub omitted_bytes: u64,
}
