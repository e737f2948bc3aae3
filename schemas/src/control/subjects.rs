//! Data subjects and the erasure of their data.
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::moment;

/// Data subject: a customer, identified by the install, or a principal.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Subject {
    /// Id of the install or principal.
    pub subject: String,
    /// State. `readable`: the key exists. `shredded`: the key is deleted, so the data is
    /// unreadable. `erased`: the server has also erased every copy that it can reach.
    pub state: String,
    /// Time of the crypto-shredding.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub shredded_at: Option<DateTime<Utc>>,
    /// Actor that requested the shredding. Absent while the data is readable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Display name of the actor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_name: Option<String>,
    /// Reason of the caller for the shredding. Absent while the data is readable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Time when the last copy was erased.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub erased_at: Option<DateTime<Utc>>,
}
