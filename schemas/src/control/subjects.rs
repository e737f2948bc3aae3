//! Data subjects, and the erasure of their personal data.
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::moment;

/// Data subject: a customer, identified by an install, or a principal.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Subject {
    /// Id of the install (`ins_…`) or of the principal (`prn_…`).
    pub subject: String,
    /// State of the subject's data. `readable`: the key exists. `shredded`: the key is deleted, so
    /// the data is unreadable. `erased`: the server has also erased all reachable copies of the
    /// data.
    pub state: String,
    /// Time of the decision to delete the key. Absent while the data is readable.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::optional")]
    pub shredded_at: Option<DateTime<Utc>>,
    /// Actor that decided to delete the key: `prn_…`. Absent while the data is readable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Display name of the actor. Absent if the actor has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_name: Option<String>,
    /// Reason that the actor gave. Absent while the data is readable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Time when the server had erased all reachable copies. Absent before that time.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::optional")]
    pub erased_at: Option<DateTime<Utc>>,
}
