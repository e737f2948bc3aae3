//! Subjects: whose data is kept.
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::moment;

/// What is kept of a customer, by their install, or of a principal.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Subject {
    /// The id of the install or principal.
    pub subject: String,
    /// `readable`; `shredded`: its key is deleted; `erased`: the server has also deleted all copies that it can reach.
    pub state: String,
    /// Since when nobody reads it.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub shredded_at: Option<DateTime<Utc>>,
    /// Who decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// What they are called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_name: Option<String>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When the last copy was erased.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub erased_at: Option<DateTime<Utc>>,
}
