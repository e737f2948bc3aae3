//! Runners: agents in customers' accounts, and build runners.
use chrono::{DateTime, Utc};
use domain::ids::{InstallId, JobId, RunnerId, TokenId};
use proof::dsse::Envelope;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::moment;

/// Runner with its state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Runner {
    /// Id of the runner: `rnr_` and a ULID.
    #[schema(value_type = String)]
    pub id: RunnerId,
    /// Mode of the runner: `install` or `build`.
    pub mode: String,
    /// Id of the runner's install: `ins_` and a ULID. Absent for a build runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub install: Option<InstallId>,
    /// Name of the runner's install. Absent for a build runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install_name: Option<String>,
    /// State: `active`, `disconnected`, `stopped`, `drained`, `disabled` or `revoked`. A `stopped`
    /// runner announced its shutdown.
    pub state: String,
    /// Sides that disabled the runner: `vendor`, `customer` or both. Absent if no side did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disabled_by: Vec<String>,
    /// Reason for the last disable or revocation. Absent after the runner was enabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Current identity key, 64 hexadecimal digits.
    #[serde(default)]
    pub identity_key: String,
    /// Version of `stead-runner` at the enrolment.
    pub version: String,
    /// Host of the runner, `<operating system>/<architecture>`, followed by ` (<host name>)` if the
    /// runner reported a name.
    pub host: String,
    /// True if a long poll of the runner is open, or the last contact is within the lease. Absent
    /// if this server does not hold the runner's session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub online: Option<bool>,
    /// Ids of the jobs that the runner has claimed and not finished.
    #[schema(value_type = Vec<String>)]
    pub jobs: Vec<JobId>,
    /// Time when the runner enrolled.
    #[serde(with = "moment")]
    pub enrolled_at: DateTime<Utc>,
    /// Time of the last contact; the current time while a long poll is open. Absent if this server
    /// knows no contact.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::optional")]
    pub last_contact: Option<DateTime<Utc>>,
    /// Time of the last contact before the recorded disconnect. Absent while the runner is
    /// connected.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::optional")]
    pub disconnected_since: Option<DateTime<Utc>>,
}

/// Enrolment token of a runner, without its secret.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EnrolmentToken {
    /// Id of the token: `tok_` and a ULID. The id is not secret.
    #[schema(value_type = String)]
    pub id: TokenId,
    /// Id of the install whose runner may enrol: `ins_` and a ULID. Absent for a build runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub install: Option<InstallId>,
    /// Name of the install. Absent for a build runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install_name: Option<String>,
    /// State: `unused`, `used`, `revoked` or `expired`.
    pub state: String,
    /// Id of the runner that used the token: `rnr_` and a ULID. Absent if no runner did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub runner: Option<RunnerId>,
    /// Time when the token was created.
    #[serde(with = "moment")]
    pub created_at: DateTime<Utc>,
    /// Time from which the token is invalid.
    #[serde(with = "moment")]
    pub expires_at: DateTime<Utc>,
}

/// Latest signed heads of a runner's journals.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JournalHeads {
    /// One head for each journal that the runner began, newest first.
    pub heads: Vec<ReceivedJournalHead>,
}

/// Signed head of a journal that the server received.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReceivedJournalHead {
    /// Random id of the journal, which the runner chose.
    pub journal_id: String,
    /// Number of journal entries that the head covers.
    pub entries: u64,
    /// Time when the server received the head.
    #[serde(with = "moment")]
    pub received_at: DateTime<Utc>,
    /// DSSE envelope around a [`crate::runner::JournalHead`], signed by the runner.
    #[schema(value_type = Object)]
    pub head: Envelope,
}
