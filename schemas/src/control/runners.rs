//! Runners: the agents in the accounts, and the build runners.
use chrono::{DateTime, Utc};
use domain::ids::{InstallId, JobId, RunnerId};
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
    /// `active`, `disconnected`, `drained`, `disabled` or `revoked`.
    pub state: String,
    /// Who disabled it: `vendor`, `customer`, or both.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disabled_by: Vec<String>,
    /// Why it is in this state, when somebody said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
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
    /// Since when nothing was heard of it.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub silent_since: Option<DateTime<Utc>>,
}
