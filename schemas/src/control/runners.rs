//! Runners: agents in customers' accounts, and build runners.
use chrono::{DateTime, Utc};
use domain::ids::{InstallId, JobId, RunnerId};
use proof::dsse::Envelope;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::moment;

/// Runner agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Runner {
    /// Id of the runner.
    #[schema(value_type = String)]
    pub id: RunnerId,
    /// Mode: `install` or `build`.
    pub mode: String,
    /// Id of the runner's install. Absent for a build runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub install: Option<InstallId>,
    /// Name of the install.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install_name: Option<String>,
    /// State: `active`, `disconnected`, `stopped` (after an orderly shutdown), `drained`,
    /// `disabled` or `revoked`.
    pub state: String,
    /// Sides that disabled the runner: `vendor`, `customer`, or both.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disabled_by: Vec<String>,
    /// Reason of the state, if one was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Current identity key, 64 hexadecimal digits.
    #[serde(default)]
    pub identity_key: String,
    /// Version of the agent.
    pub version: String,
    /// Operating system and processor architecture.
    pub host: String,
    /// True if a long poll of the runner is open, or its last contact is within its lease. Only the
    /// server that holds its session knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub online: Option<bool>,
    /// Ids of the jobs that the runner holds.
    #[schema(value_type = Vec<String>)]
    pub jobs: Vec<JobId>,
    /// Time of the enrolment.
    #[serde(with = "moment")]
    pub enrolled_at: DateTime<Utc>,
    /// Time of the last contact. The current time while a long poll is open. Absent if there was
    /// none since the server with its session started.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub last_contact: Option<DateTime<Utc>>,
    /// Time since which the runner has made no call.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub disconnected_since: Option<DateTime<Utc>>,
}

/// Latest signed heads of a runner's journals, newest first. There is one head for each journal
/// that the runner began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JournalHeads {
    /// Journal heads.
    pub heads: Vec<ReceivedJournalHead>,
}

/// Stored head of a journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReceivedJournalHead {
    /// Id of the journal.
    pub journal_id: String,
    /// Number of entries that the head covers.
    pub entries: u64,
    /// Time at which the server received the head.
    #[serde(with = "moment")]
    pub received_at: DateTime<Utc>,
    /// DSSE envelope around a [`crate::runner::JournalHead`], signed by the runner.
    #[schema(value_type = Object)]
    pub head: Envelope,
}
