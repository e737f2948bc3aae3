//! Runners: the agents in the accounts, and the build runners.
use chrono::{DateTime, Utc};
use domain::ids::{InstallId, JobId, RunnerId};
use proof::dsse::Envelope;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::moment;

/// One agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Runner {
    /// Its id.
    #[schema(value_type = String)]
    pub id: RunnerId,
    /// `install` or `build`.
    pub mode: String,
    /// Of which install.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub install: Option<InstallId>,
    /// The install's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install_name: Option<String>,
    /// `active`, `disconnected`, `stopped` (it ended in order), `drained`, `disabled` or `revoked`.
    pub state: String,
    /// Who disabled it: `vendor`, `customer`, or both.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disabled_by: Vec<String>,
    /// Why it is in this state, when somebody said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The public key that it signs with now, 64 hexadecimal digits.
    #[serde(default)]
    pub identity_key: String,
    /// The version of its program.
    pub version: String,
    /// Operating system and processor.
    pub host: String,
    /// Whether a call of it is parked or was heard within its lease. Known to the server that holds its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub online: Option<bool>,
    /// Jobs that it holds.
    #[schema(value_type = Vec<String>)]
    pub jobs: Vec<JobId>,
    /// When it enrolled.
    #[serde(with = "moment")]
    pub enrolled_at: DateTime<Utc>,
    /// When it called last; the present moment while a poll is parked. Absent: not since the server that holds its
    /// session started.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub last_contact: Option<DateTime<Utc>>,
    /// Time since which it is disconnected.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub disconnected_since: Option<DateTime<Utc>>,
}

/// The newest signed heads of a runner's journal that the server was told, the newest first: one for each journal that
/// the runner has begun.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JournalHeads {
    /// The heads.
    pub heads: Vec<ReceivedJournalHead>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReceivedJournalHead {
    /// Of which journal.
    pub journal_id: String,
    /// How many entries it covers.
    pub entries: u64,
    /// Time at which the server received it.
    #[serde(with = "moment")]
    pub received_at: DateTime<Utc>,
    /// DSSE around a [`crate::runner::JournalHead`], signed by the runner.
    #[schema(value_type = Object)]
    pub head: Envelope,
}
